"""Plays a program on `corral.make_multi`, with agents that act at once or in turns."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from corral.api.pettingzoo.env import make_multi
from tests.soak.multi_agent_loop import (
    AgentsEnvLoop,
    ParallelLoop,
    TurnLoop,
    assert_equal,
    vector_actions,
)
from tests.soak.programs.compare import difference
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import ProgramPlay
from tests.soak.programs.team import AgentsInTurns, ParallelAgents, TeamEnv


class TeamPlay(ProgramPlay):
    """Every slot beside a loop of its own."""

    def play(self) -> None:
        """All of it."""
        program, steps = self.program, self.program.steps
        kind, loop = self.sort()
        make = partial(kind, program.kind)
        rows = [self.by_hand(loop, make, slot) for slot in range(program.slots)]
        envs = make_multi(
            make,
            program.slots,
            backend=program.backend,
            autoreset=program.autoreset,  # type: ignore[arg-type]
            copy=program.copy,
            **options_of(program),
        )
        try:
            self.follow(envs, rows, steps)
            self.look_again()
        except AssertionError as error:
            self.check(f"{error}" or "an agent's row")
        finally:
            envs.close()

    def sort(self) -> tuple[type[TeamEnv], type[AgentsEnvLoop]]:
        """Environments and loops of the program's sort."""
        if self.program.api == "turns":
            return AgentsInTurns, TurnLoop
        return ParallelAgents, ParallelLoop

    def by_hand(self, loop: type[AgentsEnvLoop], make: Any, slot: int) -> list[Any]:
        """The rows of one slot; infos are copied, since their env keeps them."""
        mode, seed = self.program.autoreset, self.root
        rows = copying(loop)(make(), slot, seed, mode).rows(self.program.steps)
        return list(rows)

    def follow(self, envs: Any, rows: list[list[Any]], steps: int) -> None:
        """Step as the loops were stepped, and compare all that is told."""
        count = self.program.slots
        nothing = {agent: np.zeros(count) for agent in envs.agents}
        obs, _ = envs.reset(seed=self.root)
        self.moment(
            envs, [row[0] for row in rows], (obs, nothing, nothing, nothing, {})
        )
        for time in range(steps):
            now = [row[time + 1] for row in rows]
            self.moment(envs, now, envs.step(vector_actions(envs, time)))
            over = np.flatnonzero(envs.ended)
            if envs.autoreset == "off" and len(over):
                seeds = [rows[slot][time + 1].again.seed for slot in over]
                obs, _ = envs.reset(seeds, slots=over)
                now = [row.again or row.later() for row in now]
                self.moment(envs, now, (obs, nothing, nothing, nothing, {}))

    def moment(self, envs: Any, rows: list[Any], returned: Any) -> None:
        """Everything that is told of one step, now and later on."""
        assert_equal(envs, rows, returned)
        infos = envs.last.step.infos
        for slot, row in enumerate(rows):
            told, expected = infos.of(slot), deepcopy(row.infos)
            self.again(lambda t=told, e=expected: difference(t, e, "infos"))  # type: ignore[misc]


def copying(loop: type[AgentsEnvLoop]) -> Any:
    """The loop, on an environment whose infos are copied when they are told."""

    class Copied(loop):  # type: ignore[valid-type,misc]
        def begin(self) -> Any:
            return deepcopy(super().begin())

        def move(self, time: int) -> Any:
            return deepcopy(super().move(time))

    return Copied


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = TeamPlay(program)
    return stage.finished(stage.play)
