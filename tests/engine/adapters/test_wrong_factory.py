"""What is passed in the place of a factory is told in a sentence what to pass."""

import types

import gymnasium
import pytest

import corral
from corral.engine.adapters.factories import factories_for, one_per_slot
from corral.errors import OptionError


class NotAnEnv:
    pass


class MakesAnother:
    def __new__(cls):
        return gymnasium.make("CartPole-v1")


class OneAgent(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)


class Agents:
    """Looks like one of PettingZoo's."""

    possible_agents = ("a", "b")

    def observation_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    action_space = observation_space

    def reset(self, seed=None, options=None):
        return {}, {}

    def step(self, actions):
        return {}, {}, {}, {}, {}


class VecEnv:
    """Looks like one of Stable-Baselines3's."""

    num_envs = 2

    def step_wait(self):
        return None


def module(name, *functions):
    made = types.ModuleType(name)
    for function in functions:
        setattr(made, function, OneAgent)
    return made


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (
            module("games.spread_v3", "parallel_env", "env", "raw_env"),
            "env is the module games.spread_v3; pass its function "
            "spread_v3.parallel_env or spread_v3.env to corral.make_multi",
        ),
        (module("mine"), "env is the module mine; pass a function or class of it"),
        (
            gymnasium.make("CartPole-v1"),
            "env is an environment, <TimeLimit<OrderEnforcing<PassiveEnvChecker",
        ),
        (OneAgent(), "pass its id, its class or a function that makes it"),
        (
            gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"),
            "env is SyncVectorEnv, which is several environments already; pass a "
            "factory of one of them",
        ),
        (VecEnv(), "env is VecEnv, which is several environments already"),
        (Agents(), "which is called once per slot"),
        (NotAnEnv, "env is the class NotAnEnv, which has no reset and no step"),
        (dict, "env is the class dict, which has no reset"),
        (None, 'env is None; pass an id such as "CartPole-v1", "module:function"'),
        (3, "env is 3; pass an id"),
        ({"env": "CartPole-v1"}, "pass an id"),
        ([OneAgent, OneAgent()], "item 1 of the list is an environment, "),
        ([None], "item 0 of the list is None; pass"),
        ((OneAgent for _ in range(2)), "env is generator, which can be read once"),
        ([], "at least one"),
    ],
)
def test_what_to_pass_is_told(thing, told):
    for call in (corral.make, corral.make_multi, corral.Pool, corral.make_async):
        with pytest.raises(OptionError) as caught:
            call(thing, None)
        assert told in str(caught.value)


def test_a_class_that_makes_another_is_a_factory():
    (factory,) = factories_for(MakesAnother, 1)
    assert factory is MakesAnother


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_gymnasium_env_for_several_agents_is_told_the_other_function(backend):
    with pytest.raises(OptionError, match=r"it has one agent: use corral\.make"):
        corral.make_multi("CartPole-v1", 2, backend=backend)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_several_agents_for_make_are_told_the_other_function(backend):
    with pytest.raises(OptionError, match=r"several agents: use corral\.make_multi"):
        corral.make(Agents, 2, backend=backend)


def test_gymnasiums_spec_makes_its_env():
    spec = gymnasium.spec("CartPole-v1")
    for backend in ("serial", "process"):
        kwargs = {"sutton_barto_reward": True}
        envs = corral.make(spec, 2, backend=backend, env_kwargs=kwargs)
        assert (envs.spec.id, envs.spec.kwargs) == ("CartPole-v1", kwargs)
        assert envs.get_attr("_sutton_barto_reward") == (True, True)
        envs.close()


def test_a_list_may_have_ids_and_functions():
    with corral.Pool(["CartPole-v1", lambda: gymnasium.make("CartPole-v1")]) as pool:
        assert [one.id for one in pool.specs] == ["CartPole-v1"] * 2


@pytest.mark.parametrize("thing", ["CartPole-v1", OneAgent])
def test_what_needs_a_list_is_told_so(thing):
    with pytest.raises(OptionError, match=r"pass a list with one function for each"):
        one_per_slot(thing)
    with pytest.raises(OptionError, match=r"pass a list with one function for each"):
        corral.dropin.SyncVectorEnv(thing)


@pytest.mark.parametrize("thing", ["CartPole-v1", OneAgent, None])
def test_what_is_no_pool_is_told_how_to_make_one(thing):
    name = "'CartPole-v1'" if thing == "CartPole-v1" else "env"
    told = rf"pass a pool: corral\.Pool\({name}, num_envs=8\)"
    for call in (corral.collect, corral.run_episodes, corral.Collector):
        with pytest.raises(OptionError, match=told):
            call(thing, None)
    with pytest.raises(OptionError, match=told):
        corral.Trajectories(thing)
