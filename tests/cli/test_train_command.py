"""`corral train`, `corral eval` and `corral list`, as they are typed."""

import json
import os
import re
import resource
import signal
import sys

import pytest
import torch
from running import Script, wait_until

from corral.cli.main import main

SMALL = [
    *("--num-envs", "2", "--total-steps", "64", "--set", "backend=serial"),
    *("--set", "ppo.n_steps=16", "--set", "ppo.hidden=[8]", "--set", "video=never"),
    *("--set", "evaluate_episodes=1", "--set", "final_episodes=2"),
    *("--set", "checkpoint_every=1"),
]


LOGGED = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d elapsed \d+:\d\d:\d\d eta \S+\] "
)
"""A line that is written elsewhere than to a terminal."""


@pytest.fixture
def corral(here, capsys):
    """Type a command; returns status, stdout and stderr."""
    threads = torch.get_num_threads()

    def run(*arguments):
        try:
            status = main(list(arguments))
        except SystemExit as end:  # how argparse refuses
            status = end.code
        return status, *capsys.readouterr()

    yield run
    torch.set_num_threads(threads)


def test_train_then_list_then_eval(corral, here):
    status, out, err = corral("train", "cartpole", "--seed", "3", *SMALL)
    assert status == 0, err
    (run,) = here.glob("runs/cartpole/*")
    shown = str(run.relative_to(here))
    assert f"Report      {shown}/report.html" in out
    assert "one env at a time" in out

    status, out, _ = corral("list")
    assert status == 0
    assert "cartpole" in out and "pendulum" in out and "ant" in out
    assert f"{shown}  done" in out

    status, out, _ = corral("eval", shown, "--episodes", "7", "--json", "scores.json")
    assert status == 0
    assert "over 7 episodes" in out
    scores = json.loads((here / "scores.json").read_text())
    assert len(scores["returns"]) == len(scores["lengths"]) == 7
    status, _, err = corral("eval", shown, "--episodes", "1", "--json", "no/such.json")
    assert status == 1
    assert "no/such.json cannot be written: No such file or directory" in err

    status, _, err = corral("train", "--resume", shown)
    assert status == 2
    assert "is done: 64 of 64 steps" in err


def test_scores_have_the_digits_that_mean_something(corral, here):
    few = [*SMALL, "--num-envs", "1", "--set", "evaluate_episodes=2"]
    env = ["--set", "env=cli_envs:Fraction"]
    status, out, err = corral("train", "cartpole", "--out", "run", *few, *env)
    assert status == 0, err
    assert "evaluated 0.97 ± 0.03" in out
    assert "Best policy: return 0.97 ± 0.03 over 2 new episodes" in out
    assert "0.97 ± 0.03 over 2 new" in (here / "run" / "report.html").read_text()
    status, out, err = corral("eval", "run", "--episodes", "2")
    assert status == 0, err
    assert "return 0.97 ± 0.03 over 2 episodes" in out


def test_a_name_and_a_place_can_be_chosen(corral, here):
    assert (
        corral("train", "cartpole", "--out", "mine", "--name", "first", *SMALL)[0] == 0
    )
    assert "name: first" in (here / "mine" / "config.yaml").read_text()
    status, _, err = corral("train", "cartpole", "--out", "mine", *SMALL)
    assert status == 2
    assert "the run directory mine exists already" in err


def test_processes_and_a_file_of_weights_can_be_named(corral, here):
    few = [*SMALL[2:], "--set", "total_steps=32"]
    assert corral("train", "cartpole", "--out", "first", *few)[0] == 0
    weights = ["--model-path", "first/checkpoints/last.pt"]
    more = ["--num-processes", "2", "--out", "next", *weights]
    status, out, err = corral("train", "cartpole", *few, *more)
    assert status == 0, err
    assert "2 envs in 2 processes" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train"], "name a recipe or a config: corral train cartpole"),
        (["train", "cartpol"], "did you mean cartpole?"),
        (["train", "none.yaml"], "there is no file none.yaml"),
        (["train", "cartpole", "--set", "ppo.lrr=1"], "did you mean ppo.lr?"),
        (["train", "cartpole", "--set", "ppo.lr=fast"], "ppo.lr is 'fast'"),
        (["train", "cartpole", "--set", "ppo.lr"], "write key=value"),
        (["train", "cartpole", "--num-envs", "0"], "must be an integer >= 1, got '0'"),
        (
            ["train", "cartpole", "--total-steps", "many"],
            "must be an integer >= 1, got 'many'",
        ),
        (["train", "cartpole", "--seed", "-1"], "must be an integer >= 0, got '-1'"),
        (["train", "cartpole", "--set", "env=CartPol-v1"], "CartPole-v1"),
        (["train", "cartpole", "--set", "device=tpu"], "device is 'tpu'"),
        (["train", "cartpole", "--set", "device=cuda:99"], "torch sees"),
        (["train", "cartpole", "--resume", "x"], "leave out a recipe"),
        (["train", "--resume", "nothing"], "nothing is not a run"),
        (["train", "cartpole", "--init-from", "nothing"], "nothing is not a run"),
        (["train", "cartpole", "--render"], "recipe cartpole has no window"),
        (
            ["train", "cartpole", "--num-processes", "2", "--workers", "2"],
            "--num-processes and --workers: use only one of them",
        ),
        (
            ["train", "cartpole", "--init-from", "a", "--model-path", "b.pt"],
            "--init-from and --model-path: use only one of them",
        ),
        (["train", "cartpole", "--model-path", "b.pt"], "--model-path b.pt: there is"),
        (["train", "--resume", "x", "--model-path", "b"], "leave out --model-path"),
        (["eval", "nothing"], "nothing is not a run"),
        (["eval"], "required: RUN"),
    ],
)
def test_bad_input_gets_one_message_and_leaves_nothing(corral, here, arguments, told):
    status, out, err = corral(*arguments)
    assert status == 2
    assert told in err
    assert "Traceback" not in out + err
    assert not (here / "runs").exists()


def test_numbers_may_be_written_as_people_do(corral):
    import argparse

    from corral.cli.train import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for text in ("100000", "100_000", "1e5"):
        assert parser.parse_args(["x", "--total-steps", text]).total_steps == 100_000


@pytest.mark.first
def test_ctrl_c_saves_and_says_how_to_go_on(here):
    command = [sys.executable, "-m", "corral", "train", "cartpole", "--out", "run"]
    endless = ["--total-steps", "1_000_000_000", "--set", "evaluate_every=1000000"]
    script = Script([*command, *SMALL, *endless], None, cwd=here)
    try:
        lines = [script.line(), script.line()]  # while it is running
        metrics = here / "run" / "metrics.jsonl"  # the first update is behind it
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, 40)
        os.kill(script.process.pid, signal.SIGINT)
        out = script.finish(130)
    finally:
        script.process.kill()
    lines += out.splitlines()
    assert [line for line in lines if not LOGGED.match(line)] == []
    assert "everything is saved" in out
    assert "corral train --resume run" in out
    assert "Traceback" not in out + script.stderr
    assert (here / "run" / "checkpoints" / "interrupted.pt").exists()
    assert (here / "run" / "report.html").exists()
    assert not script.family()


def test_what_ctrl_c_saved_goes_on(corral, here, monkeypatch):
    from corral.train.run.training import Training

    learn = Training.learn

    def learn_and_be_interrupted(self, rollout):
        if self.progress.update == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return learn(self, rollout)

    arguments = ["--out", "run", *SMALL, "--set", "checkpoint_every=2"]
    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", learn_and_be_interrupted)
        status, out, _ = corral("train", "cartpole", *arguments, "--total-steps", "128")
    assert status == 130
    assert "Stopped after update 3 of 4 (96 steps)" in out
    assert "--resume run/checkpoints/last.pt" in out
    status, out, _ = corral("train", "--resume", "run")
    assert status == 0
    assert "Resuming from run/checkpoints/interrupted.pt: update 3 of 4" in out
    assert not (here / "run" / "checkpoints" / "interrupted.pt").exists()


def test_the_run_of_another_user_is_run_where_it_is_trusted(corral, here):
    assert corral("train", "cartpole", "--out", "run", *SMALL)[0] == 0
    config = here / "run" / "config.yaml"
    text = config.read_text().replace("env: CartPole-v1", "env: os:mkdir")
    config.write_text(text.replace("env_kwargs: {}", "env_kwargs: {path: touched}"))
    commands = (
        ["eval", "run", "--episodes", "1"],
        ["train", "--resume", "run", "--total-steps", "128"],
    )
    for command in commands:
        status, _, err = corral(*command)
        assert status == 2
        assert "run/config.yaml was changed after it was signed" in err
        assert "It would run env 'os:mkdir' with {'path': 'touched'}" in err
        typed = " ".join(["corral", *command, "--trust"])
        assert err.endswith(f"Read run/config.yaml; if you trust it: {typed}\n")
    corral("list")
    corral("train", "cartpole", "--out", "new", "--init-from", "run", *SMALL)
    assert not (here / "touched").exists()
    assert corral(*commands[0], "--trust")[0] == 2  # it is run, and makes no env
    assert (here / "touched").exists()


@pytest.mark.parametrize("name", ["../../x", "/tmp/x"])
def test_a_name_that_leaves_runs_is_refused(corral, here, name):
    (here / "mine.yaml").write_text(f"recipe: cartpole\nname: {name}\n")
    for arguments in (["cartpole", "--name", name], ["mine.yaml"]):
        status, _, err = corral("train", *arguments, *SMALL)
        assert status == 2
        assert "a name is a folder inside runs/" in err and "--out" in err
    assert not (here / "runs").exists()


def test_a_full_disk_is_one_message_and_keeps_the_checkpoint(corral, here):
    arguments = ["train", "cartpole", "--out", "run", *SMALL]
    arguments += ["--total-steps", "1_000_000", "--set", "evaluate_every=100000"]
    arguments += ["--set", "checkpoint_every=5"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, limits[1]))
    try:
        status, out, err = corral(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    assert "metrics.jsonl cannot be written: File too large" in err
    assert "Saved       run/checkpoints/last.pt" in err
    assert "corral train --resume run" in err
    assert "Traceback (most recent" not in out + err
    from corral.train.run.checkpoint import Checkpoint

    assert Checkpoint.load(here / "run" / "checkpoints" / "last.pt").update > 0


@pytest.mark.parametrize("package", ["torch", "pydantic", "tensorboard"])
def test_a_missing_package_is_named_before_anything_is_written(here, package):
    code = f"import sys; sys.modules[{package!r}] = None; "
    code += "from corral.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "train", "cartpole", *SMALL]
    script = Script(command, None, cwd=here)
    script.finish(2)
    assert package in script.stderr
    assert "pip install 'corral[train]'" in script.stderr
    assert "Traceback" not in script.stderr
    assert not (here / "runs").exists()
