"""A misspelt keyword names the function that was called and the keyword meant."""

import inspect

import gymnasium
import pytest

import corral
from corral import dropin
from corral.errors import OptionError, UnknownKeyword

POSITIONAL = {
    "Cluster": 1,
    "Collector": 2,
    "Crew": 0,
    "Pool": 1,
    "Trajectories": 1,
    "collect": 2,
    "evaluate": 2,
    "load_policy": 1,
    "make": 1,
    "make_async": 1,
    "make_multi": 1,
    "make_sb3": 1,
    "make_shared_policy": 1,
    "map": 2,
    "replay": 1,
    "run_episodes": 2,
}
"""How many arguments these need; the keyword is refused before one is looked at."""
VALUES = {
    *("AgainstRandom", "Decision", "EnvSpec", "Episode", "Evaluation"),
    *("FlattenedAgents", "ObsNorm", "Policy", "RewardNorm", "Rollout", "StandIn"),
    *(
        "StayingAgents",
        "Step",
        "errors",
        "register_codec",
        "Trials",
        "take_turns",
        "this_worker",
        "two_groups",
    ),
}
"""No calls with options: values, protocols, functions of one or two arguments."""


def refused(call, *arguments, **keywords):
    with pytest.raises(UnknownKeyword) as caught:
        call(*arguments, **keywords)
    assert isinstance(caught.value, OptionError)
    assert isinstance(caught.value, TypeError)
    return str(caught.value)


def test_every_function_with_options_is_among_them():
    assert {*POSITIONAL, *VALUES} == set(corral.__all__)


@pytest.mark.parametrize("name", POSITIONAL)
def test_the_function_that_was_called_is_named(name):
    call = getattr(corral, name)
    told = refused(call, *[None] * POSITIONAL[name], zyx=1)
    assert told.startswith(f"{name}() has no argument 'zyx': its arguments are ")


@pytest.mark.parametrize("name", ["AsyncVectorEnv", "SyncVectorEnv"])
def test_a_drop_in_is_named_too(name):
    told = refused(getattr(dropin, name), [], isolatoin="slot")
    assert told == f"{name}() has no argument 'isolatoin': did you mean isolation?"


@pytest.mark.parametrize("name", ["SubprocVecEnv", "DummyVecEnv"])
def test_a_drop_in_for_stable_baselines3_is_named_too(name):
    pytest.importorskip("stable_baselines3", reason="it is not installed")
    call = getattr(dropin, name)
    assert "did you mean isolation?" in refused(call, [], isolatoin="slot")
    assert f"{name}() has no argument 'backend': it al" in refused(call, [], backend="")


@pytest.mark.parametrize(
    ("name", "word", "hint"),
    [
        ("make", "backennd", "did you mean backend?"),
        ("make", "n_envs", "it is called num_envs here"),
        ("make", "num_workers", "it is called workers here"),
        ("make", "autoreset_mode", "it is called autoreset here"),
        ("make", "vectorization_mode", "it is called backend here"),
        (
            *("make", "timeout"),
            "it is called start_timeout or reset_timeout or step_timeout here",
        ),
        ("make", "context", "always started clean, on every platform; leave it out"),
        ("make", "start_method", "always started clean"),
        ("make", "shared_memory", "shared memory is always used"),
        (
            "make",
            "render_mode",
            'it goes to the environment: env_kwargs={"render_mode"',
        ),
        ("make", "gravity", 'what the environment takes goes into env_kwargs={"gravi'),
        ("make", "_api", "its arguments are env, num_envs, autoreset"),
        ("make_async", "batchsize", "did you mean batch_size?"),
        ("make_multi", "obsreve", "did you mean observe?"),
        ("make_sb3", "autoreset", "Stable-Baselines3 restarts an episode in the step"),
        ("make_sb3", "copy", "it always gets copies"),
        ("make_sb3", "vec_env_cls", "it is called backend here"),
        ("make_shared_policy", "autoreset", "agents of one env share its restarts"),
        ("Crew", "max_workers", "it is called workers here"),
        ("map", "processes", "it is called workers here"),
        ("map", "chunksize", "a worker gets its next item when it is free"),
        ("map", "timeout", "it is called item_timeout here"),
        ("map", "initializer", "it is called worker_init here"),
        ("evaluate", "n_eval_episodes", "it is called episodes here"),
        ("evaluate", "num_env", "it is called num_envs here"),
        ("run_episodes", "workers", "where the pool is made: Pool(..., workers=...)"),
        ("collect", "n_steps", "it is called steps here"),
        ("Collector", "seed", "where the pool is made: Pool(..., seed=...)"),
        ("Pool", "autorest", "did you mean autoreset?"),
    ],
)
def test_the_keyword_that_was_meant_is_told(name, word, hint):
    arguments = [None] * POSITIONAL[name]
    told = refused(getattr(corral, name), *arguments, **{word: 1})
    assert told.startswith(f"{name}() has no argument {word!r}: ")
    assert hint in told


def test_every_wrong_keyword_is_told():
    told = refused(corral.make, "CartPole-v1", n_envs=1, backennd="serial")
    assert "'n_envs': it is called num_envs here; make() has no argument" in told
    assert told.endswith("'backennd': did you mean backend?")


def test_the_doctor_is_named_too():
    told = refused(corral.doctor.check, "CartPole-v1", sede=1)
    assert told == "check() has no argument 'sede': did you mean seed?"


@pytest.mark.parametrize("name", ["make", "make_async", "make_multi", "evaluate"])
def test_signatures_show_what_is_handed_on(name):
    shown = inspect.signature(getattr(corral, name)).parameters
    pools = inspect.signature(corral.Pool).parameters
    own = {"autoreset", "copy", "seed"}  # with a default of their own
    assert "self" not in pools
    for keyword in set(pools) - {"env", "num_envs", "_api"} - own:
        assert shown[keyword] == pools[keyword]
    assert "_api" not in shown
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())


def test_a_type_error_of_the_environment_stays_what_it_is():
    def make():
        raise TypeError("make() got an unexpected keyword argument 'backend'")

    with pytest.raises(corral.errors.StartError) as caught:
        corral.make(make, backend="serial")
    assert isinstance(caught.value.__cause__, TypeError | corral.errors.RemoteTraceback)


def test_too_many_arguments_are_told_as_python_does():
    with pytest.raises(TypeError, match=r"^make\(\) takes from 1 to 2 positional"):
        corral.make(gymnasium.Env, 1, "process")
