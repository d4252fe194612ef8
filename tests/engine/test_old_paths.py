"""What named a module before it moved still finds it: imports, pickles and configs."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

import corral
from corral.engine.adapters.env_names import resolve_env
from corral.engine.old_paths import MODULES, PUBLIC, ROOMS, current
from corral.errors import OptionError

NEEDS = {
    "api.agilerl": "agilerl",
    "api.sb3": "stable_baselines3",
    "learners.sb3": "stable_baselines3",
    "train.recipes": "torch",
    "zoo.bullet_pendulum": "pybullet",
    "zoo.grid_world": "stable_baselines3",
    "zoo.tinyphysics": "onnxruntime",
    "zoo.upkie": "upkie",
}
"""Modules that import a package which may be absent."""


@pytest.mark.parametrize(
    "old", [old for old in [*ROOMS, *MODULES] if old not in PUBLIC]
)
def test_an_old_name_is_the_module_that_is_there_now(old):
    new = {**ROOMS, **MODULES}[old]
    for module, package in NEEDS.items():
        if new.startswith(module):
            pytest.importorskip(package)
    home = importlib.import_module(f"corral.{new}")
    moved = importlib.import_module(f"corral.{old}")
    # Modules below have old names of their own, and are cases of their own.
    defined = [
        name
        for name, value in vars(home).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    names = getattr(home, "__all__", defined)
    assert all(getattr(moved, name) is getattr(home, name) for name in names)


def test_a_module_that_kept_its_name_is_found_in_its_new_room():
    assert current("corral.workers.shard") == "corral.engine.worker.shard"
    shard = importlib.import_module("corral.workers.shard")
    assert shard.Shard is importlib.import_module("corral.engine.worker.shard").Shard


def test_a_folder_that_an_older_checkout_has_left_hides_nothing(tmp_path):
    (tmp_path / "adapters" / "__pycache__").mkdir(parents=True)
    code = (
        f"import corral; corral.__path__.append({str(tmp_path)!r}); "
        "from corral.adapters import adapt; print(adapt.__module__)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout == "corral.engine.adapters\n", said.stderr


@pytest.mark.parametrize("name", ["corral.nothing", "corral.pool.nothing", "nothing"])
def test_what_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_what_was_pickled_by_an_old_name_is_opened():
    # As pickle writes a class: its module, and its name.
    by_name = b"ccorral.testing.answers\nKnownAnswers\n."
    assert pickle.loads(by_name) is corral.testing.KnownAnswers
    kit = pickle.loads(b"ccorral.workers.kit\nSurroundings\n.")
    assert kit.__module__ == "corral.engine.worker.rebuild_spec"


def test_an_env_of_a_config_is_found_by_its_old_name():
    pytest.importorskip("pettingzoo")
    found = resolve_env("corral.recipes.grid_world_envs:make")
    assert found.factory.__module__ == "corral.zoo.grid_world.training_env"
    with pytest.raises(OptionError, match="no function or class 'mak'"):
        resolve_env("corral.recipes.grid_world_envs:mak")


@pytest.mark.parametrize("name", ["doctor", "testing"])
def test_public_modules_have_the_names_of_their_rooms(name):
    public = importlib.import_module(f"corral.{name}")
    assert getattr(corral, name) is public
    room = f"corral.tools.{name}"
    for one in public.__all__:
        found = getattr(public, one)
        assert getattr(found, "__module__", room).startswith(room)
    with pytest.raises(AttributeError, match=f"corral.{name} has no 'x'; it has "):
        _ = public.x


def test_the_public_module_of_dropins_has_the_names_of_its_room():
    public = importlib.import_module("corral.dropin")
    assert corral.dropin is public
    home = importlib.import_module("corral.api.dropin")
    assert public.__all__ == home.__all__
    assert public.SyncVectorEnv is home.SyncVectorEnv


def test_public_modules_import_what_is_asked_for_alone():
    code = (
        "import sys; from corral.testing import KnownAnswers; import corral.doctor; "
        "import corral.dropin; print('corral.engine.pool' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
