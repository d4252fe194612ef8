"""Files as an earlier version wrote them: runs with their checkpoints, and faults.

They are written once and kept: that they can still be opened is what is tested. They
hold no path and no name of the machine that wrote them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import corral
import corral.testing
from tests.guard import envs
from tests.guard.leading import Plain
from tests.guard.pools import discrete
from tests.guard.training import TRAININGS, Training, corral_command, no_pictures, train

RUNS = {
    "cartpole": "cartpole",
    "memory": "memory",
    "tinyphysics": "tinyphysics",
    "bullet_pendulum": "bullet_pendulum",
    "grid_world": "grid_world, shared",
}
"""Folder -> which training of ours it is; each with two updates of three done."""
KEPT = ("config.yaml", "about.json", "metrics.jsonl", "episodes.jsonl")


def training_of(run: str) -> Training:
    found = TRAININGS[RUNS[run]]
    return replace(found, settings={**found.settings, "total_steps": 64})


def write_runs(folder: Path) -> None:
    """One whole folder, of the others what it takes to go on."""
    for name in RUNS:
        with _elsewhere():
            train(training_of(name), Path(name))
            shutil.rmtree(Path(name) / "tensorboard")  # a file is called after the host
            if name != "cartpole":
                _strip(Path(name))
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(name, folder / name)


def _strip(run: Path) -> None:
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name not in (*KEPT, "last.pt"):
            path.unlink()


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def resume(run: Path) -> None:
    """Its third update; the run is written to."""
    with no_pictures():
        status, said = corral_command(
            "train", f"--resume={run}", "--trust", "--set=total_steps=96"
        )
    assert status == 0, said


# Faults -------------------------------------------------------------------------------


def write_faults(folder: Path) -> None:
    """One for each way in which an env is named, wrapped, batched or shared."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"backend": "process", "workers": 2, "isolation": "shared"}
    here = {"backend": "serial"}
    crashing = functools.partial(corral.testing.Crashing, "raise", after=4)
    flat = {"wrappers": [corral.FlattenedAgents]}
    pools: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "raised": (envs.Fragile, _with(8), own),
        "died": (envs.Fragile, _with(9), own),
        "crashing": (crashing, discrete, here),
        "named": ("tests.guard.envs:Fragile", _with(8), here),
        "registered": ("CartPole-v1", _ones, {"wrappers": [Breaking], **here}),
        "batched": (Sinking, discrete, {"batched": True, **here}),
        "flattened": (Upset, _pairs, {**flat, **here}),
    }
    for number, (name, (env, actions, options)) in enumerate(pools.items()):
        with corral.Pool(env, 2, seed=71 + number, **options) as pool:
            _save(_broken(pool, actions), folder / f"{name}.zip")
    for name, env in (("team", Upset), ("turns", UpsetTurns)):
        team = corral.make_multi(env, 2, seed=81, **here)
        _save(_broken_team(team), folder / f"{name}.zip")
        team.close()


class Breaking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises in the fourth step."""

    def step(self, action: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 4:
            raise ArithmeticError("broke")
        return super().step(action)


class Sinking(envs.Fleet):
    """Raises in its third step."""

    def step(self, actions: Any, step_mask: Any = None) -> Any:
        if self.time.max() == 2:
            raise ArithmeticError("sunk")
        return super().step(actions, step_mask)


class Upset(envs.Pair):
    """Raises in its third step."""

    def step(self, actions: Any) -> Any:
        if self.time == 2:
            raise ArithmeticError("upset")
        return super().step(actions)


class UpsetTurns(envs.Turns):
    """Raises in its third step."""

    def step(self, action: Any) -> Any:
        if self.time == 2:
            raise ArithmeticError("upset")
        return super().step(action)


def _broken_team(team: Any) -> Any:
    sizes = {agent: (2,) if agent in envs.EYES else (2, 2) for agent in team.agents}
    actions = {agent: np.ones(size, np.int64) for agent, size in sizes.items()}
    team.reset(seed=75)
    try:
        for _ in range(30):
            team.step(actions)
    except corral.errors.EnvError as error:
        return error.fault
    raise AssertionError("nothing broke")


def _pairs(slots: Any, step: int) -> Any:
    return np.stack([discrete(slots, step), discrete(slots, step + 1)], axis=1)


def _ones(slots: Any, step: int) -> Any:
    return np.full(len(slots), step % 2)


def _with(action: int) -> Any:
    def actions(slots: Any, step: int) -> Any:
        return np.where(np.asarray(slots) == 1, action if step == 2 else 1, 1)

    return actions


def _broken(pool: Any, actions: Any) -> Any:
    pool.reset()
    try:
        for step in range(30):
            pool.step(actions(range(2), step))
    except corral.errors.FaultError as error:
        return error.fault
    raise AssertionError("nothing broke")


def _save(fault: Any, path: Path) -> None:
    """Without this machine's paths in it."""
    shown = re.sub(r'File "[^"]*/', 'File "', fault.traceback or "")
    fault = replace(fault, traceback=shown or None, output="", pid=1)
    argv, sys.argv = sys.argv, ["record"]
    before, place = list(sys.path), Path.cwd()
    target = path.resolve()
    fault.save(target)  # imports what that needs
    try:
        os.chdir("/")
        sys.path[:] = []
        fault.save(target)
    finally:
        sys.path[:] = before
        sys.argv = argv
        os.chdir(place)


# Values that users pickle themselves --------------------------------------------------


def write_values(folder: Path) -> None:
    """What a user may have kept of rollouts and episodes."""
    with corral.Pool(envs.Walk, 2, seed=91, backend="serial") as pool:
        norm = corral.ObsNorm(pool.spec.observation_space)
        scale = corral.RewardNorm(0.9)
        made = corral.Collector(pool, Plain(), obs_norm=norm, reward_norm=scale)
        values = {
            "rollout": made.collect(6),
            "state": made.state_dict(),
            "episodes": corral.run_episodes(pool, Plain(), episodes=2),
            "evaluation": corral.evaluate(Plain(), pool, episodes=2),
            "spec": pool.spec,
            "decision": corral.Decision(np.arange(2), extras={"value": np.ones(2)}),
        }
    (folder / "values.pickle").write_bytes(pickle.dumps(values, protocol=4))


def write_all(folder: Path) -> None:
    write_runs(folder / "trained")
    write_faults(folder / "faults")
    write_values(folder)
