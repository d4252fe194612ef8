"""Three updates of every recipe that needs no download, by `python -m corral train`."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import platform
import re
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

SMALL = {
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 96,
    "evaluate_every": 100,
    "evaluate_episodes": 1,
    "evaluate_length": 20,
    "final_episodes": 0,
    "checkpoint_every": 2,
    "video": "never",
    "ppo.n_steps": 16,
    "ppo.batch_size": 16,
    "ppo.n_epochs": 2,
    "ppo.hidden": [8],
}
"""Three updates of 32 steps, with a checkpoint in between."""


@dataclass(frozen=True)
class Training:
    """One recipe, made small."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    slow: bool = False

    @property
    def missing(self) -> list[str]:
        wanted = ("torch", "pydantic", "yaml", "tensorboard", *self.needs)
        absent = [name for name in wanted if importlib.util.find_spec(name) is None]
        model = self.settings.get("model")
        if model is not None and not Path(model).exists():
            absent.append("the official model, see CORRAL_TINYPHYSICS")
        return absent


NO_PPO = {key: None for key in SMALL if key.startswith("ppo.")}
FEW_TASKS = {"trials.train_tasks": 3, "trials.eval_tasks": 2}
RL2 = {"ppo.memory_size": 8, **FEW_TASKS}


def off_policy(learner: str, steps: int, **settings: Any) -> dict[str, Any]:
    """A few updates of SAC or TD3, an episode or trial each, the first at random."""
    nets = {"hidden": [8], "memory_size": 8, "batch_size": 4, "updates": 2}
    own = {**nets, "episodes": 1, "random_episodes": 1, "replay_size": 1000}
    group = {f"{learner}.{key}": value for key, value in own.items()}
    return {**NO_PPO, **group, "total_steps": steps, **settings}


TEAM = {
    **NO_PPO,
    **{f"taac.{key}": 8 for key in ("hidden", "embedding", "batch_size")},
    **{"taac.n_steps": 16, "taac.n_epochs": 2, "boxes": [2, 3]},
    "env_kwargs.max_timestep": 9,
}
SB3, BULLET = ("stable_baselines3",), ("stable_baselines3", "pybullet")
ONNX = ("onnxruntime", "onnx")
FEW_ROUTES = {
    "validation_routes": 1,
    "test_routes": 1,
    "clone_rows": 100,
    "clone_epochs": 1,
    "evaluate_length": 1000,
}
BESIDE = Path(__file__).parents[3] / "shared" / "tinyphysics"
PLACE = Path(os.environ.get("CORRAL_TINYPHYSICS") or BESIDE)
"""The official model and routes, which are no part of the project."""
OFFICIAL = {"data": PLACE / "data", "model": PLACE / "tinyphysics.onnx"}
TRAININGS = {
    "cartpole": Training("cartpole"),
    "cartpole, two processes": Training(
        "cartpole",
        {"backend": "process", "workers": 2, "mode": "two_groups"},
        slow=True,
    ),
    "cartpole, sb3_ppo": Training("cartpole", {"learner": "sb3_ppo"}, SB3, slow=True),
    "pendulum": Training("pendulum", slow=True),
    "pendulum, scaled": Training("pendulum", {"normalise_obs": True}),
    "memory": Training("memory", {"ppo.memory_size": 8}),
    "memory, lstm": Training(
        "memory", {"ppo.memory": "lstm", "ppo.memory_size": 8}, slow=True
    ),
    "point_robot": Training("point_robot", off_policy("sac", 360, **FEW_TASKS)),
    "point_robot_rl2": Training("point_robot_rl2", RL2),
    "ant_dir_rl2": Training("ant_dir_rl2", RL2, ("mujoco",), slow=True),
    "pendulum_v": Training("pendulum_v", off_policy("td3", 600)),
    "ant_dir": Training(
        "ant_dir", off_policy("sac", 600, **FEW_TASKS), ("mujoco",), slow=True
    ),
    "cheetah_vel": Training(
        "cheetah_vel", off_policy("sac", 1200, **FEW_TASKS), ("mujoco",), slow=True
    ),
    "grid_world": Training("grid_world", {}, (*SB3, "pettingzoo")),
    "grid_world, shared": Training(
        "grid_world", {"view": "shared"}, (*SB3, "pettingzoo"), slow=True
    ),
    "box_jump": Training("box_jump", TEAM, ("pettingzoo", "Box2D")),
    "bullet_pendulum": Training("bullet_pendulum", {}, BULLET),
    "upkie": Training("upkie", {"backend": "process"}, (*BULLET, "upkie"), slow=True),
    "ant": Training("ant", {}, ("mujoco",)),
    "tinyphysics": Training("tinyphysics", FEW_ROUTES, ONNX),
    "tinyphysics, one by one": Training(
        "tinyphysics", {**FEW_ROUTES, "batched": False}, ONNX, slow=True
    ),
    "tinyphysics, official": Training(
        "tinyphysics", {**FEW_ROUTES, **OFFICIAL}, ONNX, slow=True
    ),
    "tinyphysics_tuned": Training("tinyphysics_tuned", FEW_ROUTES, ONNX, slow=True),
    "tinyphysics_steer": Training(
        "tinyphysics_steer", {**FEW_ROUTES, "rollout_size": None}, ONNX, slow=True
    ),
}


def corral_command(*arguments: str) -> tuple[int, str]:
    """`python -m corral ...` in this process: the status, and what it printed."""
    said, argv = io.StringIO(), sys.argv
    sys.argv = ["corral", *arguments]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            runpy.run_module("corral", run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    finally:
        sys.argv = argv
    return 0, said.getvalue()


def train(training: Training, out: Path, *more: str) -> None:
    """Into a folder of its own."""
    settings = {**SMALL, **training.settings}
    options = [
        f"--set={key}={_written(value)}"
        for key, value in settings.items()
        if value is not None
    ]
    with no_pictures():
        status, said = corral_command(
            "train", training.source, f"--out={out}", *options, *more
        )
    assert status == 0, said


def no_pictures() -> Any:
    """Drawing a report would take most of the time, and has tests of its own."""
    return mock.patch("matplotlib.figure.Figure.savefig", _draw_nothing)


def _draw_nothing(figure: Any, target: Any, **options: Any) -> None:
    picture = "<svg></svg>"
    target.write(picture if isinstance(target, io.TextIOBase) else picture.encode())


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings(run: Path) -> dict[str, Any]:
    """What the run says that it was asked to do, without what differs by machine."""
    import yaml

    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    found.pop("env")  # held by the stored runs: old names have to work, not stay
    return {key: value for key, value in found.items() if key not in ("data", "model")}


# What is kept of a checkpoint ---------------------------------------------------------


def weights(path: Path) -> dict[str, Any]:
    """Every entry of a checkpoint by its name; tensors as hash and rounded sums."""
    import torch

    content = torch.load(path, map_location="cpu", weights_only=True)
    found: dict[str, Any] = {}
    _flatten(content, "", found)
    for name in VOLATILE:
        found.pop(name, None)
    return dict(sorted(found.items()))


VOLATILE = ("seconds", "corral", "env", "replay")
"""Entries that another machine, version or name of a module may change."""


def _flatten(value: Any, name: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _flatten(one, f"{name}/{key}" if name else str(key), found)
        if not value:
            found[name] = {}
    elif isinstance(value, (list, tuple)) and any(
        isinstance(one, (dict, list, tuple)) or hasattr(one, "numpy") for one in value
    ):
        for place, one in enumerate(value):
            _flatten(one, f"{name}/{place}", found)
    elif hasattr(value, "numpy"):
        found[name] = _tensor(value.numpy())
    else:
        found[name] = list(value) if isinstance(value, tuple) else value


def _tensor(array: Any) -> dict[str, Any]:
    hashed = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    about = {"shape": list(array.shape), "dtype": str(array.dtype), "hash": hashed}
    if array.dtype.kind == "f" and array.size:
        numbers = array.astype(np.float64)
        about["sum"] = round(float(numbers.sum()), 5)
        about["size"] = round(float(np.abs(numbers).mean()), 5)
    return about


def made_with() -> dict[str, str]:
    """What the last bits of a weight depend on."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    found = {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processor": _processor(),
    }
    packages = ("torch", "numpy", "gymnasium", "stable_baselines3", "mujoco")
    for name in (*packages, "pybullet", "onnxruntime"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    """A hash of its model and instructions: one name may stand for several models."""
    about = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    facts = re.findall(
        r"^(?:vendor_id|cpu family|model|model name|flags)\s*: .*", about, re.MULTILINE
    )
    described = "\n".join(facts) or platform.processor()
    return hashlib.sha256(described.encode()).hexdigest()[:8]


# Two of them --------------------------------------------------------------------------


def same_machine(kept: dict[str, Any]) -> bool:
    """Whether what was kept was computed by the same processor and packages."""
    return bool(kept["made with"] == made_with())


def compare(found: dict[str, Any], kept: dict[str, Any], same: bool) -> None:
    """Equal names, shapes and counts; equal bits, or close numbers elsewhere."""
    assert found.keys() == kept.keys()
    unlike = [name for name in kept if not _alike(found[name], kept[name], same)]
    assert not unlike, {name: (found[name], kept[name]) for name in unlike}


def _alike(found: Any, kept: Any, same: bool) -> bool:
    if same or not isinstance(kept, dict) or "hash" not in kept:
        return bool(found == kept) or (not same and _close(found, kept))
    if "sum" not in kept:  # integers: generators, whose states depend on no rounding
        return bool(found["shape"] == kept["shape"])
    near = 0.02 * kept["size"] * np.prod(kept["shape"], dtype=np.float64) + 1e-3
    shape = found["shape"] == kept["shape"] and found["dtype"] == kept["dtype"]
    return bool(shape and abs(found["sum"] - kept["sum"]) <= near)


def _close(found: Any, kept: Any) -> bool:
    numbers = isinstance(found, float) and isinstance(kept, float)
    return numbers and bool(np.isclose(found, kept, rtol=0.05, atol=1e-3))
