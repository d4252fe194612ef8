"""Normalisation of observations and rewards with running means and variances.

They change between two rollouts and never within one: all rows of a rollout have the
same scale, and rollouts do not depend on the order in which results arrive. A number
that is not finite is refused, with the env that returned it, before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from corral.engine.adapters.team import STATE_KEY, TeamSpace
from corral.errors import OptionError, TrainingDiverged
from corral.rollouts.space_rows import SpacePart, SpaceParts

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
CLIP = 10.0
EPSILON = 1e-8


class RunningNorm:
    """Mean and variance of all values so far, in float64.

    >>> norm = RunningNorm((2,))
    >>> norm.update(np.array([[1.0, 0.0], [3.0, 0.0]]))
    >>> norm.mean.tolist(), norm.variance.tolist(), norm.count
    ([2.0, 0.0], [1.0, 0.0], 2)
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.shape = shape
        self.count = 0
        self.mean: Floats = np.zeros(shape)
        # 1 before the first update.
        self.variance: Floats = np.ones(shape)

    def update(self, values: NDArray[Any]) -> None:
        """Add a batch, `(count, *shape)`."""
        count = len(values)
        if not count:
            return
        batch = np.asarray(values, np.float64)
        mean, variance = batch.mean(axis=0), batch.var(axis=0)
        total = self.count + count
        share = count / total
        away = mean - self.mean
        between = away * away * share * (1.0 - share)
        self.variance = self.variance * (1.0 - share) + variance * share + between
        self.mean = self.mean + away * share
        self.count = total

    @property
    def scale(self) -> Floats:
        """One over the standard deviation."""
        return np.asarray(1.0 / np.sqrt(self.variance + EPSILON))

    def state_dict(self) -> dict[str, Any]:
        """The state to save with a checkpoint."""
        mean, variance = self.mean.copy(), self.variance.copy()
        return {"count": self.count, "mean": mean, "variance": variance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        mean = np.array(state["mean"], np.float64)
        if mean.shape != self.shape:
            raise OptionError(
                f"the saved mean has shape {mean.shape}; expected {self.shape}. It was "
                "saved for another space"
            )
        self.count = int(state["count"])
        self.mean, self.variance = mean, np.array(state["variance"], np.float64)


class ObsNorm:
    """Scales observations to mean 0 and variance 1; float32, clipped.

    Only floating-point leaves are scaled. Of a team, what the agents of a group see has
    one scale, which is learnt from those that are alive.

    Args:
        space: the observation space of one env.
        clip: largest absolute value of the result.
    """

    def __init__(self, space: Space[Any], *, clip: float = CLIP) -> None:
        self._space = SpaceParts(space)
        self._of_team = isinstance(space, TeamSpace)
        self.clip = float(_positive(clip))
        # By the leaf's path in the space.
        self.norms = {
            part.name: RunningNorm(part.shape[1:] if self._of_team else part.shape)
            for part in self._space.parts
            if part.dtype.kind == "f" and (not self._of_team or _is_seen(part))
        }
        # Of a team, by group: what its agents see.
        groups: Any = space.spaces if isinstance(space, TeamSpace) else {}
        self._seen = {
            name: SpaceParts(group["obs"])
            for name, group in groups.items()
            if name != STATE_KEY
        }
        self._refresh()

    def _refresh(self) -> None:
        self._scaling = [self._scaler(part.name) for part in self._space.parts]
        self._seen_scaling = {
            name: [
                self._scaler(".".join(map(str, (name, "obs", *part.path))))
                for part in seen.parts
            ]
            for name, seen in self._seen.items()
        }

    def _scaler(self, name: str) -> Callable[[Any], Any]:
        norm = self.norms.get(name)
        if norm is None:
            return lambda batch: batch
        mean, scale, clip = norm.mean, norm.scale, self.clip

        def scaled(batch: NDArray[Any]) -> NDArray[np.float32]:
            out = batch - mean
            out *= scale
            np.maximum(out, -clip, out=out)
            np.minimum(out, clip, out=out)
            return out.astype(np.float32)

        return scaled

    def __call__(self, obs: Any) -> Any:
        """Scale a batch of observations, with any number of leading axes."""
        if self._of_team:
            return self._team_scaled(obs)
        pairs = zip(self._space.parts, self._scaling, strict=True)
        return self._space.joined([scale(part.of(obs)) for part, scale in pairs])

    def _team_scaled(self, obs: Any) -> Any:
        """What agents see is scaled; the rest stays, also of envs with other flags.

        Agents that take turns have one more where they train than against others.
        """
        scaled = dict(obs)
        for name, seen in self._seen.items():
            inside = zip(seen.parts, self._seen_scaling[name], strict=True)
            parts = [scale(part.of(obs[name]["obs"])) for part, scale in inside]
            scaled[name] = {**obs[name], "obs": seen.joined(parts)}
        return scaled

    def for_agents(self, space: Space[Any], inside: str = "") -> ObsNorm:
        """Of a team of one group: the same for what single agents see.

        Args:
            space: the observation space of one agent.
            inside: the key of the agent's observation there, if it is a part of it.
        """
        other = ObsNorm(space, clip=self.clip)
        for path, norm in self.norms.items():
            rest = path.split(".")[2:]  # without the group, and "obs"
            name = ".".join([inside, *rest] if inside else rest)
            other.norms[name].load_state_dict(norm.state_dict())
        other._refresh()
        return other

    def dtype_of(self, part: SpacePart) -> np.dtype[Any]:
        """The dtype of a leaf after scaling."""
        return np.dtype(np.float32) if part.name in self.norms else part.dtype

    def update(self, obs: Any, valid: Flags) -> None:
        """Add the valid ones of `[rows, slots]` observations.

        Raises:
            TrainingDiverged: one is not finite; the state is unchanged.
        """
        # First of all: a scale that is not finite would stay so.
        check_finite(obs, None, valid)
        by_name = {part.name: part for part in self._space.parts}
        for name, norm in self.norms.items():
            part = by_name[name]
            counted = valid
            if self._of_team:
                counted = valid[..., None] & obs[part.path[0]]["alive"]
            norm.update(part.of(obs)[counted])
        self._refresh()

    def state_dict(self) -> dict[str, Any]:
        """The state to save with a checkpoint."""
        return {name: norm.state_dict() for name, norm in self.norms.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != self.norms.keys():
            raise OptionError(
                f"the saved state has the leaves {sorted(state)}; this space has "
                f"{sorted(self.norms)}"
            )
        for name, norm in self.norms.items():
            norm.load_state_dict(state[name])
        self._refresh()


class RewardNorm:
    """Divides rewards by the standard deviation of discounted returns.

    Args:
        gamma: discount factor, as the learner's.
        clip: largest absolute value of the result.
    """

    def __init__(self, gamma: float = 0.99, *, clip: float = CLIP) -> None:
        if not 0 <= gamma <= 1:
            raise OptionError(f"gamma is {gamma!r}; it must be from 0 to 1")
        self.gamma = gamma
        self.clip = _positive(clip)
        self.norm = RunningNorm()
        # By slot: the discounted return of its episode so far.
        self._returns: Floats | None = None

    def __call__(self, reward: Floats, started: Flags, valid: Flags) -> Floats:
        """Update with the rewards of a rollout, and scale them.

        Raises:
            TrainingDiverged: one is not finite; the state is unchanged.
        """
        check_finite((), reward, valid)
        running = self._returns
        if running is None or len(running) != reward.shape[1]:
            running = np.zeros(reward.shape[1])
        returns = np.empty_like(reward)
        for row in range(len(reward)):
            running = np.where(started[row], 0.0, running) * self.gamma + reward[row]
            returns[row] = running
        self._returns = running
        self.norm.update(returns[valid])
        return np.asarray(np.clip(reward * self.norm.scale, -self.clip, self.clip))

    def state_dict(self) -> dict[str, Any]:
        """The state to save, without the running episodes, which a checkpoint ends."""
        return self.norm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.norm.load_state_dict(state)
        self._returns = None


def _positive(clip: float) -> float:
    if not clip > 0:
        raise OptionError(f"clip is {clip!r}; it must be > 0")
    return clip


def _is_seen(part: SpacePart) -> bool:
    """Whether an agent of a team sees it, other than the state of the whole env."""
    return part.path[0] != STATE_KEY and bool(part.path[1] == "obs")


# NaN and infinity ---------------------------------------------------------------------


def check_finite(obs: Any, reward: NDArray[Any] | None, valid: Flags) -> None:
    """Raise TrainingDiverged if a valid row has a number that is not finite.

    Args:
        obs: `[rows, slots, ...]`, in the space's structure, not normalised.
        reward: `[rows, slots]`, or None.
        valid: which rows to check.
    """
    if said := not_finite(obs, reward, valid):
        raise TrainingDiverged(
            f"{said}; this rollout was not used. Fix the env, or let it end the "
            "episode before its numbers diverge"
        )


def not_finite(obs: Any, reward: NDArray[Any] | None, valid: Flags) -> str:
    """Describe the first number that is not finite, with slot and row; "" if none."""
    leaves = [(f"the observation{path}", leaf) for path, leaf in _leaves(obs)]
    if reward is not None:
        leaves.append(("the reward", reward))
    found = []
    for name, leaf in leaves:
        if leaf.dtype.kind in "fc" and not np.isfinite(leaf).all():
            bad = ~np.isfinite(leaf).reshape(*valid.shape, -1).all(-1) & valid
            found += [(*place, name, leaf) for place in np.argwhere(bad)[:1].tolist()]
    if not found:
        return ""
    row, slot, name, leaf = min(found, key=lambda one: one[0])
    numbers = np.ravel(leaf[row, slot])
    value = numbers[~np.isfinite(numbers)][0]
    return f"the env of slot {slot} returned {name} {value} in row {row} of the rollout"


def _leaves(obs: Any, path: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(obs, np.ndarray):
        yield path, obs
    elif isinstance(obs, (dict, tuple, list)):
        for key, part in obs.items() if isinstance(obs, dict) else enumerate(obs):
            yield from _leaves(part, f"{path}[{key!r}]")
