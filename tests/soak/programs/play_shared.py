"""Plays a program on `corral.make_shared_policy`: every agent of every slot a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from corral.api.shared_policy.make import make_shared_policy
from tests.soak.multi_agent_loop import LoopRow, ParallelLoop, chosen
from tests.soak.programs.compare import difference
from tests.soak.programs.play_team import copying
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import ProgramPlay
from tests.soak.programs.team import EYES, OBSERVATION_SPACES, ParallelAgents


class SharedPlay(ProgramPlay):
    """Rows of agents beside one loop for each slot."""

    def play(self) -> None:
        """All of it, as Gymnasium or as Stable-Baselines3 has it."""
        program = self.program
        make = partial(ParallelAgents, program.kind, alike=True)
        self.loops = [
            copying(ParallelLoop)(make(), slot, self.root, "same_step")
            for slot in range(program.slots)
        ]
        self.rows = [loop.rows(program.steps) for loop in self.loops]
        api: Any = self.rng.choice(("gymnasium", "sb3"))
        options: dict[str, Any] = {"backend": program.backend, **options_of(program)}
        envs = make_shared_policy(
            make, program.slots, api=api, seed=self.root, **options
        )
        try:
            getattr(self, f"follow_{api}")(envs)
            self.look_again()
        finally:
            envs.close()

    def moves(self, time: int) -> Any:
        """What every row does; of those that are not there it is ignored."""
        items = []
        for slot in range(self.program.slots):
            masks = self.rows[slot][time].masks
            for place, agent in enumerate(EYES):
                space = self.loops[slot].env.action_space(agent)
                items.append(chosen(space, masks.get(agent), slot, time, place))
        return np.array(items)

    def follow_gymnasium(self, envs: Any) -> None:
        """As a VectorEnv."""
        obs, _ = envs.reset(seed=self.root)
        self.look(obs, 0)
        for time in range(self.program.steps):
            got = envs.step(self.moves(time))
            obs, rewards, terminations, truncations, infos = got
            self.look(obs, time + 1)
            valid = [a in before.alive for before, _, a in self.moments(time)]
            self.check(difference(envs.valid.tolist(), valid, "valid"))
            self.check(difference(rewards.tolist(), self.earned(time), "rewards"))
            moments = self.moments(time)
            ends = [(a in row.terminated, a in row.truncated) for _, row, a in moments]
            told = list(zip(terminations.tolist(), truncations.tolist(), strict=True))
            self.check(difference(told, ends, "terminations, truncations"))
            self.finals(infos.get("final_obs"), time)

    def follow_sb3(self, envs: Any) -> None:
        """As a VecEnv."""
        self.look(envs.reset(), 0)
        for time in range(self.program.steps):
            obs, rewards, dones, infos = envs.step(self.moves(time))
            self.look(obs, time + 1)
            earned = np.array(self.earned(time), np.float32).tolist()
            self.check(difference(rewards.tolist(), earned, "rewards"))
            ends = [self.ended(row, a) for _, row, a in self.moments(time)]
            self.check(difference(dones.tolist(), ends, "dones"))
            self.finals([info.get("terminal_observation") for info in infos], time)

    def moments(self, time: int) -> list[tuple[LoopRow, LoopRow, str]]:
        """Of every row: its slot before and after a step, and its agent."""
        return [
            (rows[time], rows[time + 1], agent) for rows in self.rows for agent in EYES
        ]

    def ended(self, row: LoopRow, agent: str) -> bool:
        """Whether an agent's part ended."""
        return agent in row.terminated or agent in row.truncated

    def earned(self, time: int) -> list[float]:
        """What each row got."""
        return [
            row.rewards[agent] if agent in before.alive else 0.0
            for before, row, agent in self.moments(time)
        ]

    def look(self, obs: Any, time: int) -> None:
        """What every row sees; zeros where nobody is."""
        nothing = np.zeros((2, 3), np.uint8)
        expected = [
            rows[time].obs.get(agent, nothing) for rows in self.rows for agent in EYES
        ]
        truth = np.stack(expected).astype(OBSERVATION_SPACES["eye"].dtype)
        self.again(lambda: difference(obs, truth, f"obs {time}"))

    def finals(self, finals: Any, time: int) -> None:
        """The last observations of those whose part ended."""
        for place, (_, row, agent) in enumerate(self.moments(time)):
            if self.ended(row, agent):
                got = None if finals is None else finals[place]
                where = f"final_obs of row {place}"
                self.check(difference(got, row.final_obs[agent], where))


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = SharedPlay(program)
    return stage.finished(stage.play)
