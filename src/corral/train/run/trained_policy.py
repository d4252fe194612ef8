"""The policy of a run, to act in envs of your own.

policy = corral.load_policy("runs/cartpole/2026-01-31_12-00-00")
obs, info = env.reset()
policy.reset()
obs, reward, terminated, truncated, info = env.step(policy.act(obs))
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space

from corral.api.shared_policy.policy import SharedPolicy
from corral.core import Step
from corral.engine.layout.infos import Infos
from corral.engine.tree import mapped
from corral.engine.worker.seeds import acting_seeds
from corral.errors import SpaceMismatch
from corral.learners.shared.learner import agent_norm
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.policy_rng import RowGenerators, SlotGenerators
from corral.rollouts.space_rows import OBJECT_DTYPE, SpaceParts
from corral.train.recipes.config import RunConfig
from corral.train.run.loaded_run import LoadedRun


class TrainedPolicy:
    """Acts as the run's policy does, scaling of observations included.

    Attributes:
        config: Every setting of the run.
        checkpoint: The file that it was loaded from.
        observation_space: Of one env; of one agent, where agents share the policy.
        action_space: Likewise.
    """

    def __init__(
        self, policy: Any, obs_norm: ObsNorm | None, run: LoadedRun, seed: int = 0
    ) -> None:
        # Where agents share the policy, it is that of one agent.
        shared = isinstance(policy, SharedPolicy)
        spaces: Any = policy.single[1] if shared else run.parts.pool.spec
        if shared:
            obs_norm = agent_norm(policy, obs_norm)
            policy = policy.single[0]
        self.config: RunConfig = run.config
        self.checkpoint = run.path
        self.observation_space: Space[Any] = spaces.observation_space
        self.action_space: Space[Any] = spaces.action_space
        self._variants = {True: policy.deterministic(), False: policy.stochastic()}
        self._obs_norm = obs_norm
        self._parts = SpaceParts(spaces.observation_space)
        self._seed = seed
        self._rows = 0
        self.reset()

    @classmethod
    def of(cls, run: LoadedRun, seed: int = 0) -> TrainedPolicy:
        """Copy the policy of a run, which may be closed afterwards."""
        parts = run.parts
        return cls(
            parts.learner.policy.frozen(), copy.deepcopy(parts.obs_norm), run, seed
        )

    def reset(self) -> None:
        """Forget the episode: call it when one begins, if the policy has a memory."""
        self._carry: Any = None
        self._rows = 0

    def act(self, obs: Any, deterministic: bool = True, reward: Any = 0.0) -> Any:
        """Return the action for an observation, or actions for a batch of them.

        Args:
            obs: as one env returns it, or a batch with the envs as first axis.
            deterministic: take the most likely action; False draws one.
            reward: of the previous step, for SAC and TD3 with a memory.
        """
        single = self._is_single(obs)
        batch = self._batch_of_one(obs) if single else obs
        rows = 1 if single else len(self._parts.parts[0].of(batch))
        if rows != self._rows:
            self._begin(rows)
        step = self._step(batch, rows, reward)
        policy, slots = self._variants[deterministic], np.arange(rows)
        rng = RowGenerators(self._generators, slots)
        decision = policy.act(step, self._carry, rng)
        self._carry = decision.carry
        action = decision.action
        return mapped(lambda part: part[0], action) if single else action

    def _begin(self, rows: int) -> None:
        self._rows = rows
        initial = getattr(self._variants[True], "initial_carry", None)
        self._carry = None if initial is None else initial(rows)
        self._generators = SlotGenerators(rows)
        self._seed += 1  # another episode draws other actions
        self._generators.start(range(rows), acting_seeds(self._seed, rows))
        self._started = True

    def _step(self, obs: Any, rows: int, reward: Any) -> Step:
        flags = np.zeros(rows, bool)
        started = np.full(rows, self._started)
        self._started = False
        numbers = np.broadcast_to(np.asarray(reward, np.float64), rows)
        scaled = obs if self._obs_norm is None else self._obs_norm(obs)
        return Step(
            slots=np.arange(rows),
            obs=scaled,
            reward=numbers,
            terminated=flags,
            truncated=flags,
            started=started,
            valid=~flags,
            final_obs=scaled,
            episode_return=np.zeros(rows),
            episode_length=np.zeros(rows, np.int32),
            seed=np.full(rows, -1),
            infos=Infos([], {}),
            final_infos={},
        )

    # One observation, or many ---------------------------------------------------------

    def _is_single(self, obs: Any) -> bool:
        # By a part of fixed size, if there is one: a text has no shape to compare.
        part = min(self._parts.parts, key=lambda one: one.dtype == OBJECT_DTYPE)
        try:
            value = part.of(obs)
            shape = np.shape(value)
        except (KeyError, IndexError, TypeError, ValueError):
            value = shape = None
        if part.dtype == OBJECT_DTYPE and value is not None:
            return isinstance(value, str) or self.observation_space.contains(obs)
        wanted = part.shape
        if shape == wanted:
            return True
        if shape is not None and shape[1:] == wanted and len(shape) == 1 + len(wanted):
            return False
        raise SpaceMismatch(
            f"the observation{self._place(part)} has shape {shape}; the policy of "
            f"{self.checkpoint} takes one of shape {wanted}, or a batch with the envs "
            "as first axis"
        )

    def _place(self, part: Any) -> str:
        return f"[{part.name!r}]" if part.name else ""

    def _batch_of_one(self, obs: Any) -> Any:
        parts = self._parts
        return parts.stacked([[part.of(obs) for part in parts.parts]])


@contextmanager
def load_run(
    run: str | os.PathLike[str], which: str, trust: bool, device: str = "cpu"
) -> Iterator[LoadedRun]:
    """Open a run with one env, for its policy and its spaces."""
    with warnings.catch_warnings():
        # Of Stable-Baselines3: one env fills no minibatch, and nothing is learnt.
        warnings.filterwarnings("ignore", message="You have specified a mini-batch")
        settings = {"device": device}
        loaded = LoadedRun(Path(run), which, 1, trust=trust, settings=settings)
    with loaded:
        yield loaded
