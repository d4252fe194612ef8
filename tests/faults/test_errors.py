"""Every failure is one error of the tree, complete and readable: a table of kinds."""

from __future__ import annotations

import copy
import functools
import logging
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from faulty_env import (
    FAIL,
    FINE,
    Faulty,
    boom,
    crash,
    hang,
    kill,
    leave,
    vanish,
    vanish_once,
    wrong_shape,
)

import corral
from corral import dropin
from corral.api.gymnasium.errors import CallPending
from corral.engine.faults.report import error_for
from corral.engine.worker import letters
from corral.errors import (
    CorralError,
    EnvError,
    Fault,
    ItemError,
    RemoteTraceback,
    SpaceMismatch,
    StartError,
    WorkerDied,
    WorkerHung,
)

BACKENDS = ["serial", "thread", "process"]


@dataclass(frozen=True)
class Case:
    """What is done where, and what must come of it."""

    at: str
    deed: Callable[[], Any]
    error: type[CorralError]
    says: tuple[str, ...]
    kind: str = "raised"
    command: str = ""
    signal_name: str | None = None
    exit_code: int | None = None
    processes_only: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.deed.__name__} in {self.at}"


REPLAY = "corral.replay(path)"
RESTART = 'on_fault="restart"'
NATIVE = 'backend="serial" under gdb'


def died(at: str, deed: Callable[[], Any], *says: str, **fields: Any) -> Case:
    return Case(at, deed, WorkerDied, says, "died", processes_only=True, **fields)


CASES = [
    Case("construct", boom, StartError, ("ZeroDivisionError: boom", REPLAY), "start"),
    Case("construct", leave, StartError, ("SystemExit: I am off", REPLAY), "start"),
    Case("reset", boom, EnvError, ("ZeroDivisionError in reset: boom", REPLAY)),
    Case("step", boom, EnvError, ("ZeroDivisionError in step: boom", RESTART, REPLAY)),
    Case("step", leave, EnvError, ("SystemExit in step: I am off", REPLAY)),
    Case("step", wrong_shape, SpaceMismatch, ("float32 (3,)", REPLAY)),
    Case("render", boom, EnvError, ("ZeroDivisionError in render: boom", REPLAY)),
    Case("call", boom, EnvError, ("ZeroDivisionError in call: boom", REPLAY)),
    Case("call", leave, EnvError, ("SystemExit in call: I am off", REPLAY)),
    Case(
        "call",
        threading.Lock,
        EnvError,
        ("cannot pickle", "return plain data"),
        command="sending a result to the caller",
        processes_only=True,
    ),
    Case(
        "info",
        threading.Lock,
        EnvError,
        ("cannot pickle", "let infos hold plain data"),
        command="sending an info to the caller",
        processes_only=True,
    ),
    died("step", vanish, "exit code 3", "os._exit", REPLAY, exit_code=3),
    died("reset", vanish, "exit code 3", "during reset", REPLAY, exit_code=3),
    died("call", vanish, "exit code 3", "during call", REPLAY, exit_code=3),
    died("step", kill, "memory_limit=", REPLAY, signal_name="SIGKILL"),
    died("step", crash, "in crash", NATIVE, REPLAY, signal_name="SIGSEGV"),
    died("step", os.abort, "in step", NATIVE, REPLAY, signal_name="SIGABRT"),
    died(
        "construct", kill, "during construct", "memory_limit=", REPLAY,
        signal_name="SIGKILL",
    ),
    Case(
        "step",
        hang,
        WorkerHung,
        ("longer than 0.5 s", "in hang", "step_timeout=", 'on_timeout="restart"'),
        kind="hung",
        processes_only=True,
        options=(("step_timeout", 0.5),),
    ),
    Case(
        "reset",
        hang,
        WorkerHung,
        ("longer than 0.5 s", "in hang", "reset_timeout="),
        kind="hung",
        processes_only=True,
        options=(("reset_timeout", 0.5),),
    ),
    Case(
        "construct",
        hang,
        WorkerHung,
        ("construct took longer than 4 s", "in hang", "start_timeout=", REPLAY),
        kind="hung",
        processes_only=True,
        options=(("start_timeout", 4.0),),
    ),
]  # fmt: skip


def provoke(pool: corral.Pool, case: Case) -> None:
    """Three steps that are fine, and then the one that is not."""
    pool.reset(seeds=[70, 71], tasks=["there", "here"])
    for _ in range(2):
        pool.step([FINE, FINE])
    if case.at in ("call", "render"):
        pool.call("method" if case.at == "call" else "render")
    elif case.at == "reset":
        pool.reset([1], seeds=[72], tasks=["here"], options={"fail": True})
    else:
        pool.step([FINE, FAIL])


def caught_from(case: Case, backend: str) -> CorralError:
    workers = {} if backend == "serial" else {"workers": 2}
    at, deed = case.at, case.deed
    envs = [Faulty, lambda: Faulty(at, deed)]
    with (
        pytest.raises(case.error) as caught,
        corral.Pool(
            envs, backend=backend, seed=7, **workers, **dict(case.options)
        ) as pool,
    ):
        provoke(pool, case)
    return caught.value


ROWS = [
    pytest.param(case, backend, id=f"{case}-{backend}")
    for case in CASES
    for backend in (["process"] if case.processes_only else BACKENDS)
]


@pytest.mark.parametrize(("case", "backend"), ROWS)
def test_an_error_says_all_that_is_known(case: Case, backend: str) -> None:
    error = caught_from(case, backend)
    fault, text = error.fault, str(error)
    assert fault is not None
    check_place(fault, text, backend)
    assert (fault.kind, fault.command) == (case.kind, case.command or case.at)
    assert (fault.signal_name, fault.exit_code) == (
        case.signal_name,
        -signal.Signals[case.signal_name] if case.signal_name else case.exit_code,
    )
    for said in case.says:
        assert said in text, f"{said!r} is not in:\n{text}"
    check_episode(fault, case)
    check_cause(error, fault)
    if backend == "process":
        assert f"last words in {case.at}" in fault.output
        assert f"last words in {case.at}" in text


def check_place(fault: Fault, text: str, backend: str) -> None:
    """Slot, worker and process."""
    assert fault.slot == 1
    assert fault.worker == (0 if backend == "serial" else 1)
    assert fault.pid is not None
    assert (f"pid {fault.pid}" in text) == (fault.kind in ("died", "hung"))
    assert (fault.pid == os.getpid()) == (backend != "process")
    # Without worker processes, a worker's number tells nothing.
    assert (f"worker {fault.worker}" in text) == (backend == "process")


def check_episode(fault: Fault, case: Case) -> None:
    """Seed, task and actions of the episode, or the pool's seed before there is one."""
    if case.at == "construct":
        assert fault.seed == 7
        return
    assert fault.seed == (72 if case.at == "reset" else 71)
    assert (fault.task, fault.has_task) == ("here", True)
    assert fault.step == {"reset": 0, "call": 2, "render": 2}.get(case.at, 3)
    actions = [FINE, FINE, FAIL][: fault.step]
    assert [int(action) for action in fault.last_actions] == actions
    assert fault.options == ({"fail": True} if case.at == "reset" else None)


def check_cause(error: CorralError, fault: Fault) -> None:
    """What the env raised, or where it did so, as the cause."""
    if fault.kind in ("died", "hung"):
        return
    assert fault.traceback is not None
    cause = error.__cause__
    if isinstance(cause, RemoteTraceback):
        assert str(fault.error_type) in str(cause)
    else:
        assert cause is fault.exception is not None


def test_a_hung_workers_stack_is_in_the_fault() -> None:
    (case,) = (c for c in CASES if c.deed is hang and c.at == "step")
    error = caught_from(case, "process")
    assert isinstance(error, WorkerHung)
    assert error.fault.limit == 0.5
    assert "hang" in error.fault.stack


# Close --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_cannot_be_closed_is_told_and_not_raised(backend, caplog) -> None:
    workers = {} if backend == "serial" else {"workers": 2}
    envs = [Faulty, lambda: Faulty("close", boom)]
    pool = corral.Pool(envs, backend=backend, **workers)
    pool.reset()
    with caplog.at_level(logging.WARNING, "corral"):
        pool.close()
    (record,) = (r for r in caplog.records if r.name == "corral")
    assert "slot 1" in record.getMessage()
    assert "ZeroDivisionError in close: boom" in record.getMessage()


# Restarts -----------------------------------------------------------------------------


@pytest.mark.parametrize("deed", [boom, vanish], ids=["raised", "died"])
def test_a_slot_restarted_too_often_is_given_up(deed) -> None:
    with corral.Pool(
        lambda: Faulty("step", deed), 2, on_fault="restart", max_restarts=2, seed=7
    ) as pool:
        pool.reset()
        for restarts in range(2):
            fault = pool.step([FINE, FAIL]).infos.of(1)["fault"]
            assert (fault.restarts if deed is boom else restarts) == restarts
        with pytest.raises((EnvError, WorkerDied), match="slot 1") as caught:
            pool.step([FINE, FAIL])
    fault = caught.value.fault
    assert (fault.restarts, fault.gave_up) == (2, True)
    assert "given up after 2 restarts" in str(caught.value)
    assert fault.episode is not None and len(fault.episode.actions) == fault.step


def test_a_worker_whose_successor_cannot_be_built_names_the_culprit(tmp_path) -> None:
    flag = tmp_path / "died"

    def neighbour() -> Faulty:
        if flag.exists():
            raise LookupError("no licence")
        return Faulty()

    envs = [lambda: Faulty("step", functools.partial(vanish_once, flag)), neighbour]

    with (
        pytest.raises(StartError, match="no licence") as caught,
        corral.Pool(
            envs,
            workers=1,
            backend="process",
            isolation="shared",
            on_fault="restart",
            max_restarts=1,
        ) as pool,
    ):
        pool.reset()
        pool.step([FAIL, FINE])
    fault = caught.value.fault
    assert (fault.slot, fault.worker, fault.gave_up) == (1, 0, True)
    assert "no licence" in str(caught.value.__cause__)


def test_a_fault_can_be_copied_with_what_holds_it() -> None:
    (case,) = (c for c in CASES if c.deed is boom and c.at == "step")
    fault = caught_from(case, "serial").fault
    assert fault is not None and fault.episode is not None
    copied = copy.deepcopy({"fault": fault})["fault"]
    assert copied.episode.kit is fault.episode.kit


def test_draining_raises_that_a_worker_has_died() -> None:
    with pool_of("step", kill) as pool:
        pool.reset()
        pool.send([FINE, FAIL])
        with pytest.raises(WorkerDied, match="ended by SIGKILL"):
            pool.drain()


def busy() -> None:
    raise CallPending("inner env busy", "step")


def closed_inside() -> None:
    pool = corral.Pool("CartPole-v1", backend="serial")
    pool.close()
    pool.reset()


def unfit_inside() -> None:
    with corral.Pool("CartPole-v1", 2, backend="serial") as pool:
        pool.reset()
        pool.step(np.zeros((2, 3)))


def unfit_by_hand() -> None:
    raise SpaceMismatch("the map has another shape")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", ["reset", "step", "call"])
@pytest.mark.parametrize(
    ("deed", "name"),
    [
        (busy, "CallPending"),
        (closed_inside, "ClosedError"),
        (unfit_inside, "SpaceMismatch"),
        (unfit_by_hand, "SpaceMismatch"),
    ],
)
def test_errors_of_corral_that_an_env_raises_are_the_envs_own(
    deed: Callable[[], Any], name: str, at: str, backend: str
) -> None:
    workers = None if backend == "serial" else 1
    with pool_of(at, deed, backend=backend, workers=workers) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=f"^slot 1.*: {name} in {at}: ") as caught:
            if at == "reset":
                pool.reset(seeds=[1, 2], options={"fail": True})
            elif at == "step":
                pool.step([FINE, FAIL])
            else:
                pool.call("method")
        assert caught.value.fault.error_type == name
        assert pool.reset().started.all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_that_takes_other_arguments_is_a_start_error_in_a_factory(
    backend: str,
) -> None:
    with pytest.raises(StartError, match="CallPending: inner env busy"):
        pool_of(
            "construct",
            busy,
            backend=backend,
            workers=None if backend == "serial" else 1,
        )


def test_an_env_that_raises_one_is_built_again() -> None:
    with pool_of("step", busy, on_fault="restart") as pool:
        pool.reset()
        step = pool.step([FINE, FAIL])
        assert step.truncated.tolist() == [False, True]
        assert [fault.error_type for fault in pool.faults] == ["CallPending"]


# Words --------------------------------------------------------------------------------


def said_by(pool: corral.Pool, *batches: Any) -> list[str]:
    """The lines of the error that one of these batches of actions ends in."""
    with pytest.raises(CorralError) as caught, pool:
        pool.reset(seeds=range(70, 70 + pool.num_envs), tasks=["up"] * pool.num_envs)
        for actions in batches:
            pool.step(actions)
    return re.sub(r"pid \d+", "pid 9", str(caught.value)).splitlines()


def pool_of(at: str, deed: Callable[[], Any], **options: Any) -> corral.Pool:
    """Two slots in one worker, the second of which does that."""
    envs = [lambda: Faulty("never"), lambda: Faulty(at, deed)]
    asked = {"backend": "process", "workers": 1, "isolation": "shared", "seed": 7}
    return corral.Pool(envs, **{**asked, **options})


EPISODE = ["Episode: seed 71, step 2, task 'up'", f"Last actions: {FINE}, {FAIL}"]
OUTPUT = ["Last output:", "    last words in step"]
OTHERS = '  if envs interfere: isolation="slot"'
REPRODUCE = "  replay: error.fault.save(path), corral.replay(path)"


def test_an_env_that_raises_says_what_where_and_what_to_do() -> None:
    assert said_by(pool_of("step", boom), [FINE, FINE], [FINE, FAIL]) == [
        "slot 1, worker 0: ZeroDivisionError in step: boom",
        *EPISODE,
        *OUTPUT,
        "Next steps:",
        '  continue: on_fault="restart"; if envs interfere: isolation="slot"',
        REPRODUCE,
    ]


def test_so_does_a_worker_that_is_killed() -> None:
    assert said_by(pool_of("step", kill), [FINE, FINE], [FINE, FAIL]) == [
        "slot 1, worker 0, pid 9: the process was ended by SIGKILL during step (often "
        "the out-of-memory killer)",
        "The worker's other slot lost its episode.",
        *EPISODE,
        *OUTPUT,
        "Next steps:",
        "  close the envs and make new ones",
        "  if memory ran out (see the kernel's log): fewer workers, or "
        'isolation="slot" with memory_limit=',
        '  continue after errors: on_fault="restart"',
        REPRODUCE,
    ]


def test_so_does_a_worker_that_hangs() -> None:
    pool = pool_of("step", hang, step_timeout=0.5)
    said = said_by(pool, [FINE, FINE], [FINE, FAIL])
    stack = [line for line in said if line.startswith("    ")]
    assert any("in hang" in line for line in stack)
    assert not any("corral/engine" in line for line in stack)
    assert [line for line in said if line not in stack] == [
        "slot 1, worker 0, pid 9: step took longer than 0.5 s",
        "The worker's other slot lost its episode.",
        *EPISODE,
        "Stack:",
        "Last output:",
        "Next steps:",
        "  close the envs and make new ones",
        "  if it is only slow, allow more time: step_timeout=",
        '  continue after errors: on_timeout="restart"',
        REPRODUCE,
    ]


def test_last_output_of_a_crash_has_no_frames_of_ours_but_a_traceback_has() -> None:
    ours = f'File "{letters.__file__}", line'
    output = [
        "Fatal Python error: Segmentation fault",
        '  File "robot.py", line 3 in step',
        f"  {ours} 4 in serve",
        f"  {ours} 5, in serve",
        "    handle(entry)",
    ]
    fault = Fault("died", "step", signal_name="SIGSEGV", output="\n".join(output))
    said = str(error_for(fault)).splitlines()
    del output[2]
    assert said[2 : 2 + len(output)] == [f"    {line}" for line in output]


def test_so_do_actions_of_another_shape() -> None:
    pool = pool_of("step", boom, backend="serial", workers=None)
    assert said_by(pool, np.zeros((2, 3))) == [
        "actions has shape (2, 3); expected (2,): one for each of 2 slots"
    ]


def test_so_does_a_factory_that_fails() -> None:
    with pytest.raises(StartError) as caught:
        pool_of("construct", boom)
    assert str(caught.value).splitlines() == [
        "slot 1, worker 0 could not be built: ZeroDivisionError: boom",
        "Pool seed: 7",
        "Last output:",
        "    last words in construct",
        "Next steps:",
        '  debug it in your own process: backend="serial"',
        OTHERS,
        REPRODUCE,
    ]


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_next_steps_name_processes_where_the_pool_has_none(backend: str) -> None:
    asked = {"backend": backend, "workers": None if backend == "serial" else 1}
    raised = said_by(pool_of("step", boom, **asked), [FINE, FAIL])
    assert raised[raised.index("Next steps:") + 1 :] == [
        '  continue: backend="process", on_fault="restart"; if envs interfere: '
        'isolation="slot"',
        REPRODUCE,
    ]
    with pytest.raises(StartError) as caught:
        pool_of("construct", boom, **asked)
    assert str(caught.value).partition("Next steps:\n")[2].splitlines() == [
        '  if envs interfere: backend="process", isolation="slot"',
        REPRODUCE,
    ]
    with pytest.raises(ItemError) as of_item:
        corral.map(lambda _: boom(), [0], backend=backend)
    again = '  run such items again: backend="process", on_fault="restart"'
    assert str(of_item.value).splitlines() == [
        "item 0: ZeroDivisionError in map: boom",
        "Next steps:",
        again,
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["per_worker", "worker_init"])
def test_a_function_that_prepares_workers_is_named_if_it_raises(
    name: str, backend: str
) -> None:
    functions: dict[str, Any] = {name: boom}
    said = f"^worker 0: {name} raised ZeroDivisionError: boom"
    with pytest.raises(StartError, match=said):
        corral.map(abs, [1], backend=backend, **functions)
    with pytest.raises(StartError, match=said) as caught:
        corral.Pool(Faulty, 2, backend=backend, **functions)
    assert caught.value.fault.raised_by == name


class Adds(Faulty):
    """Raises numpy's error for actions of another shape."""

    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action: Any) -> Any:
        np.zeros(2) + action
        return super().step(0)


@pytest.mark.parametrize(
    "name", ["SyncVectorEnv", "AsyncVectorEnv", "DummyVecEnv", "SubprocVecEnv"]
)
def test_where_an_action_did_not_fit_its_space_the_error_says_so(name: str) -> None:
    if name.endswith("VecEnv"):
        pytest.importorskip("stable_baselines3", reason="its drop-ins need it")
    made = getattr(dropin, name)
    envs = made([lambda: Adds("never")] * 2)
    with pytest.raises(ValueError, match="broadcast") as caught:
        envs.reset()
        envs.step(np.zeros((2, 3), np.float32))
    envs.close()
    assert cause(caught)[-2:] == [
        "Next steps:",
        "  an action did not fit the action space: check_actions=True says how",
    ]
    envs = made([lambda: Adds("never")] * 2, check_actions=True)
    with pytest.raises(SpaceMismatch, match=r"shape \(2, 3\); expected \(2, 2\)"):
        envs.reset()
        envs.step(np.zeros((2, 3), np.float32))
    envs.close()


def test_actions_of_agents_are_shown_by_agent_on_one_line() -> None:
    class Pair(Pettingzoo):
        def step(self, actions: Any) -> Any:
            raise ValueError("joint 3")

    with (
        corral.make_multi(Pair, 2, backend="serial") as envs,
        pytest.raises(EnvError) as caught,
    ):
        envs.reset()
        envs.step({"a": np.full((2, 2), 0.5), "b": np.zeros((2, 2))})
    line = "Last actions: {a: [0.5, 0.5], b: [0., 0.]}"
    assert line in str(caught.value).splitlines()
    assert caught.value.fault.last_actions[0]["a"].tolist() == [0.5, 0.5]


class Pettingzoo:
    """Two agents with equal spaces."""

    possible_agents = ("a", "b")
    metadata: ClassVar[dict[str, Any]] = {"name": "pair"}

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(2)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents = [*self.possible_agents]
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def close(self) -> None:
        """Nothing to close."""


def test_evaluate_closes_its_own_envs_and_tells_nobody_to() -> None:
    envs = [lambda: Faulty("step", kill)]
    always: Any = Fixed(FAIL)
    with pytest.raises(WorkerDied) as caught:
        corral.evaluate(always, envs, 1, backend="process")
    assert caught.value.fault.closed and "close the envs" not in str(caught.value)
    with (
        corral.Pool(envs, backend="process") as pool,
        pytest.raises(WorkerDied, match="close the envs and make new ones"),
    ):
        corral.evaluate(always, pool, 1)


def test_calls_of_stable_baselines3_that_only_read_are_no_note_of_a_replay() -> None:
    pytest.importorskip("stable_baselines3", reason="make_sb3 needs it")
    envs = corral.make_sb3(lambda: Faulty("step", boom), 1, backend="serial")
    counts = []
    for changes in (0, 1):
        if changes:
            envs.set_attr("name", "new")
        with pytest.raises(ZeroDivisionError) as caught:
            envs.get_attr("deed")
            envs.reset()
            envs.step(np.array([FAIL]))
        fault: Any = caught.value.__cause__
        notes = " ".join(fault.fault.episode.notes)
        counts.append("1 call to the envs" in notes)
        assert ("calls to the envs" in notes) is False
    envs.close()
    assert counts == [False, True]


class Fixed:
    """A policy that always chooses the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, step: Any, carry: Any, rng: Any) -> corral.Decision:
        return corral.Decision(np.full(len(step.obs), self.action))

    def value(self, obs: Any, carry: Any = None) -> Any:
        return np.zeros(len(obs))


@pytest.mark.parametrize(
    ("here", "apart"),
    [("DummyVecEnv", "SubprocVecEnv"), ("SyncVectorEnv", "AsyncVectorEnv")],
)
def test_next_steps_name_the_other_drop_in_in_place_of_a_backend(
    here: str, apart: str
) -> None:
    if here == "DummyVecEnv":
        pytest.importorskip("stable_baselines3", reason="its drop-ins need it")
    envs = getattr(dropin, here)([lambda: Faulty("step", boom)])
    with pytest.raises(ZeroDivisionError) as caught:
        envs.reset()
        envs.step(np.array([FAIL]))
    envs.close()
    assert f'  continue after errors: {apart}(..., on_fault="restart")' in cause(caught)
    with pytest.raises(ZeroDivisionError) as caught:
        getattr(dropin, apart)([lambda: Faulty("construct", boom)])
    assert f"  debug it in your own process: {here}" in cause(caught)


def cause(caught: pytest.ExceptionInfo[Any]) -> list[str]:
    """The lines of what caused an error."""
    return str(caught.value.__cause__).splitlines()


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_the_envs_own_exception_is_raised_its_cause_has_the_fault(
    backend: str, tmp_path: Path
) -> None:
    envs = corral.make(lambda: Faulty("step", boom), 1, backend=backend)
    with envs, pytest.raises(ZeroDivisionError) as caught:
        envs.reset(seed=3)
        envs.step(np.array([FAIL]))
    error: Any = caught.value
    wanted = "replay: error.__cause__.fault.save(path), corral.replay(path)"
    assert wanted in str(error.__cause__)
    error.__cause__.fault.save(tmp_path / "fault.zip")
    assert "error.fault" not in str(error.__cause__)


def words_of(**fields: Any) -> str:
    return str(error_for(Fault(worker=2, pid=9, **fields)))


def test_a_slot_that_was_given_up_says_after_how_many_restarts() -> None:
    text = words_of(kind="died", command="step", slot=3, restarts=4, gave_up=True)
    assert "given up after 4 restarts" in text and "max_restarts=" in text
    again = words_of(kind="died", command="step", slot=3, restarts=1)
    assert "Before that: 1 restart\n" in again and "max_restarts=" not in again


def test_a_shardmate_says_who_took_its_worker_down() -> None:
    text = words_of(kind="shardmate", command="step", slot=3, beside=5)
    assert "slot 3" in text and "because slot 5 ended its worker" in text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError(2, "No such file"), "set_executable"),
        (OSError(24, "Too many open files"), "ulimit -n"),
        (OSError(28, "No space left on device"), "--shm-size"),
        (OSError(27, "File too large"), "ulimit -f"),
        (OSError(12, "Cannot allocate memory"), "fewer"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "ulimit -u"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_worker_that_could_not_be_started_says_which_limit(error, says) -> None:
    text = words_of(
        kind="start",
        command="start",
        error_type=type(error).__name__,
        error_text=str(error),
        exception=error,
    )
    assert "could not be built" in text and says in text


def test_a_bus_error_speaks_of_memory() -> None:
    text = words_of(kind="died", command="step", exit_code=-7, signal_name="SIGBUS")
    assert "often full shared memory" in text and "more memory" in text


def test_big_actions_are_shown_in_short() -> None:
    text = words_of(kind="raised", command="step", last_actions=(np.zeros(5000),) * 8)
    assert "Last actions: [0., 0., 0., ..., 0., 0., 0.]" in text
    assert len(text) < 1000


def test_a_fault_error_survives_pickling() -> None:
    (case,) = (c for c in CASES if c.deed is boom and c.at == "step")
    for backend in ("serial", "process"):
        error = caught_from(case, backend)
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert isinstance(again, EnvError) and again.fault.slot == 1
        assert replace(again.fault, last_actions=()) == replace(
            error.fault, last_actions=()
        )
