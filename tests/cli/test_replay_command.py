"""`corral replay FILE`: what went wrong then, and whether it does now."""

from __future__ import annotations

import argparse
import functools
import os
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import corral
from corral.cli import doctor
from corral.cli.main import main
from corral.errors import CorralError, Fault, OptionError, UnsafeFile


class Stumbling(gym.Env[Any, Any]):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, flag: str = "") -> None:
        self.flag = flag

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        if self.flag and not os.path.exists(self.flag):
            return 0, 0.0, False, False, {}
        if action:
            raise ValueError("stumbled")
        return 0, 0.0, False, False, {}


class Aborting(Stumbling):
    def step(self, action):
        if action:
            os.abort()
        return 0, 0.0, False, False, {}


def unbuilt() -> Stumbling:
    raise FileNotFoundError("no such file: robot.urdf")


class Jealous(Stumbling):
    """Fails in its second step where another one of its process has taken one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.steps = folder, 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return super().reset()

    def step(self, action):
        self.steps += 1
        (self.folder / f"{os.getpid()}-{id(self)}").touch()
        others = len(list(self.folder.glob(f"{os.getpid()}-*"))) > 1
        if self.steps == 2 and others:
            raise ValueError("not alone")
        return 0, 0.0, False, False, {}

    def close(self):
        (self.folder / f"{os.getpid()}-{id(self)}").unlink(missing_ok=True)


def doctor_says(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(arguments))


def saved(path: Path, env: Any = Stumbling) -> str:
    with corral.Pool(env, 2, backend="serial", seed=0) as pool:
        pool.reset()
        pool.step([0, 0])
        with pytest.raises(CorralError) as caught:
            pool.step([0, 1])
    assert caught.value.fault is not None
    caught.value.fault.save(path)
    return str(path)


def test_a_fault_is_shown_as_it_was_and_as_it_is(tmp_path, capsys) -> None:
    assert doctor_says("--replay", saved(tmp_path / "fault.zip")) == 0
    said = capsys.readouterr().out
    then, now = said.split("Now:")
    assert "slot 1: ValueError in step: stumbled" in then
    assert "Last actions: 0, 1" in then
    assert "reproduced in step 2: ValueError: stumbled" in now
    assert "test_replay_command.py" in now  # where it happened


def test_the_command_of_its_own_says_the_same(tmp_path, capsys) -> None:
    path = saved(tmp_path / "fault.zip")
    said = []
    for command in (["replay", path], ["doctor", "--replay", path]):
        assert main(command) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main(["replay", str(tmp_path / "none.zip")]) == 2
    assert "corral replay: there is no file" in capsys.readouterr().err


def test_one_that_fails_beside_another_env_alone_is_reproduced(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("corral.tools.doctor.neighbours.RUNS", 1)
    path = saved(tmp_path / "fault.zip", functools.partial(Jealous, tmp_path))
    assert main(["replay", path]) == 0
    out = capsys.readouterr().out
    assert "not reproduced: nothing went wrong" in out
    assert 'They interfere with each other: backend="process", isolation="slot"' in out


def test_a_crash_is_told_once(tmp_path, capsys) -> None:
    path = str(tmp_path / "fault.zip")
    with (
        corral.Pool(Aborting, 2, backend="process", workers=2, seed=0) as pool,
        pytest.raises(CorralError) as caught,
    ):
        pool.reset()
        pool.step([0, 0])
        pool.step([0, 1])
    caught.value.fault.save(path)
    assert main(["replay", path]) == 0
    then, now = capsys.readouterr().out.split("Now:")
    assert "seed" in then and "seed" not in now
    assert now.count("step 2") == 1 == now.count("slot 1")
    assert "reproduced in step 2: the process was ended by SIGABRT" in now


def test_a_program_that_has_run_envs_names_the_file(tmp_path, capsys) -> None:
    path = saved(tmp_path / "a fault.zip")
    main(["replay", path])
    said = f"To find out, run: corral replay '{path}'"
    assert said in capsys.readouterr().out


def test_a_factory_that_fails_is_shown_from_the_users_code_on(tmp_path, capsys) -> None:
    path = str(tmp_path / "fault.zip")
    with pytest.raises(CorralError) as caught:
        corral.Pool([Stumbling, unbuilt], backend="serial", seed=0)
    caught.value.fault.save(path)
    assert main(["replay", path]) == 0
    now = capsys.readouterr().out.split("Now:")[1]
    assert "in unbuilt" in now and "src/corral" not in now


def test_one_that_is_gone_has_another_status(tmp_path, capsys) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    path = saved(tmp_path / "fault.zip", lambda: Stumbling(str(flag)))
    flag.unlink()
    assert doctor_says("--replay", path) == 1
    assert "not reproduced: nothing went wrong up to step 2" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["died", "hung"])
def test_no_debugger_is_promised_where_nothing_is_raised(
    kind, tmp_path, capsys
) -> None:
    path = tmp_path / "fault.zip"
    Fault(kind, "step", slot=1).save(path)
    assert main(["replay", str(path), "--debugger"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert 'corral.replay(path, up_to="before")' in err and "backend" not in err


opened = []


def note() -> None:
    opened.append(1)


class Noted:
    """A task that is noted whenever it is unpickled."""

    def __reduce__(self) -> Any:
        return note, ()


def test_a_file_is_opened_once(tmp_path, capsys) -> None:
    path = tmp_path / "fault.zip"
    Fault("raised", "close", task=Noted(), has_task=True).save(path)
    assert main(["replay", str(path)]) == 2
    assert "no episode to run again" in capsys.readouterr().err
    assert len(opened) == 1


def test_mistakes_are_told(tmp_path) -> None:
    with pytest.raises(OptionError, match="--replay FILE"):
        doctor_says()
    with pytest.raises(OptionError, match="no file"):
        doctor_says("--replay", str(tmp_path / "nothing.zip"))
    path = saved(tmp_path / "fault.zip")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, "signature": b"hmac-sha256 of another"}.items():
            archive.writestr(name, data)
    with pytest.raises(UnsafeFile, match="signed with another key"):
        doctor_says("--replay", path)
    assert doctor_says("--replay", path, "--trust") == 0
