"""What a worker is told: the user's functions as bytes, and how its process looks."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest

import corral
from corral.engine.executors.contract import Assignment
from corral.engine.executors.spawn import PackedJobs, setup_message
from corral.engine.layout.plan import plan_control
from corral.engine.transport import doorbell
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.serialization import opened
from corral.errors import CorralError


def packed(*factories: Any, **more: Any) -> PackedJobs:
    shards = [range(2), range(2, len(factories))]
    return PackedJobs(Assignment(factories, shards, ShardOptions(5), **more))


def test_a_worker_is_told_of_its_own_slots_alone() -> None:
    jobs = packed(lambda: "a", lambda: "b", lambda: "c", devices=["cpu", "cuda:1"])
    job = jobs.job(1, generation=2, slots=range(2, 3), shared=None)
    assert [factory() for factory in opened(job.factories)] == ["c"]
    assert (job.worker, job.device, job.generation) == (1, "cuda:1", 2)
    assert job.owns_process and job.shared == {}


def test_a_factory_of_many_slots_travels_once() -> None:
    big = bytes(1 << 20)
    factory = lambda: big  # noqa: E731
    job = packed(factory, factory, factory).job(0, 0, range(3), None)
    first, *others = opened(job.factories)
    assert all(other is first for other in others)


def test_envs_to_be_tried_are_made_as_others_slots_are() -> None:
    jobs = packed(lambda: "a", lambda: "b", lambda: "c")
    job = jobs.job(0, 0, range(2), None, made_of=[2, 0])
    assert [factory() for factory in opened(job.factories)] == ["c", "a"]
    assert job.slots == range(2)


@pytest.mark.parametrize("name", ["worker_init", "per_worker", "function"])
def test_a_function_that_cannot_be_sent_is_named_before_anything_starts(name) -> None:
    what = "the function" if name == "function" else name
    with pytest.raises(CorralError, match=what):
        packed(lambda: 0, lambda: 0, **{name: Unsendable()})


class Unsendable:
    """Refuses to be pickled."""

    def __call__(self) -> None: ...

    def __reduce__(self) -> Any:
        raise TypeError("holds a lock")


def test_the_first_message_names_the_kind_of_bell_and_the_plan() -> None:
    plan = plan_control(3, 2, 3)
    setup = pickle.loads(setup_message(plan))
    assert (setup.control, setup.bell_kind) == (plan, doorbell.KIND)


def test_a_worker_collects_garbage_once_its_imports_are_done() -> None:
    with corral.Pool("CartPole-v1", 1, backend="process") as pool:
        collects, imported = pool.apply(
            lambda env: (gc.isenabled(), gc.get_freeze_count())
        )[0]
    assert collects and imported > 10_000
