"""What an env has said stays as it was, whatever the env does to it later."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral import Pool

from .hoarding_env import Box, Hoarder, Teller, Trails

SLOTS, STEPS = 2, 8
KINDS = {"mailed": Hoarder, "in block": Teller}


@pytest.fixture(scope="module", params=["serial", "thread", "process"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=KINDS)
def pool(request: pytest.FixtureRequest, backend: str) -> Iterator[Pool]:
    workers = None if backend == "serial" else 1
    pool = Pool(KINDS[request.param], SLOTS, backend=backend, workers=workers)
    yield pool
    pool.close()


# A reference that copies --------------------------------------------------------------


def looped(tree: Any, mailed: bool) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Observation, info, and those of an episode's end, each as it was at the time."""
    env = Hoarder() if mailed else Teller()
    yield *deepcopy(env.reset(options={"tree": tree})), None, None
    for _ in range(STEPS):
        obs, _, terminated, _, info = deepcopy(env.step(0))
        if terminated:
            yield *deepcopy(env.reset()), obs, info
        else:
            yield obs, info, None, None


def shown(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Types and values all the way down, and which lists are the same one."""
    seen = {} if seen is None else seen
    kind = type(value)
    if isinstance(value, np.ndarray):
        parts = [shown(part, seen) for part in value.flat]
        return kind, value.dtype.str, value.shape, parts
    if isinstance(value, dict):
        return kind, {key: shown(part, seen) for key, part in sorted_items(value)}
    if isinstance(value, (list, collections.deque, Box)):
        if id(value) in seen:
            return "again", seen[id(value)]
        seen[id(value)] = len(seen)
        parts = [value.held] if isinstance(value, Box) else list(value)
        return kind, [shown(part, seen) for part in parts]
    if isinstance(value, tuple):
        return kind, [shown(part, seen) for part in value]
    return kind, value


def sorted_items(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(value.items(), key=lambda item: str(item[0]))


# Whatever an env may hold -------------------------------------------------------------

constants = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=2), st.binary()
)
arrays = st.builds(np.arange, st.integers(1, 3)) | st.builds(
    lambda n: np.full((2, n), 0.5, np.float32), st.integers(1, 2)
)


def objects(parts: list[Any]) -> Any:
    array = np.empty(len(parts), object)
    array[:] = parts
    return array


def containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(parts, max_size=3)
    dicts = st.dictionaries(st.sampled_from(["a", "b", "c"]), parts, max_size=2)
    return st.one_of(
        lists,
        lists.map(tuple),
        dicts,
        st.sets(st.integers(0, 5)),
        lists.map(collections.deque),
        dicts.map(collections.OrderedDict),
        dicts.map(lambda held: collections.defaultdict(list, held)),
        st.builds(collections.Counter, st.lists(st.sampled_from("ab"))),
        st.builds(bytearray, st.binary(max_size=2)),
        st.builds(Box, parts),
        st.builds(objects, st.lists(st.lists(st.integers(0, 3)), min_size=1)),
        parts.map(lambda part: [part, part]),
    )


trees = st.recursive(constants | arrays, containers, max_leaves=6)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=trees)
def test_every_info_and_observation_is_that_of_its_time(pool: Pool, tree: Any) -> None:
    mailed = pool.spec.observation_space == Hoarder.observation_space
    expected = list(looped(deepcopy(tree), mailed))
    options = [{"tree": deepcopy(tree)} for _ in range(SLOTS)]
    steps = [pool.reset(options=options)]
    steps += [pool.step([0] * SLOTS) for _ in range(STEPS)]
    for number, (step, loop) in enumerate(zip(steps, expected, strict=True)):
        obs, info, final_obs, final_info = loop
        for slot in range(SLOTS):
            assert shown(step.infos.of(slot)) == shown(info), number
            if mailed:
                assert shown(step.obs[slot]) == shown(obs), number
            if final_info is not None:
                assert shown(step.final_infos[slot]) == shown(final_info), number
                if mailed:
                    assert shown(step.final_obs[slot]) == shown(final_obs), number


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_batch_tells_of_its_own_time_too(backend: str, autoreset: Any) -> None:
    options: dict[str, Any] = {"batched": True, "autoreset": autoreset}
    with Pool(Trails, SLOTS, backend=backend, workers=1, **options) as pool:
        steps = [pool.reset(), *(pool.step([0] * SLOTS) for _ in range(6))]
    told = [[step.infos.of(slot)["trail"] for step in steps] for slot in range(SLOTS)]
    trails = [list(range(1, time + 1)) for time in range(4)]
    empty, one, two, three = trails
    if autoreset == "same_step":
        assert told[0] == [empty, one, empty, one, empty, one, empty]
        assert told[1] == [empty, one, two, empty, one, two, empty]
        ends = [
            (step.final_infos[s]["trail"], s)
            for step in steps
            for s in (0, 1)
            if s in step.final_infos
        ]
        assert ends == [(two, 0), (three, 1), (two, 0), (two, 0), (three, 1)]
    else:
        assert told[0] == [empty, one, two, empty, one, two, empty]
        assert told[1] == [empty, one, two, three, empty, one, two]


# What is no value ---------------------------------------------------------------------


class Keeper(Teller):
    def _told(self) -> Any:
        return self.time, {"lock": [LOCK, self.tree], "env": self}


LOCK = threading.Lock()


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_what_cannot_be_copied_is_handed_on_and_the_rest_is_copied(
    backend: str,
) -> None:
    with Pool(Keeper, 1, backend=backend) as pool:
        infos = [pool.reset(options={"tree": [1]}).infos.of(0)]
        infos += [pool.step([0]).infos.of(0) for _ in range(2)]
    assert [info["lock"][0] for info in infos] == [LOCK] * 3
    assert [info["lock"][1] for info in infos] == [[1], [1, 1], [1, 1, 2]]
    assert isinstance(infos[0]["env"], Keeper)
    assert infos[0]["env"] is infos[2]["env"], "a copy of an env would be another env"
