"""A training that dies says where, and names the command that goes on; it is typed."""

import os
import shlex
import signal
import sys

import pytest
import torch

from corral.cli.main import main

ENVS = """
import gymnasium, numpy as np, os, pathlib, signal, time

class Base(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        if self.total == 20 and not pathlib.Path("fixed").exists():
            return self.fail()
        return np.zeros(2, np.float32), 1.0, self.steps == 10, False, {}

class Raises(Base):
    def fail(self):
        raise RuntimeError("the arm left the table")  # HERE

class Crashes(Base):
    def fail(self):
        os.kill(os.getpid(), signal.SIGSEGV)  # HERE

class Sound(Base):
    def fail(self):
        return np.zeros(2, np.float32), 1.0, True, False, {}

class Hangs(Base):
    def fail(self):
        time.sleep(1000)  # HERE

class Gives(Base):
    def fail(self):
        return np.zeros(2, np.float32), float("nan"), False, False, {}

class OldStep(Base):
    def step(self, action):  # HERE
        obs, reward, terminated, truncated, info = super().step(action)
        if pathlib.Path("fixed").exists():
            return obs, reward, terminated, truncated, info
        return obs, reward, terminated, info

class OldReset(Base):
    def reset(self, **options):  # HERE
        obs, info = super().reset(**options)
        return (obs, info) if pathlib.Path("fixed").exists() else obs

class Unbuilt(Base):
    def __init__(self):
        super().__init__()
        if not pathlib.Path("fixed").exists():
            raise ValueError("no such robot")  # HERE
"""

SETTINGS = {
    "num_envs": 2,
    "workers": 1,
    "backend": "process",
    "total_steps": 96,
    "evaluate_every": 100,
    "evaluate_episodes": 1,
    "final_episodes": 0,
    "checkpoint_every": 2,
    "video": "never",
    "ppo": "{n_steps: 16, batch_size: 16, n_epochs: 1, hidden: [8]}",
}


@pytest.fixture
def corral(tmp_path, monkeypatch, capsys):
    """Type a command in a folder with envs; returns status, stdout and stderr."""
    (tmp_path / "broken.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    threads = torch.get_num_threads()

    def run(*words):
        status = main(list(words))
        return status, *capsys.readouterr()

    yield run
    torch.set_num_threads(threads)
    sys.modules.pop("broken", None)


def yaml(env, **settings):
    """A config of that env in my.yaml."""
    lines = {"env": f"broken:{env}", **SETTINGS, **settings}
    with open("my.yaml", "w") as file:
        file.writelines(f"{key}: {value}\n" for key, value in lines.items())


def said(err, head):
    """What a line with that head says; None if there is none."""
    lines = [line for line in err.splitlines() if line.startswith(head)]
    assert len(lines) <= 1, err
    return lines[0].removeprefix(head).strip() if lines else None


def line_of(env):
    """The line of broken.py that is to blame."""
    of_env = ENVS.index(f"class {env}(")
    return 1 + ENVS[: ENVS.index("# HERE", of_env)].count("\n")


RESTART = "--set on_fault=restart"
FAILING = {
    # env, further settings -> what is said, the line, what the command has, a fix first
    "Raises": ({}, "RuntimeError in step: the arm left the table", True, RESTART, ""),
    "Crashes": ({}, "ended by SIGSEGV", True, RESTART, ""),
    "Hangs": ({"step_timeout": 0.5}, "longer than 0.5 s", True, RESTART, ""),
    "Gives": ({}, "slot 0 returned the reward nan", False, "", "Fix the env"),
    "OldStep": ({}, "a tuple of 4 values. It must return", True, "", "Change the env"),
    "OldReset": ({}, "`return observation, {}`", True, "", "Change the env"),
}


SLOW = ("Hangs", "OldReset")
"""Cases that say little more than those beside them."""


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(env, marks=pytest.mark.slow if env in SLOW else ())
        for env in FAILING
    ],
)
def test_what_ends_a_training_is_told_and_the_command_goes_on(env, corral, tmp_path):
    settings, told, has_line, has, fix = FAILING[env]
    yaml(env, **settings)
    status, out, err = corral("train", "my.yaml", "--out", "run")
    assert status in (1, 2) and "Traceback (most" not in out + err
    assert told in err
    if has_line:
        assert said(err, "At ").startswith(f"broken.py, line {line_of(env)}, in ")
    assert said(err, "Traceback ") == "run/error.txt"
    whole = (tmp_path / "run" / "error.txt").read_text()
    assert "Traceback (most recent call last)" in whole
    assert not has_line or "broken.py" in whole
    for pythons in ("on_fault=", '="', "close the envs", "fault.save"):
        assert pythons not in err.replace(RESTART, "").replace('"GymV21', "")
    typed = said(err, "Continue ")
    assert typed.startswith("corral train --resume run")
    assert has in typed and (has or "--set" not in typed)
    first = said(err, "First ")
    assert (fix in first) if fix else first is None
    if fix:
        (tmp_path / "fixed").touch()
    status, out, err = corral(*shlex.split(typed)[1:])
    assert status == 0, err
    assert "Resuming from run/checkpoints/last.pt" in out
    assert ("Restarted   slot" in out and "so far)" in out) == bool(has)
    assert (tmp_path / "run" / "faults.jsonl").exists() == bool(has)
    assert not (tmp_path / "run" / "error.txt").exists()
    assert not (tmp_path / "run" / "fault.zip").exists()
    assert "run done 96/96" in " ".join(corral("list", "--runs", ".")[1].split())


def test_what_runs_in_this_process_goes_on_in_others(corral):
    yaml("Raises", backend="serial", workers="null")
    status, _, err = corral("train", "my.yaml", "--out", "run")
    typed = said(err, "Continue ")
    assert typed.endswith(f"{RESTART} --set backend=process")
    status, _, err = corral(*shlex.split(typed)[1:])
    assert status == 0, err


def test_a_limit_that_was_used_up_is_raised(corral):
    yaml("Raises", on_fault="restart", restarts_per_minute=1, total_steps=192)
    status, _, err = corral("train", "my.yaml", "--out", "run")
    assert status == 1 and "given up after" in err
    typed = said(err, "Continue ")
    assert typed.endswith("--set restarts_per_minute=10")
    assert corral(*shlex.split(typed)[1:])[0] == 0


def test_what_cannot_be_built_names_the_line_and_the_same_command(corral, tmp_path):
    yaml("Unbuilt")
    status, _, err = corral("train", "my.yaml")
    assert status == 1
    place = f"broken.py, line {line_of('Unbuilt')}"
    assert said(err, "At ").startswith(f"{place}, in __init__: raise ValueError")
    assert said(err, "First ") == f"Fix {place}."
    assert said(err, "Again ") == "corral train my.yaml"
    assert "backend: serial" in err and not (tmp_path / "runs").exists()
    (tmp_path / "fixed").touch()
    assert corral("train", "my.yaml", "--out", "run")[0] == 0
    (tmp_path / "fixed").unlink()
    # A run that there is keeps the traceback.
    status, _, err = corral("train", "--resume", "run", "--total-steps", "192")
    assert status == 1 and said(err, "Traceback ") == "run/error.txt"
    assert "no such robot" in (tmp_path / "run" / "error.txt").read_text()
    (tmp_path / "fixed").touch()
    typed = said(err, "Continue ")
    assert corral(*shlex.split(typed)[1:], "--total-steps", "192")[0] == 0


def test_an_evaluation_that_fails_names_its_own_command(corral, tmp_path):
    yaml("Raises")
    (tmp_path / "fixed").touch()
    assert corral("train", "my.yaml", "--out", "run")[0] == 0
    (tmp_path / "fixed").unlink()
    status, _, err = corral("eval", "run", "--episodes", "6")
    assert status == 1 and said(err, "At ").startswith("broken.py")
    typed = said(err, "Again ")
    assert typed == f"corral eval run --episodes 6 {RESTART}"
    status, out, _ = corral(*shlex.split(typed)[1:])
    assert status == 0 and "Restarted   slot" in out


def test_an_error_of_the_learner_is_one_message_too(corral, tmp_path, monkeypatch):
    from corral.train.run.training import Training

    learn = Training.learn

    def fail(self, rollout):
        if self.progress.update == 2:
            raise RuntimeError("out of memory on the GPU")
        return learn(self, rollout)

    yaml("Raises")
    (tmp_path / "fixed").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", fail)
        status, _, err = corral("train", "my.yaml", "--out", "run")
    assert status == 1
    assert "RuntimeError: out of memory on the GPU" in err
    assert "in fail" in (tmp_path / "run" / "error.txt").read_text()
    typed = said(err, "Continue ")
    assert typed == "corral train --resume run"
    assert corral(*shlex.split(typed)[1:])[0] == 0


def test_a_learner_that_diverged_goes_on_gently_in_another_run(corral, monkeypatch):
    from corral.errors import TrainingDiverged
    from corral.train.run.training import Training

    def diverge(self, rollout):
        raise TrainingDiverged("the loss is nan in update 1")

    yaml("Sound", ppo="{n_steps: 16, batch_size: 16, lr: 0.0003}")
    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", diverge)
        _, _, err = corral("train", "my.yaml", "--out", "run")
    assert said(err, "First ").endswith("another run from its last checkpoint.")
    typed = said(err, "Continue ")
    assert typed == ("corral train run/config.yaml --init-from run --set ppo.lr=3e-05")
    assert corral(*shlex.split(typed)[1:], "--out", "second")[0] == 0


def test_a_metric_that_is_not_measured_is_replaced(corral):
    yaml("Sound", best_metric="eval/cost", evaluate_every=1)
    _, _, err = corral("train", "my.yaml", "--out", "run")
    typed = said(err, "Continue ")
    assert typed.endswith("--set best_metric=eval/return")
    assert corral(*shlex.split(typed)[1:])[0] == 0


def test_ctrl_c_twice_names_the_command_as_well(corral, monkeypatch):
    from corral.train.run.training import Training

    learn = Training.learn

    def interrupted(self, rollout):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return learn(self, rollout)

    yaml("Sound")
    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", interrupted)
        status, out, _ = corral("train", "my.yaml", "--out", "run")
    assert status == 130 and "Stopped at once" in out
    assert "Continue    corral train --resume run\n" in out
    assert corral("train", "--resume", "run")[0] == 0


def test_a_run_that_dies_in_its_last_evaluation_keeps_all_updates(corral, tmp_path):
    yaml("Raises", total_steps=32, evaluate_every=1, evaluate_episodes=8)
    status, out, err = corral("train", "my.yaml", "--out", "run")
    assert status == 1 and "the arm left the table" in err
    typed = said(err, "Continue ")
    assert typed == f"corral train --resume run {RESTART}"
    status, out, err = corral(*shlex.split(typed)[1:])
    assert status == 0, err
    assert "Resuming from run/checkpoints/last.pt: update 1 of 1" in out
    assert "step 32  evaluated" in out and "Restarted   slot" in out
    status, _, err = corral("train", "--resume", "run")
    assert status == 2 and "is done: 32 of 32 steps" in err


def test_restarts_of_an_update_that_gives_up_are_told(corral, tmp_path):
    yaml("Raises", on_fault="restart", max_restarts=1, ppo="{n_steps: 64}")
    status, out, err = corral("train", "my.yaml", "--out", "my run")
    assert status == 1 and "given up after" in err
    assert "Restarted   slot" in out
    assert (tmp_path / "my run" / "faults.jsonl").read_text().count("\n") >= 1
    assert said(err, "Replay ") == "corral doctor --replay 'my run/fault.zip'"
    _, out, _ = corral(*shlex.split(said(err, "Replay "))[1:])
    assert "the arm left the table" in out
    assert "on_fault" not in out and "fault.save" not in out
    status, _, err = corral("train", "my.yaml", "--out", "my run")
    assert status == 2 and "corral train --resume 'my run'" in err


def test_a_fault_is_kept_until_the_run_is_past_it_or_another_error_ends_it(
    corral, tmp_path, monkeypatch
):
    yaml("Raises")
    corral("train", "my.yaml", "--out", "run")
    fault = tmp_path / "run" / "fault.zip"
    first = fault.read_bytes()
    corral("train", "--resume", "run", "--set", "max_restarts=7")
    assert fault.exists() and fault.read_bytes() != first  # it failed again
    from corral.learners.ppo import PPO

    def fail(*arguments):
        raise OSError("no such device")

    monkeypatch.setattr(PPO, "update", fail)
    (tmp_path / "fixed").touch()
    _, _, err = corral("train", "--resume", "run")
    assert "no such device" in err and said(err, "Replay ") is None
    assert not fault.exists()


def test_a_run_that_is_not_signed_is_replayed_with_trust(corral, monkeypatch):
    from corral.train.run import start

    write = start.signed_config.write
    monkeypatch.setattr(
        start.signed_config, "write", lambda *of: write(*of) or "no key"
    )
    yaml("Raises")
    _, _, err = corral("train", "my.yaml", "--out", "run")
    assert said(err, "Replay ") == "corral doctor --replay run/fault.zip --trust"


def test_options_that_clash_are_answered_as_the_command_line_has_them(corral):
    yaml("Sound", backend="thread")
    status, _, err = corral("train", "my.yaml", "--set", "on_fault=restart")
    assert status == 2 and "use --set backend=process" in err
