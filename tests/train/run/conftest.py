"""Small runs, in a working directory of their own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from small_runs import ENVS, SMALL
from undrawn import hurried, undrawn

from corral.train.run.directory import RunDirectory
from corral.train.run.start import begin, resume


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a module of envs."""
    (tmp_path / "run_envs.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("run_envs", None)


@pytest.fixture(autouse=True)
def threads():
    """Leave torch as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def train():
    """Run to the end; returns the run's directory."""

    def run(source="cartpole", out="run", settings=None, **options):
        chosen = {**SMALL, **(settings or {})}
        with begin(source, chosen, out=Path(out), **options) as training:
            assert training.run() == 0
        return training.directory

    return run


@pytest.fixture(scope="session")
def example(tmp_path_factory):
    """One run of CartPole, from its beginning to its end."""
    path = tmp_path_factory.mktemp("example") / "run"
    with undrawn(), hurried(), begin("cartpole", SMALL, out=path) as training:
        assert training.run() == 0
    return path


@pytest.fixture
def trained(example, here):
    """A copy of it, to be spoilt."""
    shutil.copytree(example, here / "run")
    return RunDirectory(Path("run"))


@pytest.fixture
def go_on():
    """Resume, and run to the end."""

    def run(path, **settings):
        with resume(path, settings) as training:
            assert training.run() == 0

    return run
