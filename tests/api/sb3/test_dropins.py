"""Change one import line: the drop-ins behave as Stable-Baselines3's classes do."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys

import gymnasium
import numpy as np
import psutil
import pytest

import corral
from corral.errors import ClosedError, OptionError, SpaceMismatch, WorkerDied

from ..side_by_side import assert_same
from .envs import Kinds, Lister, Mortal, wrapped_kinds
from .side_by_side import assert_same_sb3_run

pytest.importorskip("stable_baselines3")
from stable_baselines3.common import vec_env as theirs
from stable_baselines3.common.env_util import make_vec_env

from corral import dropin

OURS = {"subproc": dropin.SubprocVecEnv, "dummy": dropin.DummyVecEnv}


@pytest.fixture(params=OURS)
def kind(request):
    return OURS[request.param]


# Trajectories -------------------------------------------------------------------------


@pytest.mark.parametrize("observations", ["box", "dict", "tuple"])
def test_every_step_equals_stable_baselines3(observations, kind, opened):
    fns = [functools.partial(Kinds, observations)] * 3
    ours = opened(kind(fns))
    assert assert_same_sb3_run(ours, theirs.DummyVecEnv(fns), 40) >= 15
    backend = "process" if kind is dropin.SubprocVecEnv else "serial"
    assert ours.layout.backend == backend


def test_make_vec_env_takes_them(kind, opened):
    def made(vec_env_cls, **options):
        return make_vec_env(
            "CartPole-v1",
            n_envs=3,
            seed=4,
            env_kwargs={"max_episode_steps": 9},
            vec_env_cls=vec_env_cls,
            vec_env_kwargs=options,
        )

    # Every worker imports torch, for Stable-Baselines3's Monitor.
    ours = opened(made(kind, infos="all", workers=1))
    assert ours._seeds == [4, 5, 6]
    assert assert_same_sb3_run(ours, made(theirs.DummyVecEnv), 30) >= 9
    assert ours.render().shape == (800, 1200, 3)


def test_options_of_the_pool_are_taken(opened):
    fns = [Kinds] * 3
    envs = opened(dropin.SubprocVecEnv(fns, isolation="slot"))
    assert len({os.getpid(), *envs.env_method("pid")}) == 4
    shared = opened(dropin.SubprocVecEnv(fns, workers=1))
    assert len(set(shared.env_method("pid"))) == 1


# Constructors -------------------------------------------------------------------------


def test_every_start_method_of_this_platform_is_taken(opened):
    for method in (None, *multiprocessing.get_all_start_methods()):
        envs = opened(dropin.SubprocVecEnv([Kinds], start_method=method))
        assert envs.env_method("pid") != [os.getpid()]


def test_an_unknown_start_method_is_refused_as_there():
    messages = []
    for subproc in (dropin.SubprocVecEnv, theirs.SubprocVecEnv):
        with pytest.raises(ValueError) as caught:
            subproc([Kinds], start_method="teleport")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_no_factories_are_refused(kind):
    with pytest.raises(OptionError, match="at least one"):
        kind([])


def test_dummy_refuses_one_env_for_two_slots_and_shows_its_envs(opened):
    env = Kinds()
    with pytest.raises(ValueError, match="the same environment"):
        dropin.DummyVecEnv([lambda: env, lambda: env])
    envs = opened(dropin.DummyVecEnv([lambda: env, wrapped_kinds]))
    assert envs.envs[0] is env and envs.envs[1].unwrapped is not env
    env.length = 99
    assert envs.get_attr("length", indices=0) == [99]


def test_subproc_gives_every_slot_a_copy_of_one_env(opened):
    """As with one process for each: an env that was made before is copied."""
    env = Kinds()
    fns = [lambda: env, lambda: env, lambda: gymnasium.Wrapper(env), Kinds]
    ours = opened(dropin.SubprocVecEnv(fns, workers=1))
    assert assert_same_sb3_run(ours, theirs.DummyVecEnv([Kinds] * 4), 20) >= 8


def test_they_are_told_from_others_by_class(kind, opened):
    envs = opened(kind([Kinds]))
    assert isinstance(envs, theirs.VecEnv) and type(envs).__name__ == kind.__name__
    assert not isinstance(envs, (theirs.DummyVecEnv, theirs.SubprocVecEnv))


# Actions ------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [np.zeros((2, 2, 2)), [[1], "b"], np.array([7, 8])])
def test_actions_of_any_shape_are_handed_on_as_there(actions, kind, opened):
    ours, dummy = opened(kind([Lister] * 2)), theirs.DummyVecEnv([Lister] * 2)
    for envs in (ours, dummy):
        envs.reset()
    assert_same(ours.step(actions), dummy.step(actions))


@pytest.mark.parametrize("actions", [[0], [0, 0, 0], 0, None, {"a": 0, "b": 0}])
def test_actions_for_another_number_of_slots_are_refused(actions, kind, opened):
    envs = opened(kind([Lister] * 2))
    envs.reset()
    with pytest.raises(SpaceMismatch, match="actions"):
        envs.step(actions)


# Ending -------------------------------------------------------------------------------


def test_a_killed_worker_gives_one_readable_error(opened):
    envs = opened(dropin.SubprocVecEnv([Mortal] * 2, workers=2))
    pids = envs.env_method("pid")
    envs.reset()
    with pytest.raises(EOFError, match=r"slot 1.*SIGKILL") as caught:
        envs.step([0, 2])
    assert isinstance(caught.value, WorkerDied)
    envs.close()
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_close_may_be_called_twice_and_with_a_step_under_way(kind):
    envs = kind([Kinds] * 2)
    envs.reset()
    envs.step_async([0, 0])
    envs.close()
    envs.close()
    with pytest.raises(ClosedError):
        envs.step_wait()


# Without the library ------------------------------------------------------------------


def without_sb3(code: str) -> str:
    block = "import sys; sys.modules['stable_baselines3'] = None\n"
    result = subprocess.run(
        [sys.executable, "-c", block + code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "use",
    [
        "from corral.dropin import SubprocVecEnv",
        "corral.dropin.DummyVecEnv",
        "corral.make_sb3('CartPole-v1', 2)",
    ],
)
def test_a_missing_library_is_named_with_what_to_install(use):
    told = without_sb3(f"""
import corral
try:
    {use}
except ImportError as error:
    assert isinstance(error, corral.errors.MissingExtra)
    print(error)
""")
    assert "Stable-Baselines3" in told and "pip install 'corral[sb3]'" in told


def test_the_library_is_imported_by_who_makes_something_with_it():
    without_sb3("import corral; corral.make_sb3; assert 'torch' not in sys.modules")


def test_the_rest_does_not_need_the_library():
    without_sb3("from corral import *; make('CartPole-v1', 2, backend='serial')")


def test_names_that_are_not_there_are_told_from_those_that_are():
    with pytest.raises(AttributeError, match=r"DummyVecEnv, SubprocVecEnv"):
        _ = corral.dropin.SubProcVecEnv
