"""Several episodes of one task as one episode: the trials of meta-RL.

    env episodes   ┌─ 1 ─────────┐┌─ 2 ──────────┐
    observations   o o o ...   o  o' o' o' ...    o'
    flag           0 0 0 ...      1  0  0 ...     1       1 where an episode begins anew
    trial          starts                         ends with the env's own flags

The wrapper keeps the inner ends to itself, so everything that works with episodes works
with trials: `collect`, `run_episodes`, `evaluate`, restarts and replays.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.adapters.multi_agent import layer_with
from corral.engine.adapters.task_delivery import TaskBy, TaskDelivery
from corral.engine.keywords import check_choice, check_count
from corral.errors import OptionError

Convention = Literal["corral", "varibad"]
# Keys of a trial's last info: `(episodes,)` arrays.
RETURNS, LENGTHS = "trial_returns", "trial_lengths"
# Where Gymnasium's TimeLimit has its limit.
LIMIT = "_max_episode_steps"


class Trials(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env whose episodes are trials: `episodes` episodes of one task.

    The observation is followed by the task (`oracle`), by a flag (more than one
    episode), and by the previous action and reward (`previous`). The flag is 1 for the
    first observation of the second and later episodes of a trial.

    At an inner end, `step` returns the first observation of the next episode; neither
    `terminated` nor `truncated` is set. The last inner end passes on the env's flags;
    its info has `trial_returns` and `trial_lengths`, one entry per episode.

    Args:
        env: a Gymnasium env with a Box as observation space. Its episodes must end:
            use `gymnasium.wrappers.TimeLimit`.
        episodes: episodes per trial.
        oracle: append the task, which the env's `get_task()` returns as numbers.
        previous: append the previous action and its reward, as RL² needs; zeros at the
            start of a trial.
        convention: "varibad" returns the last observation of an inner episode with flag
            1 instead, and the next episode's first one only in `info["start_state"]`.
            The policy then acts once per inner episode on an observation that is over:
            one action without effect on what it sees.
        task_by: how the env is told its task; see `TaskDelivery`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        episodes: int = 2,
        oracle: bool = False,
        *,
        previous: bool = False,
        convention: Convention = "corral",
        task_by: TaskBy | None = None,
    ) -> None:
        super().__init__(env)
        check_count("episodes", episodes)
        check_choice("convention", convention, get_args(Convention))
        self.episodes = episodes
        self._oracle = oracle
        self._previous = previous
        self._varibad = convention == "varibad"
        self._deliver = TaskDelivery(env, task_by)
        self._task: Any = NO_TASK
        # Of the last trial that began.
        self._task_before: Any = NO_TASK
        self._options: dict[str, Any] | None = None
        self._zero_action = np.zeros(spaces.flatdim(env.action_space))
        self.observation_space = self._extended(env.observation_space)
        self._returns: list[float] = []
        self._lengths: list[int] = []

    def _extended(self, space: spaces.Space[Any]) -> spaces.Box:
        if not isinstance(space, spaces.Box):
            raise OptionError(
                f"the observation space is {space}; Trials appends numbers to a Box. "
                "Use gymnasium.wrappers.FlattenObservation first"
            )
        bounds = [(np.ravel(space.low), np.ravel(space.high))]
        if self._oracle:
            bounds.append(_unbounded(len(self._known_task())))
        if self.episodes > 1:
            bounds.append((np.zeros(1), np.ones(1)))
        if self._previous:
            bounds.append(_unbounded(len(self._zero_action) + 1))
        low, high = (
            np.concatenate(ends).astype(space.dtype)
            for ends in zip(*bounds, strict=True)
        )
        return spaces.Box(low, high, dtype=space.dtype.type)

    def _known_task(self) -> NDArray[Any]:
        if not self.env.has_wrapper_attr("get_task"):
            raise OptionError(
                f"oracle=True appends the task, and {self.env} has no get_task(); add "
                "a method that returns the task as numbers"
            )
        return np.ravel(self.env.get_wrapper_attr("get_task")())

    # Episodes -------------------------------------------------------------------------

    def set_task(self, task: Any) -> None:
        """Use this task from the next trial on."""
        self._task = task

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a trial."""
        self._options = options
        self._returns, self._lengths = [0.0], [0]
        try:
            observation, info = self._begin(seed)
        except BaseException:
            self._task = self._task_before  # the env may have rejected the new one
            raise
        self._task_before = self._task
        return self._seen(observation, 0.0, self._zero_action, 0.0), info

    def _begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        more = self._deliver(self._task, self._options)
        return self.env.reset(seed=seed, **more)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env; start its next episode where one ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._returns[-1] += float(reward)
        self._lengths[-1] += 1
        taken = spaces.flatten(self.env.action_space, action) if self._previous else ()
        flag = 0.0
        if terminated or truncated:
            flag = 1.0
            if len(self._returns) == self.episodes:
                info = {**info, **self._summary()}
            else:
                observation, info = self._next_episode(observation, info)
                terminated = truncated = False
        seen = self._seen(observation, flag, taken, float(reward))
        return seen, reward, terminated, truncated, info

    def _next_episode(
        self, last: Any, info: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        self._returns.append(0.0)
        self._lengths.append(0)
        first, _ = self._begin(None)
        if self._varibad:
            return last, {**info, "start_state": first}
        return first, info

    def _summary(self) -> dict[str, Any]:
        return {RETURNS: np.array(self._returns), LENGTHS: np.array(self._lengths)}

    def _seen(self, observation: Any, flag: float, action: Any, reward: float) -> Any:
        parts: list[Any] = [np.ravel(observation)]
        if self._oracle:
            parts.append(self._known_task())
        if self.episodes > 1:
            parts.append([flag])
        if self._previous:
            parts += [np.ravel(action), [reward]]
        return np.concatenate(parts).astype(self.observation_space.dtype)


def _unbounded(count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.full(count, -np.inf), np.full(count, np.inf)


def step_limit(env: Any) -> int | None:
    """The steps of an episode's time limit, if the env has one."""
    limit = getattr(layer_with(env, LIMIT), LIMIT, None)
    return None if limit is None else int(limit)
