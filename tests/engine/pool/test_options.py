"""A pool's options are checked when they are made, and say the same everywhere."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

import corral
from corral import Pool
from corral.engine.pool import PoolOptions
from corral.errors import OptionError


def test_every_option_is_a_keyword_of_pool_with_the_same_default():
    keywords = {
        name: one.default
        for name, one in inspect.signature(Pool).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    assert {one.name: one.default for one in fields(PoolOptions)} == keywords


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"autoreset": "never"}, "autoreset is 'never'; choose one of"),
        ({"seed": -1}, "seed is -1; it must be an integer >= 0"),
        ({"seed": 1.5}, "seed is 1.5; it must be an integer >= 0"),
        ({"infos": "some"}, "infos is 'some'; choose"),
        ({"close_timeout": -1}, "close_timeout is -1; it must be seconds >= 0"),
        ({"step_timeout": 0}, "step_timeout is 0; it must be seconds > 0, or None"),
        ({"reset_timeout": True}, "reset_timeout is True; it must be seconds > 0"),
        ({"on_fault": "ignore"}, "on_fault is 'ignore'; choose one of raise"),
        ({"on_timeout": "wait"}, "on_timeout is 'wait'; choose one of raise"),
        ({"max_restarts": 0}, "max_restarts is 0; it must be an integer >= 1"),
        ({"restarts_per_minute": 1.5}, "restarts_per_minute is 1.5; it must be"),
        ({"memory_limit": 0, "isolation": "slot"}, "memory_limit is 0; it must be"),
        ({"memory_limit": 1}, 'needs one of its own: add isolation="slot"'),
        ({"backend": "fork"}, "backend is 'fork'; choose one of auto, serial"),
        ({"workers": 0}, "workers is 0; it must be an integer >= 1"),
        ({"workers": 2, "backend": "serial"}, "has one worker, not workers=2"),
        ({"isolation": "each"}, "isolation is 'each'; choose one of auto, slot"),
        ({"threads_per_worker": 0}, "threads_per_worker is 0; it must be an integer"),
        ({"devices": 3}, "devices is 3; it must be a list of names"),
        ({"devices": "cuda:0"}, "devices is 'cuda:0'; it must be a list of names"),
        ({"devices": iter(["cpu"])}, "devices is <.*it must be a list of names"),
        ({"wrappers": int}, "wrappers is <class 'int'>; it must be a list of func"),
        ({"env_kwargs": 3}, "env_kwargs is 3; it must be a dict of keyword"),
        ({"shared": 3}, "shared is 3; it must be a dict of arrays"),
        ({"wrappers": [3]}, r"wrappers is \[3\]; it must be a list of functions"),
        ({"infos": None}, "infos is None; choose .* or a list of keys"),
        ({"infos": 5}, "infos is 5; choose .* or a list of keys"),
        ({"infos": [1]}, r"infos is \[1\]; choose .* or a list of keys"),
        ({"infos": iter(["x"])}, "infos is <.*; choose .* or a list of keys"),
        ({"worker_init": 5}, r"worker_init is 5; .* function, worker_init\(\), or"),
        ({"per_worker": "x"}, r"per_worker is 'x'; .* function, per_worker\(\), or"),
        ({"sample_task": 3}, r"sample_task is 3; .*, sample_task\(slot, episode, rng"),
        ({"copy": "no"}, "copy is 'no'; it must be True or False"),
        ({"batched": "x"}, "batched is 'x'; it must be True or False"),
        ({"isolate_rng": "no"}, "isolate_rng is 'no'; it must be True or False"),
        ({"check_actions": 1}, "check_actions is 1; it must be True or False"),
        ({"debug": None}, "debug is None; it must be True or False"),
        ({"batched": True, "isolate_rng": True}, "isolate_rng=True works slot by"),
    ],
)
def test_what_has_no_meaning_is_refused_before_anything_is_built(asked, text):
    with pytest.raises(OptionError, match=text):
        PoolOptions(**asked)


@pytest.mark.parametrize("make", [corral.make, corral.make_sb3, corral.make_multi])
@pytest.mark.parametrize("asked", [{"wrappers": 3}, {"wrappers": [3]}, {"infos": None}])
def test_apis_refuse_the_same(make, asked):
    (name,) = asked
    with pytest.raises(OptionError, match=f"^{name} is .*; (it must be|choose) "):
        make("CartPole-v1", 2, backend="serial", **asked)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["start", "reset", "step", "close"])
def test_timeouts_are_finite(name, seconds):
    name = f"{name}_timeout"
    with pytest.raises(OptionError, match=f"{name} is {seconds}; it must be seconds"):
        PoolOptions(**{name: seconds})


def test_flags_may_be_numpys():
    flags = {name: np.True_ for name in ("copy", "debug", "check_actions")}
    assert PoolOptions(**flags).copy
    assert not PoolOptions(batched=np.False_, isolate_rng=np.False_).batched


def test_another_function_that_draws_tasks_is_checked_too():
    with Pool("CartPole-v1", backend="serial") as pool:
        with pytest.raises(OptionError, match="sample_task is 3; it must be a func"):
            pool.sample_task = 3
        assert pool.sample_task is None


def test_options_for_another_pool_are_checked_again_and_the_first_stay():
    options = PoolOptions(seed=3)
    with pytest.raises(OptionError, match="seed is -1"):
        replace(options, seed=-1)
    with pytest.raises(FrozenInstanceError):
        options.seed = 4  # type: ignore[misc]
    assert options.seed == 3


def test_what_only_processes_can_give_is_named_as_it_was_written():
    options = PoolOptions(step_timeout=2.0, on_fault="restart", on_timeout="raise")
    assert options.needs_processes() == "step_timeout=2.0, on_fault='restart'"
    assert PoolOptions().needs_processes() == ""


@pytest.mark.parametrize(
    ("asked", "died", "hung"),
    [
        ({}, False, False),
        ({"on_fault": "restart"}, True, True),
        ({"on_fault": "restart", "on_timeout": "raise"}, True, False),
        ({"on_timeout": "restart"}, False, True),
    ],
)
def test_a_timeout_is_treated_as_a_fault_unless_something_else_was_asked(
    asked, died, hung
):
    options = PoolOptions(**asked)
    assert options.restarts("died") == died
    assert options.restarts("hung") == hung
    assert options.restarts_workers == (died or hung)


def test_an_api_that_was_given_options_opens_the_same_pool():
    options = PoolOptions(backend="serial", seed=5, autoreset="off", copy=False)
    with Pool.with_options("CartPole-v1", 2, options) as pool:
        assert (pool.num_envs, pool.seed, pool.autoreset) == (2, 5, "off")
        assert pool.copy is False and pool.layout.backend == "serial"
        first = pool.reset()
    with Pool("CartPole-v1", 2, backend="serial", seed=5, autoreset="off") as pool:
        assert (pool.reset().obs == first.obs).all()
