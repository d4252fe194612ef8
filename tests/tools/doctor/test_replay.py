"""A fault that was saved is run again, up to the step that failed."""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import pickle
import random
import threading
import traceback
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from walking_env import Walk, crash, hang, unfit

import corral
from corral.engine.faults import fault_file
from corral.engine.worker.seeds import episode_seed
from corral.errors import (
    CorralError,
    Fault,
    OptionError,
    OrderError,
    SpaceMismatch,
    UnsafeFile,
    WorkerDied,
    WorkerHung,
)
from corral.tools.doctor.replay import replay

BACKENDS = ["serial", "thread", "process"]


def fail(
    path: Path | None,
    env: Any = Walk,
    num_envs: int = 3,
    *,
    steps: int = 12,
    reset: dict[str, Any] | None = None,
    dtype: Any = np.float32,
    **options: Any,
) -> CorralError:
    """Step until it fails, and save why."""
    rng = np.random.default_rng(5)
    options.setdefault("seed", 3)
    if options.setdefault("backend", "process") == "process":
        options.setdefault("workers", 2)
    with (
        pytest.raises(CorralError) as caught,
        corral.Pool(env, num_envs, **options) as pool,
    ):
        pool.reset(**(reset or {}))
        for _ in range(steps):
            pool.step(rng.uniform(-1, 1, (num_envs, 2)).astype(dtype))
    error = caught.value
    assert error.fault is not None
    if path is not None:
        error.fault.save(path)
    return error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fault.zip"


# Episodes -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_episode_fails_in_the_same_way(path, backend) -> None:
    error = fail(path, backend=backend)
    with replay(path) as replayed:
        assert replayed.reproduced
        assert (replayed.command, replayed.step) == ("step", 12)
        assert isinstance(replayed.error, ArithmeticError)
        # Every action and every random number was the same.
        assert str(replayed.error) == error.fault.error_text
        assert replayed.error.__traceback__ is not None
        assert replayed.env.steps == 12
        assert "reproduced in step 12: ArithmeticError" in str(replayed)


def test_tasks_and_options_are_part_of_it(path) -> None:
    reset = {"tasks": [7, 8, 9], "options": {"map": "hills"}}
    error = fail(path, reset=reset)
    assert "{'map': 'hills', 'task': 7}" in error.fault.error_text
    with replay(path) as replayed:
        assert str(replayed.error) == error.fault.error_text


def test_actions_that_do_not_fit_the_dtype_are_kept_as_they_were(path) -> None:
    error = fail(path, dtype=np.float64)
    assert error.fault.last_actions[0].dtype == np.float64
    with replay(path) as replayed:
        assert str(replayed.error) == error.fault.error_text


def test_actions_of_either_dtype_can_be_mixed(path) -> None:
    rng = np.random.default_rng(5)
    with corral.Pool(Walk, 1, backend="serial") as pool:
        pool.reset()
        with pytest.raises(CorralError) as caught:
            for step in range(12):
                dtype = np.float64 if step % 3 else np.float32
                pool.step(rng.uniform(-1, 1, (1, 2)).astype(dtype))
    fault = caught.value.fault
    fault.save(path)
    with replay(path) as replayed:
        assert str(replayed.error) == fault.error_text


def test_a_later_episode_is_the_one_that_is_run_again(path) -> None:
    class Short(Walk):
        def step(self, action):
            obs, reward, _, _, info = super().step(action)
            over = self.steps == 5 and self.position[0] < 9
            if over and self.about.get("task") == "last":
                raise ArithmeticError(str(self.position.tolist()))
            return obs, reward, over, False, info

    for autoreset in ("same_step", "next_step"):
        rng = np.random.default_rng(5)
        with corral.Pool(Short, 2, backend="serial", autoreset=autoreset) as pool:
            pool.reset()
            for step in range(13):
                pool.step(rng.uniform(-1, 1, (2, 2)).astype(np.float32))
                if step == 6:
                    pool.assign(1, "last")
            with pytest.raises(CorralError) as caught:
                for _ in range(12):
                    pool.step(rng.uniform(-1, 1, (2, 2)).astype(np.float32))
        fault = caught.value.fault
        assert (fault.slot, fault.step) == (1, 5)
        fault.save(path)
        with replay(path) as replayed:
            assert replayed.reproduced and str(replayed.error) == fault.error_text


def test_global_generators_are_the_same_where_they_were_isolated(path) -> None:
    class Dicey(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.born = random.random(), np.random.random()

        def step(self, action):
            if self.steps == 3:
                raise ArithmeticError(
                    f"{self.born} {random.random()} {np.random.random()}"
                )
            random.random()
            return super().step(action)

    error = fail(path, Dicey, isolate_rng=True)
    before = random.getstate()
    with replay(path) as replayed:
        assert str(replayed.error) == error.fault.error_text
    assert random.getstate() == before


def test_what_stands_beside_the_env_is_built_again(path) -> None:
    class Beside(Walk):
        def step(self, action):
            worker = corral.this_worker()
            raise ArithmeticError(
                f"{worker.resource} {worker.index} {worker.slots} {worker.device} "
                f"{worker.shared['prices'].tolist()}"
            )

    error = fail(
        path,
        Beside,
        4,
        per_worker=lambda: "model",
        shared={"prices": np.arange(3)},
        devices=["cpu:0"],
    )
    with replay(path) as replayed:
        assert str(replayed.error) == error.fault.error_text
    with pytest.raises(OrderError):
        corral.this_worker()


def test_shared_arrays_too_big_to_be_saved_are_asked_for(path, monkeypatch) -> None:
    monkeypatch.setattr("corral.engine.worker.rebuild_spec.MAX_SHARED_BYTES", 8)

    class Beside(Walk):
        def step(self, action):
            raise ArithmeticError(str(corral.this_worker().shared["prices"].sum()))

    prices = np.arange(9)
    fail(path, Beside, shared={"prices": prices}, backend="serial")
    with pytest.raises(OptionError, match=r"prices were too big.*shared="):
        replay(path)
    with replay(path, shared={"prices": prices}) as replayed:
        assert replayed.reproduced


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_resets_constructors_and_calls_are_run_again_too(path, backend) -> None:
    error = fail(path, reset={"options": {"fail": True}}, backend=backend)
    with replay(path) as replayed:
        assert (replayed.reproduced, replayed.command) == (True, "reset")
        assert str(replayed.error) == error.fault.error_text

    def refuse() -> Any:
        raise MemoryError("no room")

    fail(path, [Walk, Walk, refuse], None, backend=backend)
    with replay(path) as replayed:
        assert (replayed.reproduced, replayed.command) == (True, "construct")
    fail(path, per_worker=refuse, backend=backend)
    assert replay(path).reproduced

    with corral.Pool(Walk, 2, backend=backend, seed=1) as pool:
        pool.reset()
        pool.step(np.ones((2, 2), np.float32))
        with pytest.raises(CorralError) as caught:
            pool.call("ask", 42, slots=[1])
    fault = caught.value.fault
    fault.save(path)
    with replay(path) as replayed:
        assert (replayed.reproduced, replayed.command) == (True, "call")
        assert str(replayed.error) == fault.error_text


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_env_that_raises_a_keyboard_interrupt_gives_a_result(path, backend) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    fail(path, functools.partial(Walk, interrupt))
    with replay(path, backend=backend) as replayed:
        assert replayed.reproduced
        assert "reproduced in step 12: KeyboardInterrupt\n" in f"{replayed}\n"
        assert (replayed.env is None) == (backend == "process")


def test_ctrl_c_ends_a_replay(path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    flag = path.with_name("flag")
    flag.touch()
    fail(path, functools.partial(Walk, lambda: 1 / 0 if flag.exists() else interrupt()))
    flag.unlink()
    with pytest.raises(KeyboardInterrupt):
        replay(path)


def test_a_constructor_that_fails_has_the_pools_seed(path) -> None:
    def refuse() -> Any:
        raise MemoryError("no room")

    fail(path, [Walk, refuse], None)
    replayed = replay(path, backend="process")
    assert replayed.reproduced
    assert "Pool seed: 3" in str(replayed.error)
    assert "Episode" not in str(replayed.error)
    with replay(path) as replayed:
        frames = traceback.extract_tb(replayed.error.__traceback__)
        assert [frame.name for frame in frames] == ["refuse"]


def test_what_does_not_fit_its_space_does_not_fit_here_either(path) -> None:
    fail(path, functools.partial(Walk, unfit))
    with replay(path) as replayed:
        assert replayed.reproduced and isinstance(replayed.error, SpaceMismatch)


def test_registered_envs_are_known_where_it_is_replayed(path) -> None:
    gym.register("Walk-v99", entry_point=lambda: Walk(), disable_env_checker=True)
    try:
        fail(path, "Walk-v99", env_kwargs={"order_enforce": False})
    except BaseException:
        gym.registry.pop("Walk-v99")
        raise
    gym.registry.pop("Walk-v99")
    try:
        with replay(path) as replayed:
            assert replayed.reproduced
    finally:
        gym.registry.pop("Walk-v99", None)


# Ends of processes --------------------------------------------------------------------


def test_an_episode_that_takes_its_process_down_gets_one_of_its_own(
    path, capfd
) -> None:
    error = fail(path, functools.partial(Walk, crash))
    capfd.readouterr()
    assert isinstance(error, WorkerDied)
    assert len(error.fault.episode.actions) == error.fault.step == 12
    replayed = replay(path)
    assert replayed.reproduced and replayed.env is None
    assert (replayed.command, replayed.step) == ("step", 12)
    assert isinstance(replayed.error, WorkerDied)
    assert replayed.error.fault.signal_name == "SIGSEGV"
    said, shown = str(replayed), "".join(capfd.readouterr())
    assert said.count("in crash") == 1 and "Fatal" not in shown
    assert said.count(f"slot {error.fault.slot}") == 1 == said.count("step 12")
    assert "seed" not in said and f"seed {error.fault.seed}" in str(replayed.error)
    assert "rerun.py" not in said
    with pytest.raises(WorkerDied):
        replay(path, raise_error=True)


def test_one_can_stop_before_it_happens(path) -> None:
    fail(path, functools.partial(Walk, crash))
    with replay(path, up_to="before") as replayed:
        assert replayed.reproduced is None and replayed.error is None
        assert replayed.env.steps == 11
        assert replayed.obs.shape == replayed.action.shape == (2,)
        replayed.env.unwrapped.deed = None  # else this would be the end
        with pytest.raises(ArithmeticError):
            replayed.go_on()
    with pytest.raises(OptionError, match='up_to="before"'):
        replay(path, debugger=True)


def test_an_episode_that_hung_hangs_for_as_long_as_it_was_given(path, capfd) -> None:
    limits = {"step_timeout": 0.4, "close_timeout": 0.5}  # the others hang as well
    error = fail(path, functools.partial(Walk, hang), **limits)
    assert isinstance(error, WorkerHung)
    capfd.readouterr()
    replayed = replay(path)
    assert replayed.reproduced and isinstance(replayed.error, WorkerHung)
    assert "in hang" in replayed.error.fault.stack
    said, shown = str(replayed), "".join(capfd.readouterr())
    assert said.count("in hang") == 1 and "Timeout" not in said + shown
    assert "rerun.py" not in said


@pytest.mark.parametrize("first", [1, 0])
def test_a_command_before_it_may_not_hang_for_ever_either(
    path, monkeypatch, first
) -> None:
    monkeypatch.setattr("corral.tools.doctor.replay.REPLAY_TIMEOUT_SECONDS", 1.5)
    flag = path.with_name("flag")
    flag.touch()

    class Elsewhere(Walk):
        def __init__(self) -> None:
            super().__init__()
            if not flag.exists() and not first:
                hang()

        def step(self, action):
            if not flag.exists() or self.steps == 2:
                hang()
            return super().step(action)

    options = {"step_timeout": 0.4, "close_timeout": 0.5, "isolation": "shared"}
    fail(path, Elsewhere, 1, **options)
    flag.unlink()
    replayed = replay(path)
    assert replayed.reproduced is False
    assert isinstance(replayed.error, WorkerHung)
    at = ("step", 1) if first else ("construct", 0)
    assert (replayed.command, replayed.step) == at
    assert "in hang" in replayed.error.fault.stack
    assert "took longer than 1.5 s" in str(replayed)


@pytest.mark.parametrize("deed", ["cancel", "rearm"])
def test_an_env_that_takes_the_timer_hangs_no_longer(path, monkeypatch, deed) -> None:
    monkeypatch.setattr("corral.tools.doctor.replay.REPLAY_TIMEOUT_SECONDS", 1.5)

    def take_and_hang() -> None:
        if deed == "cancel":
            faulthandler.cancel_dump_traceback_later()
        else:
            faulthandler.dump_traceback_later(500, exit=True)
        hang()

    fail(path, functools.partial(Walk, take_and_hang), 1, step_timeout=0.4)
    replayed = replay(path)
    assert replayed.reproduced and isinstance(replayed.error, WorkerHung)
    assert "in take_and_hang" in replayed.error.fault.stack


def test_a_child_that_crashes_first_does_not_hide_that_it_hung(path, capfd) -> None:
    def fork_and_hang() -> None:
        if (child := os.fork()) == 0:
            crash()
        os.waitpid(child, 0)
        hang()

    fail(path, functools.partial(Walk, fork_and_hang), 1, step_timeout=1.5)
    said = "".join(capfd.readouterr())
    assert "Segmentation fault" in said  # of the child
    replayed = replay(path)
    assert replayed.reproduced and isinstance(replayed.error, WorkerHung)
    assert "in hang" in replayed.error.fault.stack
    assert "Extension modules" not in str(replayed)


def test_a_death_that_does_not_happen_again_is_told(path) -> None:
    def once() -> Any:
        if not flag.exists():
            flag.touch()
            os._exit(4)
        return np.zeros(2), 0.0, False, False, {}

    flag = path.with_name("flag")
    # Shared: a trial run would be the one that dies.
    fail(path, functools.partial(Walk, once), isolation="shared")
    replayed = replay(path)
    assert replayed.reproduced is False and replayed.error is None
    assert "nothing went wrong up to step 12" in str(replayed)


def test_the_task_of_a_dead_workers_episode_is_known(path) -> None:
    class Tasked(Walk):
        def step(self, action):
            if self.about.get("task") == "dark" and self.steps == 3:
                os._exit(9)
            return super().step(action)

    def sample_task(slot: int, episode: int, rng: Any) -> str:
        return "dark" if slot == 2 else "light"

    error = fail(path, Tasked, sample_task=sample_task)
    assert (error.fault.slot, error.fault.task) == (2, "dark")
    assert replay(path).reproduced
    error = fail(path, Tasked, reset={"tasks": ["light", "dark", "light"]})
    assert (error.fault.slot, error.fault.task) == (1, "dark")
    assert replay(path).reproduced


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("deed", ["exit", "raise"])
def test_a_reset_that_nobody_asked_for_has_its_own_seed(path, autoreset, deed) -> None:
    doomed = episode_seed(3, 0, 1)  # the second episode of slot 0

    class Ending(Walk):
        def reset(self, *, seed=None, options=None):
            if seed == doomed and deed == "exit":
                os._exit(9)
            if seed == doomed:
                raise LookupError("doomed")
            return super().reset(seed=seed, options=options)

        def step(self, action):
            obs, reward, _, _, info = super().step(action)
            return obs, reward, self.steps == 3, False, info

    error = fail(path, Ending, autoreset=autoreset)
    fault = error.fault
    assert (fault.slot, fault.command, fault.seed) == (0, "reset", doomed)
    assert (fault.step, fault.last_actions) == (0, ())
    with replay(path) as replayed:
        assert (replayed.reproduced, replayed.command) == (True, "reset")


def test_mended_faults_can_be_replayed_as_well(path) -> None:
    rng = np.random.default_rng(5)

    class Both(Walk):
        def step(self, action):
            if action[0] > 0.95 and self.steps == 4:
                os._exit(9)
            return super().step(action)

    with corral.Pool(
        Both, 2, backend="process", workers=2, on_fault="restart", seed=3
    ) as pool:
        pool.reset()
        for step in range(13):
            actions = rng.uniform(-0.9, 0.9, (2, 2)).astype(np.float32)
            actions[1, 0] = 1.0 if step == 4 else 0.0
            result = pool.step(actions)
            if step == 4:
                died = result.infos.of(1)["fault"]
            if step == 11:
                raised = result.infos.of(0)["fault"]
        assert [fault.kind for fault in pool.faults] == ["died", "raised"]
        kept = pool.faults
    for fault, kept_one in zip((died, raised), kept, strict=True):
        fault.save(path)
        with replay(path) as replayed:
            assert replayed.reproduced, str(replayed)
        assert kept_one.episode is not None
        assert len(kept_one.episode.actions) == fault.step


# Episodes that cannot be had again ----------------------------------------------------


def test_an_episode_longer_than_the_block_keeps_is_refused(path) -> None:
    class Wide(Walk):
        action_space = gym.spaces.Box(-1, 1, (1000, 2), np.float32)

        def step(self, action):
            return super().step(action[0])

    with corral.Pool(lambda: Wide(last=300), 8, backend="serial") as pool:
        pool.reset()
        with pytest.raises(CorralError) as caught:
            for _ in range(300):
                pool.step(np.zeros((8, 1000, 2), np.float32))
    assert len(caught.value.fault.last_actions) == 8
    assert "cannot be replayed: it had 300 steps" in str(caught.value)
    caught.value.fault.save(path)
    with pytest.raises(OptionError, match=r"300 steps.*last 64.*from step 237 on"):
        replay(path)


def test_an_episode_without_a_seed_is_begun_bare_and_says_so(path) -> None:
    envs = corral.make(Walk, 2, backend="serial", autoreset="same_step")
    with pytest.raises(ArithmeticError) as caught:
        envs.reset()
        for _ in range(12):
            envs.step(np.zeros((2, 2), np.float32))
    envs.close()
    ours = caught.value.__cause__
    assert isinstance(ours, CorralError) and ours.fault is not None
    ours.fault.save(path)
    with replay(path) as replayed:
        assert replayed.reproduced  # by luck: it depends on no random number
        assert "began without a seed" in str(replayed)


def test_questions_put_before_are_told_of(path) -> None:
    with corral.Pool(Walk, 1, backend="serial") as pool:
        pool.reset()
        pool.set_attr("last", 2)
        assert pool.get_attr("last") == (2,)  # changes nothing, and is not told of
        with pytest.raises(CorralError) as caught:
            for _ in range(3):
                pool.step(np.zeros((1, 2), np.float32))
    caught.value.fault.save(path)
    with replay(path) as replayed:
        assert replayed.reproduced is False
        assert "made 1 call to the envs before" in str(replayed)


def test_mailed_actions_are_not_kept(path) -> None:
    class Told(gym.Env[Any, Any]):
        observation_space = gym.spaces.Discrete(2)
        action_space = gym.spaces.Text(5)

        def reset(self, **_):
            return 0, {}

        def step(self, action):
            raise ValueError(action)

    with corral.Pool(Told, 1, backend="serial") as pool:
        pool.reset()
        with pytest.raises(CorralError) as caught:
            pool.step(["go"])
    caught.value.fault.save(path)
    with pytest.raises(OptionError, match="no fixed size"):
        replay(path)


def test_a_factory_that_cannot_be_pickled_is_named(path) -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return Walk()

    fail(path, make, backend="serial")
    with pytest.raises(OptionError, match="'lock'"):
        replay(path)
    assert "'lock'" in zipfile.ZipFile(path).read("report.txt").decode()


def test_faults_without_an_episode_are_saved_and_refused(path) -> None:
    Fault("start", "start", worker=1, error_type="OSError", error_text="no").save(path)
    with pytest.raises(OptionError, match="no episode"):
        replay(path)


# Options ------------------------------------------------------------------------------


def test_what_the_env_raises_can_be_raised(path) -> None:
    fail(path, backend="serial")
    with pytest.raises(ArithmeticError):
        replay(path, raise_error=True)


def test_a_debugger_is_put_where_it_failed(path, monkeypatch) -> None:
    fail(path, backend="serial")
    frames = []

    def look(trace: Any) -> None:
        while trace.tb_next is not None:
            trace = trace.tb_next
        frames.append(trace.tb_frame.f_locals["self"].steps)

    monkeypatch.setattr("pdb.post_mortem", look)
    replay(path, debugger=True).close()
    assert frames == [12]


def test_options_that_have_no_meaning_are_refused(path) -> None:
    fail(path, backend="serial")
    for wrong in ({"up_to": "end"}, {"backend": "thread"}):
        with pytest.raises(OptionError):
            replay(path, **wrong)
    with pytest.raises(OptionError, match='backend="serial"'):
        replay(path, backend="process", up_to="before")
    with replay(path) as replayed, pytest.raises(OrderError, match="before"):
        replayed.go_on()


# Files --------------------------------------------------------------------------------


def test_a_report_can_be_read_by_people_and_programs(path) -> None:
    error = fail(path)
    with zipfile.ZipFile(path) as archive:
        report = archive.read("report.txt").decode()
        table = json.loads(archive.read("fault.json"))
    assert str(error).splitlines()[0] in report
    assert "Actions of the episode" in report and "Traceback" in report
    assert table["error_type"] == "ArithmeticError"
    assert (table["version"], table["replayable"]) == (1, True)
    assert table["slot"] == error.fault.slot and len(table["last_actions"]) == 8


def test_a_file_is_its_owners_alone_and_replaced_when_whole(path) -> None:
    path.write_text("older")
    fail(path, backend="serial")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def rewritten(path, **changes) -> None:
    """The same file with other members; None for one that is left out."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, **changes}.items():
            if data is not None:
                archive.writestr(name, data)


def refused(path, why, monkeypatch) -> None:
    """That nothing of it is unpickled, and the way to read it is named."""
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", None)
        with pytest.raises(UnsafeFile, match=rf"{why}.*unzip -p .*trust=True"):
            replay(path)


def test_a_file_that_was_changed_is_not_opened(path, monkeypatch) -> None:
    fail(path, backend="serial")
    evil = pickle.dumps(exec)
    rewritten(path, **{"fault.pickle": evil})
    refused(path, "was changed after it was signed", monkeypatch)


def test_a_file_without_a_signature_is_opened_by_trust_alone(path, monkeypatch) -> None:
    fail(path, backend="serial")
    rewritten(path, signature=None)
    refused(path, "is not signed", monkeypatch)
    with replay(path, trust=True) as replayed:
        assert replayed.reproduced


def test_a_file_of_another_user_is_not_opened(path, monkeypatch, tmp_path) -> None:
    fail(path, backend="serial")
    (tmp_path / "private").mkdir(mode=0o700)
    monkeypatch.setenv("CORRAL_KEY", str(tmp_path / "private" / "key"))
    refused(path, "is signed with another key", monkeypatch)


def test_a_signature_of_a_run_is_none_of_a_fault(path, monkeypatch) -> None:
    from corral.engine.faults import signatures

    fail(path, backend="serial")
    evil = pickle.dumps(exec)
    signed = signatures.sign(signatures.RUN_FILE, evil)
    rewritten(path, **{"fault.pickle": evil, "signature": signed})
    refused(path, "was changed after it was signed", monkeypatch)


def test_without_a_key_a_fault_is_saved_unsigned(path, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("CORRAL_KEY", str(tmp_path / "file" / "key"))
        fail(path, backend="serial")
    refused(path, "is not signed", monkeypatch)


def test_what_is_no_saved_fault_is_refused(path) -> None:
    path.write_text("hello")
    path.chmod(0o600)
    with pytest.raises(OptionError, match="is not a saved fault"):
        replay(path)
    with pytest.raises(FileNotFoundError):
        replay(path.with_name("nothing"))


def test_another_format_is_refused_with_a_way_to_read_it(path, monkeypatch) -> None:
    monkeypatch.setattr(fault_file, "VERSION", 99)
    fail(path, backend="serial")
    monkeypatch.undo()
    with pytest.raises(OptionError, match=r"format 99.*unzip -p"):
        replay(path)


def test_what_cannot_be_pickled_is_saved_in_words(path) -> None:
    error = fail(None, backend="serial", reset={"tasks": [threading.Lock()] * 3})
    error.fault.save(path)
    loaded = fault_file.load(path)
    assert "lock" in loaded.task
    assert loaded == replace(
        error.fault, task=loaded.task, last_actions=loaded.last_actions
    )
    with pytest.raises(OptionError, match="cannot be pickled"):
        replay(path)
