"""Plays a program on a Stable-Baselines3 vector environment: ours, or its own."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from stable_baselines3.common import vec_env

from corral import dropin
from corral.api.sb3.make import make_sb3
from tests.soak.programs.compare import difference, with_arrays
from tests.soak.programs.env import Around
from tests.soak.programs.kinds import METHOD, NONE, OWN
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import (
    ProgramPlay,
    batch_of,
    errors_for,
    start_errors_for,
)
from tests.soak.programs.truth import ExpectedRow, kept


class SB3Play(ProgramPlay):
    """Every slot is commanded together, and begins anew in the step that ends."""

    def __init__(self, program: Program, peer: bool = False) -> None:
        here = program.api == "DummyVecEnv"
        alone = program.isolate_rng or program.kind.state == OWN
        super().__init__(program, seeded=False, together=here and not alone)
        self.peer = peer
        self.seed: int | None = None
        self.options: dict[str, Any] | None = None
        """What was set for the next reset."""

    def open(self) -> Any:
        """The environments of the program."""
        if self.peer:
            return vec_env.DummyVecEnv(self.factories)
        options = options_of(self.program)
        options["seed"] = self.root
        if self.program.api == "make_sb3":
            options["backend"] = self.program.backend
            return make_sb3(self.factories, **options)
        return getattr(dropin, self.program.api)(self.factories, **options)

    def play(self) -> None:
        """All of it."""
        try:
            envs = self.open()
        except BaseException as error:
            if not self.cannot_start:
                raise
            self.unexpected(error, start_errors_for(self.kind.fault, own=True))
            return
        self.envs = envs
        try:
            if self.cannot_start:
                self.missing("construct")
                return
            goes_on = self.reset(first=True)
            for _ in range(self.program.steps):
                if not goes_on:
                    break
                goes_on = self.turn()
            self.look_again()
        finally:
            envs.close()

    def turn(self) -> bool:
        """One command to all; False if nothing more can be done."""
        if self.rng.random() < 0.08:
            self.ask()
        if any(slot.failed for slot in self.slots) or self.rng.random() < 0.04:
            return self.reset()
        return self.step()

    # Commands -------------------------------------------------------------------------

    def reset(self, first: bool = False) -> bool:
        """Reset all, with the seeds and options that were set before."""
        if first or self.rng.random() < 0.5:
            self.seed = self.rng.getrandbits(20)
            self.envs.seed(self.seed)
        if self.rng.random() < 0.3:
            self.options = {"level": self.rng.randint(0, 9)}
            self.envs.set_options(self.options)
        seed = self.seed
        rows = [
            slot.reset(None if seed is None else seed + number, self.options)
            for number, slot in enumerate(self.slots)
        ]
        obs = self.called(self.envs.reset, rows)
        if obs is None:
            return not self.kind.dies
        # Used once; after a reset that raised they are still set, as in SB3.
        self.seed = self.options = None
        obs = {**obs} if isinstance(obs, dict) else obs  # SB3 has an OrderedDict
        expected = batch_of(self.obs_space, [row.obs for row in rows])
        self.again(lambda: difference(obs, expected, "reset obs"))
        infos = [kept(self.program.info_choice, row).info for row in rows]
        self.check(difference(self.envs.reset_infos, infos, "reset_infos"))
        return True

    def step(self) -> bool:
        """Step all."""
        items = self.actions(range(self.program.slots))
        pairs = zip(self.slots, items, strict=True)
        rows = [slot.step(item, "same_step") for slot, item in pairs]
        batch = self.batch(items)
        got = self.called(lambda: self.envs.step(batch), rows)
        if got is None:
            return not self.kind.dies
        self.compare(got, [kept(self.program.info_choice, row) for row in rows])
        return True

    def called(self, call: Callable[[], Any], rows: list[ExpectedRow]) -> Any:
        """What a call returned; None if it raised what it had to."""
        faults = [row.fault for row in rows if row.fault]
        raises = faults and self.program.on_fault == "raise"
        try:
            got = call()
        except (Exception, SystemExit) as error:
            if not raises:
                raise
            self.unexpected(error, errors_for(faults[0], own=True))
            return None
        if raises:
            self.missing(faults[0])
        return got

    def compare(self, got: Any, rows: list[ExpectedRow]) -> None:
        """All that a step returns."""
        obs, rewards, dones, infos = got
        obs = {**obs} if isinstance(obs, dict) else obs
        expected = batch_of(self.obs_space, [row.obs for row in rows])
        self.again(lambda: difference(obs, expected, "obs"))
        earned = np.array([row.reward for row in rows], np.float32)
        self.check(difference(rewards, earned, "rewards"))
        ended = np.array([row.ended for row in rows])
        self.check(difference(dones, ended, "dones"))
        told = [self.info(row) for row in rows]
        self.again(lambda: difference(self.shown(infos, rows), told, "infos"))
        for slot, row in enumerate(rows):
            if row.ended:
                where = f"reset_infos[{slot}]"
                info = {**self.envs.reset_infos[slot]}
                info.pop("fault", None)
                self.check(difference(info, row.info, where))

    def info(self, row: ExpectedRow) -> dict[str, Any]:
        """What Stable-Baselines3 tells of a row."""
        info = deepcopy(row.info)
        if row.ended:
            info = deepcopy(row.final_info or {})
            info["terminal_observation"] = row.final_obs
        late = row.truncated and not row.terminated
        return {**info, "TimeLimit.truncated": late}

    def shown(self, infos: list[Any], rows: list[ExpectedRow]) -> list[Any]:
        """What was told, without faults, in types that compare."""
        seen = []
        for info, row in zip(infos, rows, strict=True):
            info = {**info}
            info.pop("fault", None)
            info["TimeLimit.truncated"] = bool(info["TimeLimit.truncated"])
            if row.ended:
                last = with_arrays(info["terminal_observation"])
                info["terminal_observation"] = last
            seen.append(info)
        return seen

    # Questions ------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask some environments something, or change something in them."""
        count = self.rng.randint(1, self.program.slots)
        indices = self.rng.sample(range(self.program.slots), count)
        slots, number = [self.slots[i] for i in indices], float(self.rng.randint(0, 9))
        way = self.rng.choice(("get", "set", "call", "wrapped"))
        if way == "get":
            got = self.envs.get_attr("bonus", indices)
            truth = [s.ask(lambda env: env.unwrapped.bonus) for s in slots]
        elif way == "set":
            self.envs.env_method("__setattr__", "mark", number, indices=indices)
            got = self.envs.env_method("length", indices=indices)
            truth = [s.ask(lambda env: env.unwrapped.length()) for s in slots]
        elif way == "call":
            got = self.envs.env_method("add", number, twice=True, indices=indices)
            truth = [
                s.ask(lambda env: env.unwrapped.add(number, twice=True)) for s in slots
            ]
        else:
            got = self.envs.env_is_wrapped(Around, indices)
            truth = [self.kind.wrapped] * count
        self.check(difference(got, truth, way))


def has_a_peer(program: Program) -> bool:
    """Whether Stable-Baselines3's own class does what is promised here."""
    kind = program.kind
    return (
        kind.fault == NONE
        and kind.forks == "never"
        and (kind.state == OWN or program.api == "DummyVecEnv")
        and not program.isolate_rng
        and not kind.reuses_buffer
        and kind.infos not in ("kept", "all")
        and program.infos == "all"
        and kind.replaces == METHOD
    )


def play(program: Program) -> list[str]:
    """Play it, on Stable-Baselines3's own class as well where that compares."""
    stage = SB3Play(program)
    mistakes = stage.finished(stage.play)
    if has_a_peer(program):
        peer = SB3Play(program, peer=True)
        mistakes += [f"Stable-Baselines3's: {m}" for m in peer.finished(peer.play)]
    return mistakes
