"""Questions to envs that a worker's end or a signal interrupts."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from asked_env import KILL, Asked, Growing
from running import wait_until

import corral
from corral import Pool
from corral.engine.executors.reaping import has_ended
from corral.engine.faults.report import message_for
from corral.engine.pool.questions import Questions
from corral.errors import Fault, OptionError, WorkerDied


def make_pool(count: int = 2, **options: Any) -> Pool:
    settings: dict[str, Any] = {"backend": "process", "workers": 2, "seed": 5}
    settings |= {"isolation": "shared"} | options
    return Pool(settings.pop("env", Asked), count, **settings)


# TimeoutErrors that are not Corral's --------------------------------------------------


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises a TimeoutError, as many programs limit what takes long.

    While answers are waited for; where it comes before, it comes again.
    """

    def handler(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is Questions.answers.__code__:
                raise TimeoutError("my alarm")
            frame = frame.f_back
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_timeout_raised_while_an_answer_is_read_is_not_the_workers(
    backend: str,
) -> None:
    with make_pool(backend=backend) as pool:
        executor: Any = pool._executor
        mailbox, alarms = executor._links[1].mailbox, [TimeoutError("my alarm")]
        first = mailbox.first

        def alarmed(seconds: float) -> Any:
            if alarms:
                raise alarms.pop()
            return first(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mailbox, "first", alarmed)
            with pytest.raises(TimeoutError, match="my alarm"):
                pool.call("echo", 2)
        assert pool.call("echo", 3) == (3, 3)


def test_a_signal_handlers_timeout_ends_the_wait_for_answers(
    alarm, tmp_path: Path
) -> None:
    with make_pool() as pool:
        question = ("alarm", (os.getpid(), tmp_path), {})
        asked = pool.ask_async("call", [0], lambda _: question)
        with pytest.raises(TimeoutError, match="my alarm"):
            (tmp_path / "asked").touch()
            pool.answers(asked)
        (tmp_path / "heard").touch()
        assert pool.answers(asked) == ("heard",)


def test_a_signal_handlers_timeout_is_its_own_with_gymnasiums_names(
    alarm, tmp_path: Path
) -> None:
    made: Any = corral.make(Asked, 1, backend="process", isolation="shared", seed=5)
    with made as envs:
        envs.call_async("alarm", os.getpid(), tmp_path)
        with pytest.raises(TimeoutError, match="my alarm"):
            (tmp_path / "asked").touch()
            envs.call_wait()
        (tmp_path / "heard").touch()
        assert envs.call("echo", 3) == (3,)


def test_a_timeout_of_what_is_called_on_restarts_is_raised_as_it_is() -> None:
    def report(_: Fault) -> NoReturn:
        raise TimeoutError("the metrics server did not answer")

    with make_pool(on_fault="restart") as pool:
        pool.call_on_restart(report)
        with pytest.raises(TimeoutError, match="the metrics server"):
            pool.call("die", slots=[0])
        assert pool.call("echo", 3) == (3, 3)


# Faults of questions ------------------------------------------------------------------


def test_the_fault_of_a_question_is_the_same_in_the_error_and_in_the_pool() -> None:
    with make_pool(workers=1, on_fault="restart") as pool:
        pool.reset()
        pool.step([0, 0])
        with pytest.raises(WorkerDied) as caught:
            pool.call("die", slots=[1])
        step = pool.step([0, 0])
        told = [step.final_infos[slot]["fault"] for slot in (0, 1)]
    assert pool.faults == (caught.value.fault,) == (told[1],)
    assert pool.faults[0].episode.asked == ("call", ("die", (), {}))
    assert told[0].kind == "shardmate" and all(fault.replaced for fault in told)


def test_the_saved_fault_of_a_question_asks_it_again(tmp_path: Path) -> None:
    with make_pool(on_fault="restart") as pool:
        pool.reset()
        pool.step([0, 0])
        with pytest.raises(WorkerDied):
            pool.call("die", slots=[1])
        pool.faults[0].save(tmp_path / "fault.zip")
    with corral.replay(tmp_path / "fault.zip") as replay:
        assert "reproduced in call: the process was ended by SIGKILL" in str(replay)
    with zipfile.ZipFile(tmp_path / "fault.zip") as saved:
        report = saved.read("report.txt").decode()
    assert "make the call again: the worker was replaced" in report
    assert "close the" not in report


def test_only_a_question_is_to_be_asked_again_after_a_worker_was_replaced() -> None:
    with make_pool(on_fault="restart") as pool:
        pool.reset()
        pool.step([KILL, 0])
        told = message_for(pool.faults[0])
    assert pool.faults[0].replaced and pool.faults[0].command == "step"
    assert "the worker was replaced, and the pool continues" in told
    assert "close the pool" not in told and "make the call again" not in told
    assert "continue after errors" not in told


def test_a_death_in_a_question_is_explained_to_a_step_that_finds_it() -> None:
    with make_pool(on_fault="restart") as pool:
        pool.reset()
        pool.ask_async("call", [1], lambda _: ("die", (), {}))
        assert pool.step([0, 0]).valid.tolist() == [True, False]
        assert pool.faults[0].episode.asked == ("call", ("die", (), {}))


def interrupt(pool: Pool, question: Callable[[], Any]) -> None:
    """Ctrl-C when a question was asked, before it is answered."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool._executor, "answers", stop)
        with pytest.raises(KeyboardInterrupt):
            question()


def test_a_death_in_a_question_that_was_given_up_is_not_that_of_the_next(
    tmp_path: Path,
) -> None:
    with make_pool(workers=1, on_fault="restart") as pool:
        pool.reset()
        interrupt(pool, lambda: pool.call("die_when", tmp_path / "now", slots=[1]))
        following = pool.ask_async("get_attr", None, lambda _: "tag")
        (tmp_path / "now").touch()
        with pytest.raises(WorkerDied) as caught:
            pool.answers(following)
        episode = caught.value.fault.episode
        assert (episode.asked, episode.missing) == (
            None,
            "it was asked by a call that was given up",
        )
        assert f"cannot be replayed: {episode.missing}" in str(caught.value)
        assert pool.get_attr("tag") == (7, 7)


def test_a_death_in_a_question_that_was_given_up_can_be_replayed() -> None:
    with make_pool(workers=1, on_fault="restart") as pool:
        pool.reset()
        interrupt(pool, lambda: pool.call("die", slots=[1]))
        assert pool.step([0, 0]).valid.tolist() == [False, False]
        assert pool.faults[0].episode.asked == ("call", ("die", (), {}))


def test_a_question_that_was_refused_takes_no_blame() -> None:
    with make_pool(workers=1, on_fault="restart") as pool:
        pool.reset()
        dying = pool.ask_async("call", [1], lambda _: ("die", (), {}))
        with pytest.raises(OptionError, match="cannot be sent"):
            pool.set_attr("tag", (one for one in "generators are not pickled"))
        with pytest.raises(WorkerDied) as caught:
            pool.answers(dying)
        assert caught.value.fault.episode.asked == ("call", ("die", (), {}))


# Workers that end for another reason --------------------------------------------------


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_worker_over_its_memory_limit_answers_when_it_was_replaced(
    autoreset: str,
) -> None:
    options: dict[str, Any] = {"isolation": "slot", "memory_limit": 100 << 20}
    options |= {"workers": None, "autoreset": autoreset}
    pids = set()
    with make_pool(1, env=Growing, **options) as pool:
        pool.reset()
        for _ in range(12):
            pool.send([0])
            pids.add(pool.call("pid"))
            assert not pool.recv().truncated[0]
        assert len(pids) > 1 and not pool.faults


def test_a_worker_that_is_not_asked_may_die_while_another_one_is_waited_for() -> None:
    with make_pool(on_fault="restart") as pool:
        pool.reset()
        with pytest.raises(WorkerDied):
            pool.call("die", slots=[0])
        executor: Any = pool._executor
        process = executor._links[1].process
        process.kill()
        wait_until(lambda: has_ended(process))
        assert pool.get_attr("tag", slots=[0]) == (7,)
        assert [fault.worker for fault in pool.faults] == [0, 1]
        assert pool.get_attr("tag") == (7, 7)
