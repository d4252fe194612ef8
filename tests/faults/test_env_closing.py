"""An env that owns processes and sockets is closed on every way out but a killed one.

Each env writes what becomes of it into one file: built, closed, by number. Closed once,
whatever happens, and before the one that takes its place is built.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
from diary_env import END, EXIT, RAISE, Diary

import corral
from corral.errors import CorralError, EnvError, SpacesDiffer, StartError


def diary(path: Path) -> list[str]:
    return (path / "diary").read_text().splitlines()


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize("action", [RAISE, EXIT])
def test_env_that_raised_is_closed_with_the_pool(tmp_path, backend, action):
    with corral.Pool(lambda: Diary(tmp_path), 1, backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="as asked"):
            pool.step([action])
    assert diary(tmp_path) == ["built 0", "closed 0"]


@pytest.mark.parametrize("action", [RAISE, EXIT])
@pytest.mark.parametrize("odd", [{}, {"close": 0}])
def test_env_is_closed_before_the_next_one_is_built(tmp_path, action, odd):
    make = lambda: Diary(tmp_path, **odd)  # noqa: E731
    with corral.Pool(make, 1, on_fault="restart") as pool:
        pool.reset()
        step = pool.step([action])
        assert step.truncated.all() and not step.valid.any()
    assert diary(tmp_path) == ["built 0", "closed 0", "built 1", "closed 1"]


def test_env_whose_successor_cannot_be_built_is_closed_once(tmp_path):
    make = lambda: Diary(tmp_path, build=1)  # noqa: E731
    with corral.Pool(make, 1, on_fault="restart") as pool:
        pool.reset()
        assert not pool.step([RAISE]).valid.any()
    assert diary(tmp_path) == ["built 0", "closed 0", "built 1", "built 2", "closed 2"]


def test_successor_with_another_space_is_closed(tmp_path):
    make = lambda: Diary(tmp_path, space=1)  # noqa: E731
    with corral.Pool(make, 1, on_fault="restart") as pool:
        pool.reset()
        with pytest.raises(SpacesDiffer):
            pool.step([RAISE])
    assert diary(tmp_path) == ["built 0", "closed 0", "built 1", "closed 1"]


def test_env_that_outgrew_its_memory_is_closed(tmp_path):
    make = lambda: Diary(tmp_path)  # noqa: E731
    with corral.Pool(make, 1, isolation="slot", memory_limit=1) as pool:
        pool.reset()
        step = pool.step([END])
        assert step.terminated.all() and step.valid.all()
    assert diary(tmp_path) == ["built 0", "closed 0", "built 1", "closed 1"]


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize(
    ("odd", "error", "built"),
    [({"build": 1}, StartError, 1), ({"space": 1}, SpacesDiffer, 3)],
    ids=["constructor", "spaces"],
)
def test_envs_beside_one_that_cannot_be_used_are_closed(
    tmp_path, backend, odd, error, built
):
    asked = {"backend": backend, "workers": 1, "isolation": "shared"}
    with pytest.raises(error):
        corral.Pool(lambda: Diary(tmp_path, **odd), 3, **asked)
    closed = [line for line in diary(tmp_path) if line.startswith("closed")]
    assert len(closed) == built == len(set(closed))


def test_what_is_no_env_is_closed_all_the_same(tmp_path):
    class Odd:
        def close(self):
            (tmp_path / "closed").touch()

    for backend in ("serial", "thread", "process"):
        with pytest.raises(CorralError, match="the factory returned Odd"):
            corral.Pool(lambda: Odd(), 1, backend=backend)
        (tmp_path / "closed").unlink()


def test_probed_envs_are_closed(tmp_path):
    class Tame(Diary):
        action_space = gym.spaces.Discrete(1)  # the probe's actions are drawn

    pool = corral.Pool(lambda: Tame(tmp_path), 2)
    pool.close()
    assert pool.layout.extra_envs
    numbers = range(2 + pool.layout.extra_envs)
    assert sorted(diary(tmp_path)) == sorted(
        line for number in numbers for line in (f"built {number}", f"closed {number}")
    )
