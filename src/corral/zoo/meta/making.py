"""Envs for meta-RL under the names that pomdp-baselines and its forks use.

env = corral.meta.make_env("AntDir-v0", episodes_per_task=2, seed=0,
                           num_train_tasks=50, num_eval_tasks=20)
obs = env.reset(task=env.train_tasks[0])
obs, reward, done, info = env.step(action)

workers = corral.meta.make_parallel_env("AntDir-v0", 2, num_workers=8, seed=0)
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.engine.adapters.env_names import resolve_env
from corral.engine.adapters.trials import LIMIT, Convention, Trials, step_limit
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.rollouts.task_tables import TaskTable, task_table
from corral.zoo import ENVS
from corral.zoo.meta.parallel_env import ParallelEnvManager

EnvId = str | Callable[..., Any]


class TaskEnv:
    """A trial env with the interface of pomdp-baselines' `VariBadWrapper`.

    `reset(task=...)` returns an observation, `step` four values.
    Actions are in -1 to 1.
    """

    def __init__(self, factory: Callable[[], Any], table: TaskTable | None) -> None:
        # Makes another env like this one, for pools.
        self.factory = factory
        self.env: Any = factory()
        self.action_space = self.env.action_space
        self.observation_space = self.env.observation_space
        self.train_tasks = list(table.train) if table else []
        self.eval_tasks = list(table.evaluation) if table else []
        self.n_tasks = len(self.train_tasks) + len(self.eval_tasks) or None
        self.horizon_bamdp = horizon_of(self.env)
        if not hasattr(self.unwrapped, LIMIT):  # their evaluations read it there
            setattr(self.unwrapped, LIMIT, step_limit(self.env))
        self._seed: int | None = None

    @property
    def unwrapped(self) -> Any:
        """The env inside all wrappers."""
        inner = self.env.unwrapped
        return inner.env if isinstance(inner, OldGymEnv) else inner

    def seed(self, seed: int | None) -> None:
        """Use this seed for the next reset."""
        self._seed = seed

    def reset(self, task: Any = None) -> NDArray[Any]:
        """Start a trial, of this task if one is given."""
        if task is not None:
            self.env.set_task(task)
        seed, self._seed = self._seed, None
        observation, _ = self.env.reset(seed=seed)
        return np.asarray(observation)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Return observation, reward, done and info."""
        return old_step(*self.env.step(action))

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def old_step(
    observation: Any, reward: Any, terminated: bool, truncated: bool, info: Any
) -> tuple[Any, Any, bool, dict[str, Any]]:
    """Return the four values of old gym; a time limit is in the info."""
    if truncated and not terminated:
        info = {**info, "TimeLimit.truncated": True}
    return observation, reward, bool(terminated or truncated), info


def make_env(
    env_id: EnvId,
    episodes_per_task: int,
    seed: int | None = None,
    oracle: bool = False,
    *,
    num_train_tasks: int | None = None,
    num_eval_tasks: int | None = None,
    convention: Convention = "corral",
    **kwargs: Any,
) -> TaskEnv:
    """Make one env whose episodes are trials.

    Args:
        env_id: an id of pomdp-baselines (`corral.zoo.ENVS`), of Gymnasium,
            "module:function", or a function.
        episodes_per_task: episodes of one trial.
        seed: of the first reset and of the task table.
        oracle: append the task to the observation.
        num_train_tasks: tasks to train on, in `train_tasks` (default: no table).
        num_eval_tasks: tasks to test on, in `eval_tasks`.
        convention: "varibad" acts once on the last observation of inner episodes.
        **kwargs: for the env.
    """
    factory = _factory(env_id, episodes_per_task, oracle, convention, kwargs)
    env = TaskEnv(factory, _table(factory, num_train_tasks, num_eval_tasks, seed))
    env.seed(seed)
    if seed is not None:
        env.action_space.seed(seed)
    return env


def make_parallel_env(
    env_id: EnvId,
    episodes_per_task: int,
    num_workers: int,
    seed: int | None = None,
    oracle: bool = False,
    *,
    num_train_tasks: int | None = None,
    num_eval_tasks: int | None = None,
    convention: Convention = "corral",
    pool: dict[str, Any] | None = None,
    tagged: bool = False,
    **kwargs: Any,
) -> ParallelEnvManager:
    """Make `num_workers` such envs that run in parallel.

    The arguments are those of `make_env`, and:

    Args:
        env_id: see `make_env`.
        episodes_per_task: see `make_env`.
        num_workers: number of envs. Corral chooses the processes that run them.
        seed: root of all seeds.
        oracle: see `make_env`.
        num_train_tasks: see `make_env`; equal seeds give equal tables.
        num_eval_tasks: see `make_env`.
        convention: see `make_env`.
        pool: options of the `corral.Pool` underneath, e.g. `{"step_timeout": 5.0}`.
        tagged: answer in pairs: ("obs", observation), ("transition", (obs, reward,
            done, info)).
        **kwargs: for the envs.
    """
    if num_workers < 1:
        raise OptionError(f"num_workers is {num_workers}; it must be >= 1")
    factory = _factory(env_id, episodes_per_task, oracle, convention, kwargs)
    table = _table(factory, num_train_tasks, num_eval_tasks, seed)
    options = {"seed": 0 if seed is None else seed, **(pool or {})}
    return ParallelEnvManager(Pool(factory, num_workers, **options), table, tagged)


def _factory(
    env_id: EnvId,
    episodes: int,
    oracle: bool,
    convention: Convention,
    kwargs: dict[str, Any],
) -> Callable[[], Any]:
    if isinstance(env_id, str):
        inner: Any = resolve_env(ENVS.get(env_id, env_id), kwargs).factory
    else:
        inner = functools.partial(env_id, **kwargs)
    return functools.partial(_trials, inner, episodes, oracle, convention)


def _table(
    factory: Callable[[], Any], train: int | None, evaluation: int | None, seed: Any
) -> TaskTable | None:
    """Draw the tasks; None if none were asked for."""
    if not (train or evaluation):
        return None
    with closing(factory()) as env:
        return task_table(env, train or 0, evaluation or 0, seed or 0)


def _trials(
    make: Callable[[], Any], episodes: int, oracle: bool, convention: Convention
) -> Trials:
    env = make()
    if not isinstance(env, gymnasium.Env):
        env = OldGymEnv(env)
    if isinstance(env.action_space, gymnasium.spaces.Box):
        one = env.action_space.dtype.type(1)
        env = gymnasium.wrappers.RescaleAction(env, -one, one)
        env = gymnasium.wrappers.TransformAction(env, _clipped, env.action_space)
    return MarkedTrials(env, episodes, oracle, convention=convention)


class MarkedTrials(Trials):
    """Says in each info whether an inner episode has ended, as `VariBadWrapper`."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env; start its next episode where one ends."""
        *result, terminated, truncated, info = super().step(action)
        ended = terminated or truncated or not self._lengths[-1]
        return *result, terminated, truncated, {**info, "done_mdp": ended}


def _clipped(action: NDArray[Any]) -> NDArray[Any]:
    clipped: NDArray[Any] = np.clip(action, -1.0, 1.0)
    return clipped


def horizon_of(env: Any) -> int | None:
    """Return the most steps of a trial, if the env has a time limit."""
    limit = step_limit(env)
    return None if limit is None else limit * int(env.episodes)


class OldGymEnv(gymnasium.Env[Any, Any]):
    """An env of old gym (`reset` returns an observation, `step` four values).

    Its `reset_task` or `set_task`, and other attributes, stay within reach.
    """

    def __init__(self, env: Any) -> None:
        if not all(hasattr(env, name) for name in ("reset", "step")):
            raise OptionError(f"{env!r:.80} is not an env: it has no reset and step")
        warnings.warn(
            f"{type(env).__name__} has the interface of old gym; Corral translates it. "
            "Derive it from gymnasium.Env to keep terminated and truncated apart",
            stacklevel=2,
        )
        self.env = env
        self.observation_space = _space(env.observation_space)
        self.action_space = _space(env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        return self.env.reset(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env; a time limit in its info is a truncation."""
        observation, reward, done, info = self.env.step(action)
        truncated = bool(done and info.get("TimeLimit.truncated", False))
        return observation, float(reward), bool(done and not truncated), truncated, info

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether this env or the one of old gym has the attribute."""
        return hasattr(self, name) or hasattr(self.env, name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return the attribute of either."""
        return getattr(self if hasattr(self, name) else self.env, name)

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def _space(space: Any) -> gymnasium.Space[Any]:
    """Return a space of gym as one of Gymnasium."""
    if isinstance(space, gymnasium.Space):
        return space
    if hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    return gymnasium.spaces.Box(space.low, space.high, dtype=space.dtype)
