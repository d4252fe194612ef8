"""Environments in a working directory, as `corral` finds them."""

from __future__ import annotations

import json
import sys

import pytest

ENVS = '''
import gymnasium, numpy as np, os, pathlib, signal

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=1):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps % 10 == 0, False, {}

class Second(Env):
    """Something happens only where several envs share a process."""
    made = 0

    def __init__(self, size=1):
        super().__init__(size)
        Second.made += 1
        self.number = Second.made

    def step(self, action):
        if self.number > 1:
            self.as_second()
        return super().step(action)

class Raises(Second):
    def as_second(self):
        raise RuntimeError("the arm left the table\\nof the lab")

class Dies(Second):
    def as_second(self):
        os.kill(os.getpid(), signal.SIGKILL)

class Waits(Second):
    def as_second(self):
        pathlib.Path("reached").touch()
        signal.pause()

class Fraction(Env):
    """Episodes return 0.94, 1.0, 0.94, ..."""
    episodes = 0

    def step(self, action):
        seen, _, ended, cut, info = super().step(action)
        reward = 0.1 if self.episodes % 2 else 0.094
        self.episodes += ended
        return seen, reward, ended, cut, info

class AlwaysRaises(Env):
    def step(self, action):
        raise RuntimeError("never works")

class Zoo:
    __module__ = "pettingzoo.made_here"

class Team(Zoo):
    pass

def needs(size, depth):
    return Env()

def cannot():
    raise ValueError("no such robot")

def nothing():
    pass
'''

SHORT = ("--rounds", "1", "--seconds", "0.01", "--against", "none")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a module of envs."""
    (tmp_path / "cli_envs.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path


@pytest.fixture
def bench(here, capsys):
    """Run `corral bench`; returns status, stdout, stderr and the JSON."""
    from corral.cli.main import main

    def run(*arguments):
        path = here / "report.json"
        try:
            status = main(["bench", *arguments, *SHORT, "--json", str(path)])
        except SystemExit as end:  # how argparse refuses
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err, json.loads(path.read_text()) if path.exists() else None

    return run
