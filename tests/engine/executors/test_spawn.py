"""What a worker is told: the user's functions as bytes, and how its process looks."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import corral
from corral.engine.executors.contract import Assignment
from corral.engine.executors.process import ProcessExecutor
from corral.engine.executors.spawn import packed, setup_message
from corral.engine.layout.plan import plan_control
from corral.engine.transport import doorbell
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.serialization import opened
from corral.errors import CorralError


@pytest.fixture
def job() -> Iterator[Any]:
    """The job that an executor of these factories sends, with no process started."""
    with ExitStack() as executors:

        def job_of(factories: Any, probe_slots: Any = None, **more: Any) -> Any:
            shards = [range(2), range(2, len(factories))]
            assignment = Assignment(factories, shards, ShardOptions(5), **more)
            executor = ProcessExecutor(assignment)
            executors.callback(executor.close, 0.0)
            executor._generations[1] = 2
            return executor._job(1, probe_slots)

        yield job_of


def test_a_worker_is_told_of_its_own_slots_alone(job) -> None:
    factories = [lambda: "a", lambda: "b", lambda: "c"]
    sent = job(factories, devices=["cpu", "cuda:1"])
    assert [factory() for factory in opened(sent.factories)] == ["c"]
    assert (sent.worker, sent.device, sent.generation) == (1, "cuda:1", 2)
    assert sent.owns_process and sent.shared == {}


def test_a_factory_of_many_slots_travels_once(job) -> None:
    big = bytes(1 << 20)
    factory = lambda: big  # noqa: E731
    first, *others = opened(job([factory] * 4).factories)
    assert others and all(other is first for other in others)


def test_envs_to_be_tried_are_made_as_others_slots_are(job) -> None:
    sent = job([lambda: "a", lambda: "b", lambda: "c"], [2, 0])
    assert [factory() for factory in opened(sent.factories)] == ["c", "a"]
    assert sent.slots == range(2)


@pytest.mark.parametrize("name", ["worker_init", "per_worker"])
def test_a_function_that_cannot_be_sent_is_named_before_anything_starts(name) -> None:
    with pytest.raises(CorralError, match=name):
        packed(
            Assignment([int] * 2, [range(2)], ShardOptions(5), **{name: Unsendable()})
        )


class Unsendable:
    """Refuses to be pickled."""

    def __call__(self) -> None: ...

    def __reduce__(self) -> Any:
        raise TypeError("holds a lock")


def test_the_first_message_names_the_kind_of_bell_and_the_plan() -> None:
    plan = plan_control(3, 2, 3)
    setup = pickle.loads(setup_message(plan))
    assert vars(setup.control) == vars(plan) and setup.bell_kind == doorbell.KIND


def test_a_worker_collects_garbage_once_its_imports_are_done() -> None:
    with corral.Pool("CartPole-v1", 1, backend="process") as pool:
        collects, imported = pool.apply(
            lambda env: (gc.isenabled(), gc.get_freeze_count())
        )[0]
    assert collects and imported > 10_000
