"""A command that failed is answered from an env built again, or by its fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.plan import CONSTRUCTING, STEPPING
from corral.engine.worker import autoreset
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.record import EPISODE_OVER
from corral.errors import Fault, OrderError, SpacesDiffer

FAULT = Fault(kind="raised", command="step", slot=5, worker=0)
BROKEN = ValueError("the first")


class Recorded:
    """A shard that writes down what is asked of it; the envs fail as often as told."""

    slots = range(4, 6)

    def __init__(self, restarts: int | None, failures: dict[str, list[Any]]) -> None:
        budget = None if restarts is None else RestartBudget(restarts, restarts)
        self.options = ShardOptions(restarts=budget)
        self.care = bytearray(2)
        self.asked: list[str] = []
        self.marks: list[int] = []
        self.guarded: list[Any] = []
        self.envs = self.info_writer = self
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def record(index: int, *rest: Any, **more: Any) -> None:
            self.asked.append(name)
            if self._failures.get(name):
                raise self._failures[name].pop(0)

        return record

    def guard(self, error: BaseException | None = None) -> None:
        self.guarded.append(error)

    def mark(self, doing: int) -> None:
        self.marks.append(doing)

    def described(self, index: int, command: str, error: BaseException) -> Fault:
        slot, text = self.slots[index], str(error)
        return Fault("raised", command, slot, error_text=text, exception=error)


def answered(
    shard: Recorded, mode: int | None, standing: bool = False, error: Any = BROKEN
) -> Fault | None:
    return autoreset.answered_anew(
        shard,  # type: ignore[arg-type]
        1,
        0,
        mode,
        standing,
        replace(FAULT, exception=error),
    )


def test_without_a_budget_the_fault_is_the_answer() -> None:
    shard = Recorded(None, {})
    assert answered(shard, autoreset.NEXT_STEP) == FAULT
    assert not shard.asked and not FAULT.gave_up


@pytest.mark.parametrize("error", [OrderError("twice"), SpacesDiffer("wider")])
def test_what_a_new_env_does_not_mend_is_not_restarted(error: Exception) -> None:
    shard = Recorded(3, {})
    assert answered(shard, autoreset.NEXT_STEP, error=error) == FAULT
    assert not shard.asked


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        (None, ["discard", "begin"]),
        (autoreset.NEXT_STEP, ["discard", "cut"]),
        (autoreset.OFF, ["discard", "cut"]),
        (autoreset.SAME_STEP, ["discard", "cut", "begin_next"]),
    ],
)
def test_the_new_env_answers_as_the_mode_says(mode: Any, asked: list[str]) -> None:
    shard = Recorded(1, {})
    assert answered(shard, mode) is None
    assert shard.asked == ["rebuild", "lose_episode", *asked]
    assert shard.marks == [CONSTRUCTING, STEPPING]
    waits = mode in (autoreset.NEXT_STEP, autoreset.OFF)
    assert bool(shard.care[1] & EPISODE_OVER) == waits


def test_a_transition_that_stands_is_kept() -> None:
    shard = Recorded(1, {})
    assert answered(shard, autoreset.SAME_STEP, standing=True) is None
    assert shard.asked == ["rebuild", "lose_episode", "begin_next"]


def test_one_that_fails_again_is_built_again_until_the_budget_is_spent() -> None:
    failures = {"rebuild": [OSError("gone")], "begin": [KeyError("x"), KeyError("y")]}
    shard = Recorded(3, failures)
    fault = answered(shard, None)
    assert fault is not None and fault.gave_up
    assert (fault.command, fault.error_text) == ("reset", "'y'")  # the last of them
    assert shard.asked.count("rebuild") == 3 and shard.asked.count("begin") == 2
    assert [type(one) for one in shard.guarded] == [OSError, KeyError, KeyError]
    assert shard.options.restarts is not None and shard.options.restarts.count(5) == 3
    # The deadline of a constructor begins again after the wait for a second restart.
    late = [CONSTRUCTING, CONSTRUCTING, STEPPING]
    assert shard.marks == [CONSTRUCTING, *late, *late]


def test_a_rebuilt_env_with_other_spaces_ends_it_with_restarts_left() -> None:
    shard = Recorded(3, {"rebuild": [SpacesDiffer("wider")]})
    fault = answered(shard, autoreset.NEXT_STEP)
    assert fault is not None and not fault.gave_up
    assert (fault.command, shard.asked) == ("construct", ["rebuild"])
