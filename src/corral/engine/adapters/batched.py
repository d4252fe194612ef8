"""A gymnasium.vector.VectorEnv as a shard: its sub-envs are slots.

    Batch      the env itself, stepped and reset for some of its slots at once
    BatchSlot  one of its slots as an Adapter

What such an env has to do depends on `metadata["autoreset_mode"]`::

    DISABLED     Corral restarts episodes, through options["reset_mask"]; every slot's
                 episode has its own seed, options and task
    NEXT_STEP    the env does, at the step after an episode's end
    SAME_STEP    the env does, within the step that ends an episode

An env whose `step` takes a `step_mask` can step some of its slots; any other env is
always stepped as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from corral.core import NO_TASK, Adapter, EnvSpec
from corral.engine.adapters.factories import called_for, takes
from corral.engine.adapters.single_agent import GymnasiumAdapter
from corral.engine.layout.info_copy import owned_info
from corral.errors import OptionError, SpaceMismatch

# The key of an env's metadata that says how its episodes are restarted.
AUTORESET_KEY = "autoreset_mode"
# The key, set here, that says whether it can step some of its slots.
STEP_MASK_KEY = "corral.step_mask"
Outcome = tuple[Any, Any, Any, Any, dict[str, Any]]
# The seed, options and task that a slot's episode begins with.
Beginning = tuple[int | None, dict[str, Any] | None, Any]
_PYTHONS = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))
_RESULTS = ("observations", "rewards", "terminations", "truncations")
_PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class BatchedEnv:
    """One vector of environments.

    Args:
        env: what the factory returned.
        count: how many slots it is to have.
    """

    def __init__(self, env: Any, count: int) -> None:
        self.env = env
        self.count = count
        # How it restarts its episodes by itself; None if it does not.
        self.resets_itself = _resets_of(env, count)
        self.masks_steps = takes(env.step, "step_mask")
        self.spec = EnvSpec(
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
            metadata={**(env.metadata or {}), STEP_MASK_KEY: self.masks_steps},
            render_mode=env.render_mode,
            id=env.spec.id if env.spec is not None else None,
        )
        # The beginnings that came with the last step, if it restarts in same_step.
        self.begun: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._plain = isinstance(env.single_action_space, _PLAIN)
        self._closed = False

    # Steps ----------------------------------------------------------------------------

    def step(self, actions: Mapping[int, Any]) -> Any:
        """Step these slots in one call; return what the env returned, for all."""
        rows = list(actions)
        filler = actions[rows[0]]  # ignored, but it must be in the space
        batch = self._joined([actions.get(row, filler) for row in range(self.count)])
        mask = None if len(rows) == self.count else self._mask(rows)
        return self.call(batch, mask)

    def call(self, actions: Any, mask: NDArray[np.bool_] | None) -> Any:
        """Step the env: all slots, or those of the mask where it can leave others."""
        if mask is None or not self.masks_steps:
            result = self.env.step(actions)
        else:
            result = self.env.step(actions, step_mask=mask)
        return _read(result, 5, "step", f"{', '.join(_RESULTS)} and infos")

    def outcomes(self, result: Any, rows: Sequence[int]) -> dict[int, Outcome]:
        """The results of these slots."""
        obs, *numbers, infos = result
        if np.any(numbers[1]) or np.any(numbers[2]):
            obs = owned_info(obs)  # a reset may reuse the env's own arrays
        rewards, over, cut = (
            self._checked_rows(name, _listed(values))
            for name, values in zip(_RESULTS[1:], numbers, strict=True)
        )
        observations = self._rows_of(obs)
        # Infos are empty most of the time, and a dict for each slot costs time.
        each = None if infos == {} else infos_of(owned_info(infos), self.count)
        found: dict[int, Outcome] = {
            row: (
                observations[row],
                rewards[row],
                over[row],
                cut[row],
                {} if each is None else each[row],
            )
            for row in rows
        }
        self.begun = {}
        if self.resets_itself == "same_step":
            for row, outcome in found.items():
                if outcome[2] or outcome[3]:
                    found[row], self.begun[row] = _parted(outcome)
        return found

    def _joined(self, actions: list[Any]) -> Any:
        """The batch of single actions that the env is stepped with."""
        if self._plain:
            # As they are: an action wider than its space's dtype is not cut here.
            return np.stack(actions)
        space = self.env.single_action_space
        empty: Any = create_empty_array(space, self.count)
        return concatenate(space, actions, empty)

    def _rows_of(self, obs: Any) -> Any:
        if not isinstance(obs, np.ndarray):
            obs = list(iterate(self.env.observation_space, obs))
        return self._checked_rows("observations", obs)

    def _checked_rows(self, name: str, values: Any) -> Any:
        if not hasattr(values, "__len__") or len(values) != self.count:
            raise SpaceMismatch(
                f"the env returned {values!r:.80} as {name}; there are {self.count} "
                "slots, one row for each"
            )
        return values

    def _mask(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self.count, np.bool_)
        mask[list(rows)] = True
        return mask

    # Resets ---------------------------------------------------------------------------

    def reset(self, beginnings: Mapping[int, Beginning]) -> dict[int, tuple[Any, Any]]:
        """Begin an episode in these slots, with as few calls as possible."""
        began: dict[int, tuple[Any, Any]] = {}
        for options, has_task, rows in _alike(beginnings):
            given = {row: beginnings[row] for row in rows}
            if self.resets_itself is None:
                result = self._reset_some(given, options, has_task)
            elif has_task or len(rows) < self.count:
                raise OptionError(
                    f"{type(self.env).__name__} restarts its episodes by itself, so it "
                    "is reset as a whole and takes no task for a slot; that needs an "
                    'env with metadata["autoreset_mode"] = AutoresetMode.DISABLED'
                )
            else:
                kwargs = {} if options is None else {"options": dict(options)}
                result = self.env.reset(seed=beginnings[0][0], **kwargs)
            obs, infos = _read(result, 2, "reset", "observations and infos")
            observations = self._rows_of(obs)
            each = infos_of(owned_info(infos), self.count)
            for row in rows:
                # The next call may reuse the env's own arrays.
                began[row] = owned_info(observations[row]), each[row]
        return began

    def _reset_some(
        self,
        beginnings: Mapping[int, Beginning],
        options: dict[str, Any] | None,
        has_task: bool,
    ) -> Any:
        begun = [beginnings.get(row, (None, None, None)) for row in range(self.count)]
        given = {**(options or {}), "reset_mask": self._mask(list(beginnings))}
        if has_task:
            given["tasks"] = [task for _, _, task in begun]
        return self.env.reset(seed=[seed for seed, _, _ in begun], options=given)

    def close(self) -> None:
        """Close the env, once."""
        if not self._closed:
            self._closed = True
            self.env.close()


class BatchSlot(Adapter):
    """One slot of a batch, by itself."""

    def __init__(self, batch: BatchedEnv, index: int) -> None:
        self.batch = batch
        self.env = batch.env
        self.spec = batch.spec
        self.stepper = self
        self._index = index

    def step(self, action: Any) -> Outcome:
        """Step this slot alone."""
        result = self.batch.step({self._index: action})
        return self.batch.outcomes(result, [self._index])[self._index]

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in this slot alone."""
        return self.batch.reset({self._index: (seed, options, task)})[self._index]

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the method of the sub-env, where the batched env has one."""
        if self._inner() is not None or not callable(getattr(self.env, name)):
            return super().call(name, args, kwargs)
        if name == "render":
            frames = self.env.render(*args, **kwargs)
            return None if frames is None else frames[self._index]
        raise OptionError(self._unreachable(f"call {name!r} for"))

    def get_attr(self, name: str) -> Any:
        """Read the attribute of the sub-env, else of the batched env."""
        inner = self._inner()
        return getattr(self.env, name) if inner is None else inner.get_attr(name)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute of the sub-env, where the batched env has one."""
        inner = self._inner()
        if inner is None:
            raise OptionError(self._unreachable(f"set {name!r} of"))
        inner.set_attr(name, value)

    def _inner(self) -> GymnasiumAdapter | None:
        """The env of this slot alone, if the batched env is a list of such."""
        envs: Any = getattr(self.env, "envs", None)
        listed = isinstance(envs, (list, tuple))
        return GymnasiumAdapter(envs[self._index]) if listed else None

    def _unreachable(self, what: str) -> str:
        return (
            f"there is no env of one slot to {what}: {type(self.env).__name__} is all "
            "slots of its worker at once; use pool.apply(function), which gets it"
        )

    def exchanged(self, env: Any) -> BatchSlot:
        """No slot has an env of its own."""
        raise OptionError(self._unreachable("exchange"))

    def close(self) -> None:
        """Close the batched env; the first of its slots does."""
        self.batch.close()


# Infos --------------------------------------------------------------------------------


def infos_of(infos: Any, count: int) -> list[dict[str, Any]]:
    """Gymnasium's dict of arrays with `_key` masks -> one dict per slot."""
    if not isinstance(infos, dict):
        raise SpaceMismatch(
            f"infos is {infos!r:.80} ({type(infos).__name__}); a vector of "
            "environments returns one dict, with a mask `_key` beside each key"
        )
    each: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in infos.items():
        if isinstance(key, str) and key[:1] == "_" and key[1:] in infos:
            continue  # the mask of another key
        present = infos.get(f"_{key}")
        if present is not None and np.shape(present) != (count,):
            raise SpaceMismatch(
                f'infos["_{key}"] is {present!r:.80}; it must say for each of '
                f'the {count} slots whether it has infos["{key}"]'
            )
        if isinstance(values, dict):
            rows: Any = infos_of(values, count)
        elif isinstance(values, (np.ndarray, list, tuple)) and len(values) == count:
            # Python's own numbers, which Gymnasium makes such arrays of.
            python = isinstance(values, np.ndarray) and values.dtype in _PYTHONS
            rows = _listed(values) if python else values
        else:
            rows = [values] * count  # the same for all
        for row in range(count):
            if present is None or present[row]:
                each[row][key] = rows[row]
    return each


# Checks -------------------------------------------------------------------------------


def _resets_of(env: Any, count: int) -> str | None:
    """How the env restarts its episodes; raises for an env that does not fit."""
    kind = type(env).__name__
    if not isinstance(env, VectorEnv) or env.num_envs != count:
        raise OptionError(
            f"the factory returned {kind} ({env!r:.80}); with batched=True it "
            f"must return a gymnasium.vector.VectorEnv with num_envs={count}"
        )
    mode = (env.metadata or {}).get(AUTORESET_KEY)
    if mode is None:
        raise OptionError(
            f"{kind} does not say how its episodes are restarted; put an AutoresetMode "
            f'into its metadata["{AUTORESET_KEY}"]: DISABLED if its reset takes '
            'options["reset_mask"]'
        )
    name = AutoresetMode(mode).name.lower()
    return None if name == "disabled" else name


def _read(result: Any, count: int, method: str, expected: str) -> Any:
    """What a method of the env returned, if it is so many values."""
    if isinstance(result, (tuple, list)) and len(result) == count:
        return result
    several = isinstance(result, (tuple, list))
    one = f"{result!r:.80} ({type(result).__name__})"
    found = f"{len(result)} values" if several else one
    raise SpaceMismatch(
        f"{method}() of the batched env returned {found}; it must return {expected}"
    )


def _alike(
    beginnings: Mapping[int, Beginning],
) -> list[tuple[dict[str, Any] | None, bool, list[int]]]:
    """The slots that one call can reset: the same options, all with a task or none."""
    groups: list[tuple[dict[str, Any] | None, bool, list[int]]] = []
    for row, (_, options, task) in beginnings.items():
        has_task = task is not NO_TASK
        for theirs, tasked, rows in groups:
            if tasked is has_task and _same(theirs, options):
                rows.append(row)
                break
        else:
            groups.append((options, has_task, [row]))
    return groups


def _same(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> bool:
    try:
        return ours is theirs or bool(ours == theirs)
    except Exception:  # arrays do not say whether they are equal
        return False


def _listed(values: Any) -> Any:
    """One plain number for each slot, where there is one."""
    plain = isinstance(values, np.ndarray) and values.ndim == 1
    return values.tolist() if plain else values


def _parted(outcome: Outcome) -> tuple[Outcome, tuple[Any, dict[str, Any]]]:
    """The end of an episode, and the beginning of the next that came with it."""
    obs, reward, terminated, truncated, info = outcome
    begun = {k: v for k, v in info.items() if k not in ("final_obs", "final_info")}
    if "final_obs" not in info:
        raise SpaceMismatch(
            "an episode ended and its last observation is missing: an env that "
            'restarts episodes in the same step must return it as infos["final_obs"]'
        )
    end = info["final_obs"], reward, terminated, truncated, info.get("final_info", {})
    return end, (obs, begun)


# Factories ----------------------------------------------------------------------------


def build_batch(factory: Callable[..., Any], slots: range) -> BatchedEnv:
    """Have the factory build a batch for these slots."""
    env = called_for(factory, slots)
    try:
        return BatchedEnv(env, len(slots))
    except BaseException:
        if hasattr(env, "close"):
            env.close()
        raise
