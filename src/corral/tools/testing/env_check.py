"""Does an environment keep its contract, here and in a worker?

It is played by hand, in plain loops, and then in pools; both have to agree.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np
from gymnasium import Space

from corral.core import NO_TASK, Adapter, EnvSpec, Factory, Step
from corral.engine.adapters import adapt
from corral.engine.adapters.factories import factories_for
from corral.engine.pool import Pool
from corral.engine.worker import serialization
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.engine.worker.step_results import as_reward, counted, five_of
from corral.tools.testing.report import CheckPart, Report, Skip, Warn, run_parts
from corral.tools.testing.values import part_of, same, stored


@dataclass(slots=True)
class _Moment:
    """What an env returned once: of a reset, or of a step."""

    what: str
    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def check_env(
    env: str | Factory,
    *,
    env_kwargs: dict[str, Any] | None = None,
    steps: int = 200,
    seed: int = 0,
    deterministic: bool = True,
    process: bool = True,
    raises: bool = True,
) -> Report:
    """Check that an environment works, alone and in worker processes.

    Args:
        env: a registered id, or a factory.
        env_kwargs: keyword arguments for the id or factory.
        steps: how many are taken, with sampled actions.
        seed: of the episodes and the actions.
        deterministic: whether equal seeds have to give equal episodes.
        process: whether to try it in two worker processes as well.
        raises: whether to raise CheckFailed if a part of the check failed.

    Returns:
        The report; it prints well, and is true if nothing failed.
    """
    (factory,) = factories_for(env, 1, env_kwargs)
    check = _EnvCheck(factory, steps, seed)
    name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
    parts = [
        CheckPart("the factory can be sent to a worker", check.can_be_sent),
        CheckPart(
            "an environment is built, with its spaces", check.is_built, needed=True
        ),
        CheckPart("reset and step return what they should", check.plays, needed=True),
        CheckPart("observations are in their space", check.observes_its_space),
        CheckPart("infos can be sent home", check.has_infos_that_travel),
        CheckPart("equal seeds give equal episodes", check.is_deterministic),
        CheckPart("so does a reset of the same environment", check.resets_cleanly),
        CheckPart("global generators play no part", check.leaves_globals_alone),
        CheckPart("close works, and may be called twice", check.closes),
        CheckPart("a pool in this process returns the same", check.runs_serially),
        CheckPart("so does one of two worker processes", check.runs_in_processes),
    ]
    left_out = () if deterministic else parts[5:8]
    wanted = [part for part in parts if part not in left_out]
    report = run_parts(f"{name}:", wanted if process else wanted[:-1])
    if raises:
        report.raise_if_failed()
    return report


class _EnvCheck:
    """One environment, and what it did when it was first played."""

    def __init__(self, factory: Factory, steps: int, seed: int) -> None:
        self._factory = factory
        self._steps, self._seed = steps, seed
        self._spec: EnvSpec
        self._played: list[_Moment] = []

    # By hand --------------------------------------------------------------------------

    def can_be_sent(self) -> None:
        serialization.pack(self._factory, "the factory")

    def is_built(self) -> None:
        adapter = adapt(self._factory())
        self._spec = adapter.spec
        adapter.close()
        for name in ("observation_space", "action_space"):
            space = getattr(self._spec, name)
            assert isinstance(space, Space), f"its {name} is {space!r}, not a Space"

    def plays(self) -> None:
        self._played = self._play()

    def _play(self, slot: int = 0) -> list[_Moment]:
        """Episode after episode, with the seeds and actions of a pool's slot."""
        adapter = adapt(self._factory())
        try:
            return list(self._moments(adapter, slot))
        finally:
            adapter.close()

    def _moments(self, adapter: Adapter, slot: int) -> Iterator[_Moment]:
        episode, over = -1, True
        for number, action in enumerate([None, *self._actions(slot)]):
            if over:
                episode += 1
                seed = episode_seed(self._seed, slot, episode)
                yield _reset(adapter, seed, f"reset {episode}")
            if number:
                moment = _step(adapter, action, f"step {number}")
                over = moment.terminated or moment.truncated
                yield moment
            else:
                over = False

    def _actions(self, slot: int) -> list[Any]:
        space = copy.deepcopy(self._spec.action_space)
        space.seed(self._seed + slot)
        return [space.sample() for _ in range(self._steps)]

    def observes_its_space(self) -> None:
        space = self._spec.observation_space
        for moment in self._played:
            if not space.contains(moment.obs):
                raise Warn(
                    f"{moment.what} returned {_shown(moment.obs)}, which {space} does "
                    "not contain; it is stored as the nearest dtype, bounds unchecked"
                )

    def has_infos_that_travel(self) -> None:
        for moment in self._played:
            try:
                cloudpickle.dumps(moment.info)
            except Exception as error:
                raise AssertionError(
                    f"the info of {moment.what} cannot be pickled "
                    f"({type(error).__name__}: {error}): {moment.info!r:.200}"
                ) from error

    def is_deterministic(self) -> None:
        states = [self._played_after(globals_seed=1) for _ in range(2)]
        _compare(states[1], states[0], "played again")

    def resets_cleanly(self) -> None:
        adapter = adapt(self._factory())
        try:
            seed_globals(1)
            first = list(self._moments(adapter, 0))
            seed_globals(1)
            _compare(list(self._moments(adapter, 0)), first, "after a reset")
        finally:
            adapter.close()

    def leaves_globals_alone(self) -> None:
        one, other = (self._played_after(globals_seed=seed) for seed in (1, 2))
        try:
            _compare(other, one, "")
        except AssertionError as error:
            raise Warn(
                f"it draws from `random` or `numpy.random` ({error}): use "
                "isolate_rng=True where episodes have to depend on their seed alone"
            ) from error

    def _played_after(self, globals_seed: int) -> list[_Moment]:
        seed_globals(globals_seed)
        return self._play()

    def closes(self) -> None:
        adapter = adapt(self._factory())
        adapter.reset(self._seed, None, NO_TASK)
        adapter.close()
        adapter.close()

    # In pools -------------------------------------------------------------------------

    def runs_serially(self) -> None:
        self._run_in_a_pool(1, backend="serial")

    def runs_in_processes(self) -> None:
        self._run_in_a_pool(2, backend="process", workers=2)

    def _run_in_a_pool(self, slots: int, **options: Any) -> None:
        with Pool(self._factory, slots, seed=self._seed, **options) as pool:
            rows = list(self._rows(pool))
        played = [self._play(slot) for slot in range(slots)]
        if not same(_values(played[0]), _values(self._played)):
            raise Skip("it runs, but no two runs of it are equal")
        for slot in range(slots):
            got = [row[slot] for row in rows]
            _compare(got, self._seen(played[slot]), "in a pool")

    def _rows(self, pool: Pool) -> Iterator[list[_Moment]]:
        """What a pool returns of each slot, step by step."""
        slots = range(pool.num_envs)
        actions = [self._actions(slot) for slot in slots]
        step = pool.reset()
        yield [self._row(step, slot, 0) for slot in slots]
        for number in range(self._steps):
            step = pool.step([actions[slot][number] for slot in slots])
            yield [self._row(step, slot, number + 1) for slot in slots]

    def _row(self, step: Step, slot: int, number: int) -> _Moment:
        obs = step.final_obs if step.ended[slot] else step.obs
        return _Moment(
            what=f"step {number}",
            obs=part_of(self._spec.observation_space, obs, slot),
            reward=float(step.reward[slot]),
            terminated=bool(step.terminated[slot]),
            truncated=bool(step.truncated[slot]),
            info={},
        )

    def _seen(self, moments: Sequence[_Moment]) -> list[_Moment]:
        """What a pool has to show: resets after the first come with the step before."""
        space = self._spec.observation_space
        shown = [m for m in moments if m is moments[0] or m.what.startswith("step")]
        return [replace(m, obs=stored(space, m.obs)) for m in shown]


def _reset(adapter: Adapter, seed: int, what: str) -> _Moment:
    result = adapter.reset(seed, None, NO_TASK)
    try:
        obs, info = result
    except (TypeError, ValueError):
        raise AssertionError(
            f"{what} returned {counted(result)}, not an observation and an info"
        ) from None
    assert isinstance(info, dict), f"the info of {what} is {info!r:.80}, not a dict"
    return _Moment(what, copy.deepcopy(obs), 0.0, False, False, copy.copy(info))


def _step(adapter: Adapter, action: Any, what: str) -> _Moment:
    obs, reward, terminated, truncated, info = five_of(adapter.step(action))
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        assert isinstance(flag, (bool, np.bool_)), f"{name} of {what} is {flag!r:.80}"
    assert isinstance(info, dict), f"the info of {what} is {info!r:.80}, not a dict"
    return _Moment(
        what,
        copy.deepcopy(obs),
        as_reward(reward),
        bool(terminated),
        bool(truncated),
        copy.copy(info),
    )


def _values(moments: Sequence[_Moment]) -> list[Any]:
    return [(m.obs, m.reward, m.terminated, m.truncated) for m in moments]


def _compare(got: Sequence[_Moment], expected: Sequence[_Moment], when: str) -> None:
    """Raise the first difference."""
    for ours, theirs in zip(got, expected, strict=False):
        for name in ("obs", "reward", "terminated", "truncated"):
            one, other = getattr(ours, name), getattr(theirs, name)
            if not same(one, other):
                raise AssertionError(
                    f"{name} of {theirs.what} is {_shown(one)} {when}, "
                    f"and was {_shown(other)}"
                )
    assert len(got) == len(expected), f"{len(got)} results {when}, not {len(expected)}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {np.array2string(value, threshold=8)}"
    return f"{value!r:.120}"
