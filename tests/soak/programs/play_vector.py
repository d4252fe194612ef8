"""Plays a program on a Gymnasium vector environment: ours, or Gymnasium's own."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from corral import dropin
from corral.api.gymnasium.make import make
from tests.soak.programs.compare import difference, with_arrays
from tests.soak.programs.kinds import METHOD, NONE, OWN
from tests.soak.programs.play_pool import set_bonus
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import (
    ProgramPlay,
    batch_of,
    errors_for,
    start_errors_for,
)
from tests.soak.programs.truth import ExpectedRow, kept

MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "off": AutoresetMode.DISABLED,
}

FAULT = "a fault"


class VectorPlay(ProgramPlay):
    """Every slot is commanded together, as Gymnasium does it."""

    def __init__(self, program: Program, peer: bool = False) -> None:
        here = program.api == "SyncVectorEnv"
        alone = program.isolate_rng or program.kind.state == OWN
        super().__init__(program, seeded=False, together=here and not alone)
        self.peer = peer
        self.rows: list[ExpectedRow] = []

    def open(self) -> VectorEnv[Any, Any, Any]:
        """The environments of the program."""
        program, mode = self.program, MODES[self.program.autoreset]
        if self.peer:
            return gymnasium.vector.SyncVectorEnv(self.factories, autoreset_mode=mode)
        options = options_of(program)
        options["seed"] = self.root
        if program.api == "make":
            options |= {"backend": program.backend, "autoreset": program.autoreset}
            return make(self.factories, copy=program.copy, **options)
        kind = getattr(dropin, program.api)
        return kind(  # type: ignore[no-any-return]
            self.factories, copy=program.copy, autoreset_mode=mode, **options
        )

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
            self.reset(first=True)
            for _ in range(self.program.steps):
                if not self.turn():
                    break
            self.look_again()
        finally:
            envs.close()

    def turn(self) -> bool:
        """One command to all; False if nothing more can be done."""
        if self.rng.random() < 0.06:
            self.ask()
        over = np.array([slot.over for slot in self.slots])
        failed = any(slot.failed for slot in self.slots)
        if failed or self.rng.random() < 0.04:
            return self.reset()
        if self.program.autoreset == "off" and over.any():
            return self.reset(over)
        return self.step()

    # Commands -------------------------------------------------------------------------

    def reset(self, mask: Any = None, first: bool = False) -> bool:
        """Reset all, or those of a mask."""
        count, rng = self.program.slots, self.rng
        options = {"level": rng.randint(0, 9)} if rng.random() < 0.2 else None
        if mask is not None:
            options = options or {}  # what is left of a dict that had the mask alone
        seed: Any = None
        if first or rng.random() < 0.4:
            seed = rng.getrandbits(20)
            if mask is not None or rng.random() < 0.4:
                seed = [rng.choice((None, seed + 7 * i)) for i in range(count)]
        seeds = [seed + i for i in range(count)] if isinstance(seed, int) else seed
        if isinstance(seed, int):
            for truth in self.slots:
                truth.new_root(seed)
        chosen = range(count) if mask is None else np.flatnonzero(mask).tolist()
        rows: dict[int, ExpectedRow] = {}
        for slot in chosen:
            own = None if seeds is None else seeds[slot]
            rows[slot] = self.slots[slot].reset(own, options)
        given = options if mask is None else {**(options or {}), "reset_mask": mask}
        got = self.called(lambda: self.envs.reset(seed=seed, options=given), rows)
        if got is None:
            return not self.kind.dies
        self.rows = [rows.get(i) or self.rows[i] for i in range(count)]
        self.compare_reset(got, rows)
        return True

    def step(self) -> bool:
        """Step all."""
        items = self.actions(range(self.program.slots))
        mode = self.program.autoreset
        rows = {
            slot: truth.step(items[slot], mode) for slot, truth in enumerate(self.slots)
        }
        batch = self.batch(items)
        got = self.called(lambda: self.stepped(batch), rows)
        if got is None:
            return not self.kind.dies
        self.rows = list(rows.values())
        self.compare_step(got)
        return True

    def stepped(self, batch: Any) -> Any:
        """In one call or in two."""
        if self.peer or self.rng.random() < 0.7:
            return self.envs.step(batch)
        self.envs.step_async(batch)  # type: ignore[attr-defined]
        return self.envs.step_wait()  # type: ignore[attr-defined]

    def called(self, call: Callable[[], Any], rows: dict[int, ExpectedRow]) -> Any:
        """What a call returned; None if it raised what it had to."""
        faults = [row.fault for row in rows.values() if row.fault]
        raises = faults and self.program.on_fault == "raise"
        try:
            got = call()
        except (Exception, SystemExit) as error:
            if not raises:
                raise
            self.unexpected(error, errors_for(faults[-1], own=True))
            return None
        if raises:
            self.missing(faults[0])
        return got

    # Comparing ------------------------------------------------------------------------

    def compare_reset(self, got: Any, rows: dict[int, ExpectedRow]) -> None:
        """Observations of all, infos of those that were reset."""
        obs, infos = got
        choice = self.program.info_choice
        told = self.vector([(s, kept(choice, row).info) for s, row in rows.items()])
        expected = batch_of(self.obs_space, [row.obs for row in self.rows])
        self.keep(lambda: difference(obs, expected, "reset obs"))
        if told is not None:
            self.again(lambda: difference(infos, told, "reset infos"))

    def vector(self, infos: list[tuple[int, dict[str, Any]]]) -> Any:
        """Infos as Gymnasium puts them together; None where it cannot."""
        told: dict[str, Any] = {}
        plain: VectorEnv[Any, Any, Any] = VectorEnv()
        plain.num_envs = self.program.slots
        try:
            for slot, info in infos:
                told = plain._add_info(told, deepcopy(info), slot)
        except (TypeError, ValueError, OverflowError):
            return None
        return told

    def compare_step(self, got: Any) -> None:
        """All that a step returns."""
        obs, rewards, terminations, truncations, infos = got
        rows, choice = self.rows, self.program.info_choice
        infos = without_faults(infos)
        expected = batch_of(self.obs_space, [row.obs for row in rows])
        flags = [(row.reward, row.terminated, row.truncated) for row in rows]
        ours = list(map(list, zip(*flags, strict=True)))
        theirs = [rewards.tolist(), terminations.tolist(), truncations.tolist()]
        self.check(difference(theirs, ours, "rewards, terminations, truncations"))
        each: list[tuple[int, dict[str, Any]]] = []
        for slot, row in enumerate(rows):
            row = kept(choice, row)
            if row.ended and self.program.autoreset == "same_step":
                last: dict[str, Any] = {"final_obs": row.final_obs}
                if row.fault:
                    last["final_info"] = {"fault": FAULT}
                elif row.final_info is not None:
                    last["final_info"] = row.final_info
                each.append((slot, last))
            each.append((slot, {**row.info, "fault": FAULT} if row.fault else row.info))
        told = self.vector(each)
        self.keep(lambda: difference(obs, expected, "obs"))
        if told is not None:
            self.again(lambda: difference(comparable(infos), comparable(told), "infos"))
        if not self.peer:
            valid = [row.valid for row in rows]
            self.check(difference(self.envs.valid.tolist(), valid, "valid"))  # type: ignore[attr-defined]
            started = [row.started for row in rows]
            self.check(difference(self.envs.started.tolist(), started, "started"))  # type: ignore[attr-defined]

    def keep(self, look: Callable[[], str]) -> None:
        """Look again at the end, unless views were asked for."""
        if self.program.copy:
            self.again(look)
        else:
            self.check(look())

    # Questions ------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask all environments something, or change something in them."""
        number = float(self.rng.randint(0, 9))
        way = self.rng.choice(("get", "set", "call"))
        if way == "get":
            got = self.envs.get_attr("bonus")  # type: ignore[attr-defined]
            truth = [s.ask(lambda env: env.unwrapped.bonus) for s in self.slots]
        elif way == "set":
            values = [number + slot for slot in range(self.program.slots)]
            self.envs.set_attr("bonus", values)  # type: ignore[attr-defined]
            for slot, value in zip(self.slots, values, strict=True):
                slot.ask(partial(set_bonus, value=value))
            return
        else:
            got = self.envs.call("add", number, twice=True)  # type: ignore[attr-defined]
            truth = [
                s.ask(lambda env: env.unwrapped.add(number, twice=True))
                for s in self.slots
            ]
        self.check(difference(list(got), truth, way))


def without_faults(infos: dict[str, Any]) -> dict[str, Any]:
    """Infos with a word in the place of each fault."""
    infos = dict(infos)
    if isinstance(infos.get("final_info"), dict):
        infos["final_info"] = without_faults(infos["final_info"])
    if "fault" in infos:
        told = [None if fault is None else FAULT for fault in infos["fault"]]
        infos["fault"] = np.array(told, dtype=object)
    return infos


def comparable(infos: dict[str, Any]) -> dict[str, Any]:
    """Infos whose last observations have arrays where they may have scalars."""
    finals = infos.get("final_obs")
    if finals is None:
        return infos
    return {**infos, "final_obs": [with_arrays(value) for value in finals.tolist()]}


def has_a_peer(program: Program) -> bool:
    """Whether Gymnasium's own class does what is promised here."""
    kind = program.kind
    return (
        kind.fault == NONE
        and kind.forks == "never"
        and (kind.state == OWN or program.api == "SyncVectorEnv")
        and not program.isolate_rng
        and not kind.reuses_buffer
        and kind.infos in ("none", "scalars", "arrays", "nested")
        and kind.action != "nested"  # Gymnasium cannot iterate over an empty Dict
        and program.infos == "all"
        and kind.replaces == METHOD
    )


def play(program: Program) -> list[str]:
    """Play it, on Gymnasium's own class as well where there is one to compare with."""
    stage = VectorPlay(program)
    mistakes = stage.finished(stage.play)
    if has_a_peer(program):
        peer = VectorPlay(program, peer=True)
        mistakes += [f"Gymnasium's: {one}" for one in peer.finished(peer.play)]
    return mistakes
