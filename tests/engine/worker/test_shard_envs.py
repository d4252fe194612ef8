"""A shard's envs: built in order, built again, exchanged, closed once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from corral.engine.worker.commands import Job, ShardOptions
from corral.engine.worker.forked_copies import no_guard
from corral.engine.worker.shard_envs import BatchEnvs, ShardEnvs
from corral.errors import IsolationError, SpacesDiffer


class Told(gymnasium.Env[Any, Any]):
    """Writes down what becomes of it."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, name: str, diary: list[str]) -> None:
        self.name, self.diary = name, diary
        diary.append(f"built {name}")

    def reset(self, **_: Any) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, float(np.random.randint(1 << 30)), False, False, {}

    def close(self) -> None:
        self.diary.append(f"closed {self.name}")
        if self.name == "stubborn":
            raise SystemExit("not now")


def envs_of(slots: int, **options: Any) -> ShardEnvs:
    job = Job(0, range(3, 3 + slots), (), ShardOptions(**options))
    return ShardEnvs(job, no_guard)


def test_the_error_of_a_factory_says_which_slot() -> None:
    def fails() -> Any:
        raise ValueError("no licence")

    diary: list[str] = []
    envs = envs_of(2)
    with pytest.raises(ValueError, match="no licence") as caught:
        envs.build([lambda: Told("a", diary), fails])
    assert caught.value.slot == 4  # type: ignore[attr-defined]
    assert list(envs.close()) == [] and diary == ["built a", "closed a"]


def test_an_env_is_rebuilt_after_the_old_one_was_closed_whatever_that_raises() -> None:
    diary: list[str] = []
    names = iter(["stubborn", "second"])
    envs = envs_of(1)
    envs.build([lambda: Told(next(names), diary)])
    steppers = envs.steppers
    envs.rebuild(0)
    assert diary == ["built stubborn", "closed stubborn", "built second"]
    assert envs.steppers is steppers  # a walk that is under way goes on with the new
    assert steppers[0] is envs.adapters[0].stepper
    assert list(envs.close()) == [] and diary[3:] == ["closed second"]


def test_an_env_that_failed_is_closed_once_however_often_rebuilding_fails() -> None:
    diary: list[str] = []

    def once() -> Any:
        if diary:
            raise OSError("gone")
        return Told("a", diary)

    envs = envs_of(1)
    envs.build([once])
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            envs.rebuild(0)
    assert list(envs.close()) == []
    assert diary == ["built a", "closed a"]


def test_a_rebuilt_env_with_other_spaces_is_refused_and_closed() -> None:
    class Wider(Told):
        action_space = gymnasium.spaces.Discrete(3)

    diary: list[str] = []
    kinds = iter([Told("a", diary), Wider("b", diary)])
    envs = envs_of(1)
    envs.build([lambda: next(kinds)])
    with pytest.raises(SpacesDiffer, match="another action_space: Discrete"):
        envs.rebuild(0)
    assert diary[-1] == "closed b"


def test_closing_goes_on_past_an_error_and_tells_it() -> None:
    diary: list[str] = []
    envs = envs_of(2)
    envs.build([lambda: Told("stubborn", diary), lambda: Told("b", diary)])
    ((index, error),) = envs.close()
    assert index == 0 and isinstance(error, SystemExit)
    assert diary[2:] == ["closed stubborn", "closed b"]
    assert list(envs.close()) == []  # they are gone


def test_an_exchanged_env_steps_and_the_one_before_stays_open() -> None:
    diary: list[str] = []
    envs = envs_of(1)
    envs.build([lambda: Told("a", diary)])
    envs.exchange(0, Told("b", diary))
    assert envs.steppers[0].name == "b" and "closed a" not in diary


def test_an_env_that_must_be_alone_is_refused_where_slots_share() -> None:
    class Lonely(Told):
        metadata = {"corral.isolation": "slot"}  # noqa: RUF012

    diary: list[str] = []
    with pytest.raises(IsolationError, match="must be alone in its process"):
        envs_of(2, checks_sharing=True).build([lambda: Lonely("a", diary)] * 2)
    assert diary == ["built a"]


def test_isolated_slots_draw_by_their_seed_alone() -> None:
    def drawn(order: list[int]) -> dict[int, list[Any]]:
        envs = envs_of(2, isolate_rng=True)
        envs.build([lambda: Told("a", [])] * 2)
        for slot in (3, 4):
            envs.reseed(slot, 10 + slot)
        steps: dict[int, list[Any]] = {0: [], 1: []}
        for index in order:
            steps[index].append(envs.steppers[index].step(0)[1])
        return steps

    by_turns = drawn([0, 1, 0, 1])
    assert by_turns == drawn([1, 1, 0, 0]) and by_turns[0] != by_turns[1]


class Swarm(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A batched env."""

    def __init__(self, count: int) -> None:
        self.num_envs = count
        self.single_observation_space = gymnasium.spaces.Discrete(2)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
        self.is_closed = False

    def close(self, **_: Any) -> None:
        self.is_closed = True


def test_a_batch_that_is_rebuilt_is_another_for_every_slot() -> None:
    made: list[Swarm] = []

    def build(num_envs: int) -> Swarm:
        made.append(Swarm(num_envs))
        return made[-1]

    job = Job(0, range(3), (), ShardOptions(batched=True))
    envs = BatchEnvs(job, no_guard)
    assert len(envs.build([build] * 3)) == 3
    envs.rebuild(1)
    assert [one.is_closed for one in made] == [True, False]
    assert {id(adapter.env) for adapter in envs.adapters} == {id(made[1])}
    assert envs.batch.env is made[1]
