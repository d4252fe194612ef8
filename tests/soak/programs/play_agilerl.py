"""Plays a program on AgileRL's vector environment, where AgileRL is installed.

What one environment has to look like is worked out by AgileRL's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from agilerl.vector.pz_async_vec_env import process_transition

from corral import dropin
from tests.soak.multi_agent_loop import chosen
from tests.soak.programs.compare import difference
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import ProgramPlay
from tests.soak.programs.team import ParallelAgents

NAMES = ["observation", "reward", "terminated", "truncated", "info"]


class AgilePlay(ProgramPlay):
    """Every slot beside what AgileRL's worker does with one environment."""

    def play(self) -> None:
        """All of it."""
        count = self.program.slots
        make = partial(ParallelAgents, self.program.kind)
        envs = dropin.AsyncPettingZooVecEnv([make] * count, **options_of(self.program))
        try:
            loops = [self.by_hand(make(), slot) for slot in range(count)]
            self.compare(envs.reset(seed=self.root), [next(loop) for loop in loops])
            for time in range(self.program.steps):
                got = envs.step(self.moves(envs, time))
                self.compare(got, [next(loop) for loop in loops])
            self.look_again()
        finally:
            envs.close()

    def moves(self, envs: Any, time: int) -> dict[str, Any]:
        """What everybody does, there or not."""
        return {
            agent: np.stack(
                [
                    self.move(envs, agent, slot, time)
                    for slot in range(self.program.slots)
                ]
            )
            for agent in envs.agents
        }

    def move(self, envs: Any, agent: str, slot: int, time: int) -> Any:
        """What one of them does."""
        place = list(envs.possible_agents).index(agent)
        space = envs.single_action_space(agent)
        return chosen(space, None, slot, time, place)

    def by_hand(self, env: Any, slot: int) -> Iterator[Any]:
        """What AgileRL makes of one environment, step by step."""
        agents = env.possible_agents
        observed = {agent: env.observation_space(agent) for agent in agents}
        first = deepcopy(env.reset(seed=self.root + slot))
        yield process_transition(first, observed, ["observation", "info"], agents)
        for time in range(self.program.steps):
            actions = {
                agent: chosen(
                    env.action_space(agent), None, slot, time, agents.index(agent)
                )
                for agent in env.agents
            }
            values = list(deepcopy(env.step(actions)))
            _, _, terminated, truncated, _ = values
            if all(terminated[agent] or truncated[agent] for agent in terminated):
                values[0], values[4] = deepcopy(env.reset())
            yield process_transition(tuple(values), observed, NAMES, agents)

    def compare(self, got: Any, expected: list[Any]) -> None:
        """All that is told of a step, but for infos, slot by slot."""
        for slot, told in enumerate(expected):
            for name, ours, theirs in zip(NAMES, got[:-1], told[:-1], strict=False):
                for agent in ours:
                    where = f"slot {slot}, {agent}: {name}"
                    self.check(self.same(ours[agent], theirs[agent], slot, where))

    def same(self, ours: Any, theirs: Any, slot: int, where: str) -> str:
        """Where a value is not AgileRL's; zeros where that has NaN for integers."""
        if isinstance(theirs, dict):
            found = (self.same(ours[key], theirs[key], slot, where) for key in theirs)
            return next(filter(None, found), "")
        value, expected = np.asarray(ours[slot]), np.asarray(theirs)
        if expected.dtype.kind == "f" and np.isnan(expected).all():
            nothing = (
                np.isnan(value).all() if value.dtype.kind == "f" else not value.any()
            )
            return "" if nothing else f"{where} is {value}, and nobody is there"
        expected = expected.reshape(value.shape).astype(value.dtype)
        return difference(value, expected, where)


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = AgilePlay(program)
    return stage.finished(stage.play)
