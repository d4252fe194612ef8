"""Plays a program on `corral.make_async`: batches of the first that are ready."""

from __future__ import annotations

from typing import Any

from corral.api.async_env import make_async
from corral.core import Step
from corral.errors import CorralError
from tests.soak.programs.compare import difference
from tests.soak.programs.play_pool import PoolPlay
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import start_errors_for


class AsyncPlay(PoolPlay):
    """The pool's rows, by way of `send` and `recv` of the API."""

    def play(self) -> None:
        """All of it."""
        program = self.program
        self.size = self.rng.randint(1, program.slots)
        options: dict[str, Any] = {
            "backend": program.backend,
            "autoreset": program.autoreset,
            "seed": self.root,
            **options_of(program),
        }
        try:
            envs = make_async(self.factories, batch_size=self.size, **options)
        except CorralError as error:
            if not self.cannot_start:
                raise
            self.unexpected(error, start_errors_for(self.kind.fault, own=False))
            return
        with envs:
            if self.cannot_start:
                self.missing("construct")
                return
            self.envs, self.pool = envs, envs.pool
            self.left = program.steps * program.slots
            envs.async_reset(seed=self.root)
            for slot, truth in enumerate(self.slots):
                truth.new_root(self.root)
                self.expect(slot, truth.reset())
            while self.left > 0 and not self.broken:
                self.receive()
                if not self.broken:
                    self.go_on()
            self.look_again()

    def go_on(self) -> None:
        """Send to whatever has nothing under way."""
        idle = [s for s in range(self.program.slots) if s not in self.expected]
        mode = self.program.autoreset
        off = mode == "off"
        over = [s for s in idle if self.slots[s].failed or (off and self.slots[s].over)]
        self.left -= len(idle)
        if over:
            self.envs.async_reset(over)
            for slot in over:
                self.expect(slot, self.slots[slot].reset())
        steps = [s for s in idle if s not in over]
        if steps:
            items = self.actions(steps)
            self.envs.send(self.batch(items), steps)
            for slot, item in zip(steps, items, strict=True):
                self.expect(slot, self.slots[slot].step(item, mode))

    def received(self) -> Step:
        """A batch, all of which stands in its Step as well."""
        obs, rewards, terminations, truncations, _ = self.envs.recv()
        step = self.envs.last
        self.check(difference(len(step), self.size, "the batch's size"))
        same = obs is step.obs and rewards is step.reward
        same &= terminations is step.terminated and truncations is step.truncated
        self.check("" if same else "the batch is not that of envs.last")
        return step


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = AsyncPlay(program)
    return stage.finished(stage.play)
