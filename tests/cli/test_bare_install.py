"""Every command names the extra that is enough for it, before it does anything."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from installing import Installed
from running import Script

import corral
from corral.cli.main import COMMANDS
from corral.train.recipes import EXTRAS, RECIPES

SMALL = [
    *("--num-envs", "2", "--total-steps", "32", "--set", "backend=serial"),
    *("--set", "ppo.n_steps=16", "--set", "ppo.hidden=[8]", "--set", "ppo.n_epochs=1"),
    *("--set", "ppo.batch_size=16", "--set", "evaluate_episodes=1"),
    *("--set", "final_episodes=1", "--set", "video=never"),
]
TEAM = [
    text.replace("ppo.hidden=[8]", "ppo.hidden=8").replace("ppo.", "taac.")
    for text in SMALL
]
QUICK = ["--rounds", "1", "--seconds", "0.01", "--against", "none", "--num-envs", "1"]

LINES = {
    "train": {
        **{name: "train" for name in RECIPES if name not in EXTRAS},
        "ant": "mujoco,train",
        "ant_dir": "mujoco,train",
        "ant_dir_rl2": "mujoco,train",
        "box_jump": "box_jump",
        "bullet_pendulum": "bullet",
        "cheetah_vel": "mujoco,train",
        "grid_world": "multi,sb3,train",
        "tinyphysics": "tinyphysics",
        "tinyphysics_steer": "tinyphysics",
        "tinyphysics_tuned": "tinyphysics",
        "upkie": "upkie",
        "": "train",
        "cartpole --set learner=sb3_ppo": "sb3,train",
        "cartpole --wandb": "wandb",
        "ant --wandb": "mujoco,wandb",
        "mine.yaml": "sb3,train",
        "absent.yaml": "train",
        "--resume run": "tinyphysics",
        "--resume run/checkpoints/last.pt": "tinyphysics",
        "ant --init-from run": "mujoco,train",
    },
    "eval": {
        "run": "tinyphysics",
        "absent": "train",
        "tinyphysics": "tinyphysics",
        "tinyphysics --controller run": "tinyphysics",
        "tinyphysics --html page.html": "tinyphysics",
    },
    "config": {"": "train", "cartpole": "train"},
    "export": {"run": "tinyphysics", "absent": "train"},
    "list": {"": ""},
    "bench": {
        "CartPole-v1": "bench",
        "CartPole-v1 --html page.html --json data.json": "bench",
    },
    "doctor": {"CartPole-v1": "bench", "--replay absent.zip": ""},
    "replay": {"absent.zip": ""},
}
"""What is typed after a command -> the extras that it asks for in a bare install."""
TYPED = [
    ([name, *rest.split()], extras)
    for name, lines in LINES.items()
    for rest, extras in lines.items()
]


def test_every_command_and_every_recipe_is_walked():
    assert LINES.keys() == COMMANDS.keys()
    assert LINES["train"].keys() >= RECIPES.keys()


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """What every command says and does in a bare install."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "run" / "checkpoints").mkdir(parents=True)
    (folder / "run" / "config.yaml").write_text("recipe: 'tinyphysics'\nname: mine\n")
    (folder / "mine.yaml").write_text("env: CartPole-v1\nlearner: sb3_ppo  # its\n")
    before = sorted(folder.rglob("*"))
    installed = Installed(tmp_path_factory.mktemp("site"))
    said, modules = installed.type([line for line, _ in TYPED], folder)
    return dict(zip(map(" ".join, (line for line, _ in TYPED)), said, strict=True)), (
        sorted(folder.rglob("*")) == before,
        modules,
    )


@pytest.mark.parametrize(
    ("line", "extras"), TYPED, ids=[" ".join(line) for line, _ in TYPED]
)
def test_a_command_names_once_what_is_enough_for_it(bare, line, extras):
    status, out, err = bare[0][" ".join(line)]
    if not extras:
        assert "pip install" not in out + err
        return
    assert status == 2
    assert out == ""
    assert re.findall(r"pip install \S+", err) == [f"pip install 'corral[{extras}]'"]
    assert len(err.splitlines()) == 1
    assert err.startswith(f"corral {line[0]}: ")


def test_a_command_that_lacks_something_does_nothing(bare):
    nothing_written, modules = bare[1]
    assert nothing_written
    assert not {"corral.engine.pool", "corral.engine.executors", "gymnasium"} & modules


def test_a_missing_module_is_named_with_the_others(bare):
    told = bare[0]["train cartpole"][2]
    assert told == (
        "corral train: matplotlib, psutil, pydantic, rich, tensorboard, torch, yaml "
        "are not installed: pip install 'corral[train]'\n"
    )


ENGINE = """
import corral

with corral.Pool("CartPole-v1", 2, backend="process", workers=1, seed=0) as pool:
    pool.reset()
    assert pool.step([0, 1]).reward.tolist() == [1.0, 1.0]
envs = corral.make("CartPole-v1", num_envs=2, backend="thread")
envs.reset(seed=0)
envs.close()
assert corral.map(abs, [-1, 2], workers=1) == [1, 2]
with corral.Crew(workers=1, devices="auto") as crew:
    assert crew.map(abs, [-1, 2]) == [1, 2]
print("done")
"""


def test_the_engine_needs_nothing_more(tmp_path):
    script = Installed(tmp_path / "site").python(ENGINE, cwd=tmp_path)
    assert script.finish() == "done\n"


def test_python_users_are_told_of_extras_that_there_are():
    source = Path(corral.__file__).parent
    named = [
        extra
        for path in source.rglob("*.py")
        for extras in re.findall(r"'corral\[([\w,]+)\]'", path.read_text())
        for extra in extras.split(",")
    ]
    said = metadata.metadata("corral").get_all("Provides-Extra")
    known = {extra.replace("-", "_") for extra in said}  # pip takes both
    assert len(named) > 10 and set(named) <= known


@pytest.mark.parametrize(
    ("module", "hidden", "extras"),
    [
        ("corral.learners.ppo", "torch", "train"),
        ("corral.learners.sb3.ppo", "stable_baselines3", "sb3,train"),
        ("corral.zoo.grid_world", "pettingzoo", "multi"),
        ("corral.zoo.box_jump", "Box2D", "box_jump"),
    ],
)
def test_a_module_names_the_extra_that_it_needs(module, hidden, extras):
    if hidden == "stable_baselines3":
        pytest.importorskip("torch", reason="it is asked for first")
    code = f"import sys; sys.modules[{hidden!r}] = None\n"
    code += f"import corral\ntry:\n    import {module}\n"
    code += "except corral.errors.MissingExtra as error:\n    print(error)"
    script = Script([sys.executable, "-c", code], None)
    assert f"pip install 'corral[{extras}]'" in script.finish()


ENOUGH = {
    "bench": [
        ["bench", "CartPole-v1", *QUICK, "--backend", "serial", "--html", "page.html"],
        ["doctor", "CartPole-v1", "--only", "api"],
    ],
    "train": [
        ["train", "cartpole", "--out", "run", *SMALL],
        ["eval", "run", "--episodes", "1", "--video", "film.gif"],
        ["list"],
    ],
    "sb3,train": [
        ["train", "cartpole", "--out", "run", "--set", "learner=sb3_ppo", *SMALL],
        ["eval", "run", "--episodes", "1"],
    ],
    "mujoco,train": [["train", "ant", "--out", "run", *SMALL]],
    "multi,sb3,train": [["train", "grid_world", "--out", "run", *SMALL]],
    "box_jump": [["train", "box_jump", "--out", "run", *TEAM]],
    "bullet": [["train", "bullet_pendulum", "--out", "run", *SMALL]],
    # Two of these robots do not share a process.
    "upkie": [["train", "upkie", "--out", "run", *SMALL, "--num-envs", "1"]],
    "tinyphysics": [["eval", "tinyphysics", "--limit", "1", "--backend", "serial"]],
    "wandb": [["train", "cartpole", "--out", "run", "--wandb", *SMALL]],
}
"""Extras -> commands that work with these, and nothing else, installed."""
NEEDS = {
    "mujoco,train": "mujoco",
    "multi,sb3,train": "pettingzoo",
    "box_jump": "Box2D",
    "bullet": "pybullet",
    "upkie": "upkie",
    "tinyphysics": "onnxruntime",
    "wandb": "wandb",
}


def test_whatever_is_named_is_tried():
    assert {extras for _, extras in TYPED if extras} - {"mujoco,wandb"} == set(ENOUGH)


FIRST = ("bench", "train", "tinyphysics")
"""The others take some seconds each, and differ by their env or learner alone."""


@pytest.mark.parametrize(
    "extras",
    [
        pytest.param(one, marks=() if one in FIRST else pytest.mark.slow)
        for one in ENOUGH
    ],
)
def test_what_is_named_is_enough(tmp_path, monkeypatch, extras):
    pytest.importorskip(NEEDS.get(extras, "torch"), reason="to be seen, or hidden")
    monkeypatch.setenv("WANDB_MODE", "offline")
    installed = Installed(tmp_path / "site", *extras.split(","))
    said, _ = installed.type(ENOUGH[extras], tmp_path)
    for (status, out, err), line in zip(said, ENOUGH[extras], strict=True):
        assert "pip install" not in out + err, line
        assert status in ((0, 3) if line[0] == "doctor" else (0,)), (line, out, err)
