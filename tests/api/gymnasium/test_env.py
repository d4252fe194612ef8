"""`corral.make` returns what Gymnasium's own vector envs return."""

from __future__ import annotations

import copy
import functools
import importlib
import multiprocessing
import os
import pickle
import sys
import time
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import corral
from corral.errors import (
    ClosedError,
    EnvError,
    EpisodeOver,
    OptionError,
    OrderError,
    SpacesDiffer,
    StaleViewError,
)

from ..envs import Chatty, Moody, Quick, Slow, Steady, Tall, Trouble, Wordy
from ..side_by_side import assert_same, assert_same_run

BACKENDS = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": "process", "workers": 2},
}
MODES = ["NextStep", "SameStep", "Disabled"]
# Short episodes, so that every run sees several ends.
ENVS = {
    "CartPole-v1": {},
    "Pendulum-v1": {"max_episode_steps": 9},
    "FrozenLake-v1": {},
    "Blackjack-v1": {},
    "Ant-v5": {"max_episode_steps": 9},
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


def factories(name: str, count: int = 3):
    return [functools.partial(gymnasium.make, name, **ENVS[name])] * count


def moody(count: int = 2, **options):
    return corral.make(Moody, count, **options)


# Trajectories -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENVS)
def test_every_step_equals_gymnasium(name, mode, backend, opened):
    ours = opened(corral.make(factories(name), autoreset=mode, **backend))
    theirs = opened(SyncVectorEnv(factories(name), autoreset_mode=mode))
    steps = 25 if name == "Ant-v5" else 50
    assert assert_same_run(ours, theirs, steps) >= 3


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_nested_spaces_and_infos_equal_gymnasium(mode, backend, opened):
    ours = opened(corral.make(Chatty, 3, autoreset=mode, **backend))
    theirs = opened(SyncVectorEnv([Chatty] * 3, autoreset_mode=mode))
    assert assert_same_run(ours, theirs, 40) >= 9


def test_final_obs_is_right_where_an_env_reuses_its_buffer(backend, opened):
    ours = opened(corral.make(Chatty, 3, autoreset="same_step", **backend))
    theirs = [Chatty() for _ in range(3)]
    ours.reset(seed=5)
    for slot, env in enumerate(theirs):
        env.reset(seed=5 + slot)
    ours.action_space.seed(0)
    ended = 0
    for _ in range(30):
        actions = ours.action_space.sample()
        obs, rewards, terminations, truncations, infos = ours.step(actions)
        for slot, env in enumerate(theirs):
            action = {key: value[slot] for key, value in actions.items()}
            alone, reward, terminated, truncated, info = env.step(action)
            assert (rewards[slot], terminations[slot], truncations[slot]) == (
                reward,
                terminated,
                truncated,
            )
            if terminated or truncated:
                ended += 1
                assert infos["_final_obs"][slot] and infos["_final_info"][slot]
                assert_same(infos["final_obs"][slot], alone, "final_obs")
                for key in ("time", "half", "odd"):
                    assert infos["final_info"][key][slot] == info[key]
                alone, _ = env.reset()
            assert_same(obs["image"][slot], alone["image"])
            assert obs["pair"][0][slot] == alone["pair"][0]
    assert ended >= 6


@pytest.mark.parametrize("mode", MODES)
def test_spaces_of_no_fixed_size_equal_gymnasium(mode, opened):
    ours = opened(corral.make(Wordy, 3, autoreset=mode, **BACKENDS["process"]))
    theirs = opened(SyncVectorEnv([Wordy] * 3, autoreset_mode=mode))
    assert assert_same_run(ours, theirs, 25) >= 6


def test_float64_actions_reach_the_env_as_they_are(backend, opened):
    def finer(actions):
        return actions.astype(np.float64) * (1 + 1e-12)

    ours = opened(corral.make(factories("Pendulum-v1"), **backend))
    theirs = opened(SyncVectorEnv(factories("Pendulum-v1")))
    assert_same_run(ours, theirs, 25, actions=finer)


def test_actions_may_be_a_sequence(backend, opened):
    ours = opened(corral.make("CartPole-v1", 3, **backend))
    theirs = opened(SyncVectorEnv(factories("CartPole-v1")))
    for kind in (list, tuple):
        assert_same_run(ours, theirs, 10, actions=lambda b, k=kind: k(b.tolist()))


def test_env_kwargs_and_wrappers_apply_to_every_slot(opened):
    ours = opened(
        corral.make(
            "FrozenLake-v1",
            2,
            env_kwargs={"is_slippery": False},
            wrappers=[
                functools.partial(
                    gymnasium.wrappers.TransformReward, func=lambda reward: reward + 1
                ),
                functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=3),
            ],
            **BACKENDS["process"],
        )
    )
    ours.reset(seed=0)
    rights = np.array([2, 2])
    outcomes = [ours.step(rights) for _ in range(3)]
    assert [outcome[0].tolist() for outcome in outcomes] == [[1, 1], [2, 2], [3, 3]]
    assert [outcome[1].tolist() for outcome in outcomes] == [[1, 1]] * 3
    assert outcomes[-1][3].all()


# Seeds, options and masks -------------------------------------------------------------


def test_seeds_mean_what_they_mean_in_gymnasium(backend, opened):
    ours = opened(corral.make(Chatty, 3, **backend))
    theirs = opened(SyncVectorEnv([Chatty] * 3))
    for seed in (0, [7, 8, 2**40], [4, None, 4], 2**63):
        here, _ = ours.reset(seed=seed)
        there, _ = theirs.reset(seed=seed)
        for slot in range(3):
            if isinstance(seed, list) and seed[slot] is None:
                continue
            assert here["pair"][1][slot] == there["pair"][1][slot]
            assert ours.np_random_seed[slot] == theirs.np_random_seed[slot]
    here, _ = ours.reset(seed=np.int64(3))  # which Gymnasium does not take
    assert_same(here, theirs.reset(seed=3)[0])


def test_without_a_seed_slots_differ(opened):
    ours = opened(corral.make("CartPole-v1", 4, **BACKENDS["process"]))
    first, _ = ours.reset()
    again, _ = ours.reset()
    rows = {row.tobytes() for row in [*first, *again]}
    assert len(rows) == 8


def test_a_wrong_number_of_seeds_is_refused(opened):
    envs = opened(moody(backend="serial"))
    with pytest.raises(ValueError, match="num_envs=2 but got length=3"):
        envs.reset(seed=[1, 2, 3])


def test_a_seed_that_is_no_integer_is_refused(opened):
    envs = opened(moody(backend="serial"))
    with pytest.raises(ValueError, match=r"the seed for slot 0 is 1\.5"):
        envs.reset(seed=[1.5, 2])
    envs.reset(seed=np.array([1, 2]))


def test_reset_mask_resets_the_masked_and_leaves_the_callers_dict(backend, opened):
    ours = opened(corral.make(Chatty, 3, **backend))
    theirs = opened(SyncVectorEnv([Chatty] * 3))
    ours.reset(seed=1)
    theirs.reset(seed=1)
    actions = theirs.action_space.sample()
    assert_same(ours.step(actions), theirs.step(actions))
    mask = np.array([True, False, True])
    options = {"reset_mask": mask, "level": 3}
    seeds = [11, 12, 13]
    here = ours.reset(seed=seeds, options=options)
    assert options == {"reset_mask": mask, "level": 3}
    assert_same(here, theirs.reset(seed=seeds, options=dict(options)))
    assert ours.started.tolist() == [True, False, True]
    assert ours.valid.all()
    assert_same(ours.step(actions), theirs.step(actions))


@pytest.mark.parametrize(
    "mask",
    [
        [True, False],
        np.array([True]),
        np.array([1, 0]),
        np.array([False, False]),
    ],
    ids=["list", "short", "integers", "empty"],
)
def test_a_bad_reset_mask_is_refused_as_by_gymnasium(mask, opened):
    ours = opened(moody(backend="serial"))
    theirs = opened(SyncVectorEnv([Moody, Moody]))
    for envs in (ours, theirs):
        envs.reset()
    with pytest.raises((TypeError, ValueError, AssertionError)) as expected:
        theirs.reset(options={"reset_mask": mask})
    by_assertion = expected.type is AssertionError  # Gymnasium before 1.4
    types = (TypeError, ValueError) if by_assertion else expected.type
    with pytest.raises(types, match="reset_mask"):
        ours.reset(options={"reset_mask": mask})
    ours.step(np.array([0, 0]))


# What the object says -----------------------------------------------------------------


@pytest.mark.parametrize("name", ENVS)
def test_spaces_and_metadata_equal_gymnasium(name, opened):
    ours = opened(corral.make(name, 3, env_kwargs=ENVS[name], **BACKENDS["process"]))
    theirs = opened(SyncVectorEnv(factories(name)))
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    for attribute in (
        "num_envs",
        "metadata",
        "render_mode",
        "single_observation_space",
        "single_action_space",
        "observation_space",
        "action_space",
    ):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert ours.spec is not None and ours.spec.id == name


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ("next_step", AutoresetMode.NEXT_STEP),
        ("same_step", AutoresetMode.SAME_STEP),
        ("off", AutoresetMode.DISABLED),
        ("SameStep", AutoresetMode.SAME_STEP),
        (AutoresetMode.DISABLED, AutoresetMode.DISABLED),
    ],
)
def test_autoreset_mode_is_in_the_metadata(given, mode, opened):
    envs = opened(moody(backend="serial", autoreset=given))
    assert envs.metadata["autoreset_mode"] is mode


def test_an_unknown_autoreset_mode_is_refused():
    with pytest.raises(ValueError, match=r"'sometimes'.*next_step, same_step, off"):
        moody(backend="serial", autoreset="sometimes")


def test_valid_and_started_tell_filler_rows_and_first_observations(backend, opened):
    ends, goes = np.array([3, 0]), np.array([0, 0])
    envs = opened(moody(autoreset="next_step", **backend))
    with pytest.raises(OrderError):
        _ = envs.valid
    envs.reset()
    assert envs.valid.all() and envs.started.all()
    envs.step(ends)
    assert envs.valid.all() and not envs.started.any()
    infos = envs.step(goes)[4]
    assert envs.valid.tolist() == [False, True]
    assert envs.started.tolist() == [True, False]
    assert "valid" not in infos and "started" not in infos
    envs.close()

    envs = opened(moody(autoreset="same_step", **backend))
    envs.reset()
    envs.step(ends)
    assert envs.valid.all()
    assert envs.started.tolist() == [True, False]


def test_a_slot_that_ended_is_held_until_it_is_reset(backend, opened):
    """A fixed set of episodes is counted exactly, with one action for every slot."""
    envs = opened(corral.make("CartPole-v1", 3, autoreset="hold", **backend))
    alone = gymnasium.make("CartPole-v1")
    lengths = []
    for slot in range(3):
        alone.reset(seed=5 + slot)
        ends = (alone.step(0)[2] for _ in range(500))
        lengths.append(next(step for step, over in enumerate(ends, 1) if over))
    alone.close()
    envs.reset(seed=5)
    returns, over = np.zeros(3), np.zeros(3, np.bool_)
    while not over.all():
        obs, rewards, over, _, _ = envs.step(np.zeros(3, np.int64))
        returns += rewards * envs.valid
    assert returns.tolist() == lengths
    again, rewards, over, _, _ = envs.step(np.ones(3, np.int64))
    assert (again == obs).all() and not rewards.any() and over.all()
    assert not envs.valid.any()
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert envs.step(np.zeros(3, np.int64))[2].tolist() == [True, False, True]


def test_stepping_a_slot_that_ended_is_refused_with_autoreset_off(backend, opened):
    envs = opened(moody(autoreset="off", **backend))
    envs.reset()
    envs.step(np.array([3, 0]))
    with pytest.raises(EpisodeOver, match="slot 0") as caught:
        envs.step(np.array([0, 0]))
    assert isinstance(caught.value, AssertionError)  # what Gymnasium raises


# Copies and views ---------------------------------------------------------------------


def test_copies_stay_as_they_are(backend, opened):
    envs = opened(moody(copy=True, **backend))
    envs.reset()
    observations = [envs.step(np.array([0, 0]))[0] for _ in range(4)]
    assert [obs[0, 0] for obs in observations] == [0.01, 0.02, 0.03, 0.04]


def test_views_stay_for_one_more_step_and_are_then_written_over(backend, opened):
    envs = opened(moody(copy=False, **backend))
    envs.reset()
    goes = np.array([0, 0])
    first = envs.step(goes)[0]
    second = envs.step(goes)[0]
    assert first[0, 0] == 0.01 and second[0, 0] == 0.02
    third = envs.step(goes)[0]
    assert np.shares_memory(first, third) and first[0, 0] == 0.03


def test_debug_mode_tells_who_keeps_a_view_too_long(backend, opened):
    envs = opened(moody(copy=False, debug=True, **backend))
    envs.reset()
    goes = np.array([0, 0])
    for _ in range(4):
        envs.step(goes)  # nothing is kept
    kept = envs.step(goes)[0]
    envs.step(goes)
    with pytest.raises(StaleViewError, match=r"slots \[0, 1\]"):
        envs.step(goes)
    assert kept[0, 0] != 0.05


# observation_mode ---------------------------------------------------------------------


TALLS = [functools.partial(Tall, 1.0), functools.partial(Tall, 2.0)]


@pytest.mark.parametrize(
    "mode",
    ["different", (spaces.Box(0, 3, (2, 2)), spaces.Box(0, 3, (2,)))],
    ids=["different", "two spaces"],
)
def test_observation_spaces_may_differ_on_request(mode, opened):
    ours = opened(corral.make(TALLS, observation_mode=mode, **BACKENDS["process"]))
    theirs = opened(SyncVectorEnv(TALLS, observation_mode=mode))
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert_same(ours.reset(), theirs.reset())
    assert_same(ours.step([0, 0]), theirs.step([0, 0]))


def test_differing_observation_spaces_are_refused(backend):
    with pytest.raises(RuntimeError, match="observation_mode='different'") as caught:
        corral.make(TALLS, **backend)
    assert isinstance(caught.value, SpacesDiffer)


def test_observation_spaces_of_another_shape_are_always_refused():
    fns = [functools.partial(Tall, 1.0, 2), functools.partial(Tall, 1.0, 3)]
    with pytest.raises(RuntimeError, match="slot 1"):
        corral.make(fns, observation_mode="different", backend="serial")


@pytest.mark.parametrize(
    ("mode", "kind"), [("similar", ValueError), ((1, 2), TypeError)]
)
def test_a_bad_observation_mode_is_refused(mode, kind):
    with pytest.raises(kind):
        moody(backend="serial", observation_mode=mode)


# Sending and waiting ------------------------------------------------------------------


def test_step_and_reset_in_two_halves(backend, opened):
    envs = opened(moody(**backend))
    envs.reset_async(seed=1)
    obs, infos = envs.reset_wait()
    assert obs.shape == (2, 2) and infos == {}
    envs.step_async(np.array([0, 0]))
    assert envs.step_wait()[1].tolist() == [1.0, 1.0]
    envs.call_async("add", 1, 2, times=2)
    assert envs.call_wait() == (6, 6)


def test_calls_out_of_order_are_refused_as_by_gymnasium(backend, opened):
    envs = opened(moody(**backend))
    for wait in (envs.step_wait, envs.reset_wait, envs.call_wait):
        with pytest.raises(NoAsyncCallError):
            wait()
    envs.reset()
    envs.step_async(np.array([0, 0]))
    for begin in (
        lambda: envs.step_async(np.array([0, 0])),
        envs.reset_async,
        lambda: envs.call_async("render"),
        lambda: envs.set_attr("mood", "busy"),
    ):
        with pytest.raises(AlreadyPendingCallError) as caught:
            begin()
        assert isinstance(caught.value, OrderError)
    with pytest.raises(NoAsyncCallError):
        envs.reset_wait()
    assert envs.step_wait()[1].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_wait_can_time_out_and_the_envs_go_on(backend, opened):
    envs = opened(moody(**BACKENDS[backend]))
    envs.reset()
    envs.step_async(np.array([2, 0]))
    with pytest.raises(multiprocessing.TimeoutError) as caught:
        envs.step_wait(timeout=0.01)
    assert isinstance(caught.value, TimeoutError)
    obs, _ = envs.reset()
    assert (obs == 0).all()
    assert envs.step(np.array([0, 0]))[0][0, 0] == 0.01


def test_everything_is_refused_after_close(backend, opened):
    envs = opened(moody(**backend))
    envs.reset()
    envs.close()
    envs.close()
    assert envs.closed
    for use in (
        envs.reset,
        lambda: envs.step(np.array([0, 0])),
        lambda: envs.call("render"),
        lambda: envs.get_attr("mood"),
        lambda: envs.set_attr("mood", "late"),
        envs.render,
    ):
        with pytest.raises(ClosedEnvironmentError):
            use()


def test_the_end_of_a_with_block_closes_the_envs(backend):
    with moody(**backend) as envs:
        envs.reset()
    assert envs.closed


def test_close_waits_for_what_is_under_way(opened):
    envs = opened(moody(**BACKENDS["process"]))
    envs.reset()
    envs.step_async(np.array([2, 0]))
    with pytest.warns(UserWarning, match="pending call to `step`"):
        envs.close()
    assert envs.closed


# Errors -------------------------------------------------------------------------------


def test_an_env_that_raises_gives_its_own_exception_ours_as_cause(backend, opened):
    envs = opened(moody(**backend))
    envs.reset(seed=40)
    envs.step(np.array([0, 0]))
    with pytest.raises(Trouble, match="at 2") as caught:
        envs.step(np.array([0, 1]))
    ours = caught.value.__cause__
    assert isinstance(ours, EnvError)
    assert (ours.fault.slot, ours.fault.command, ours.fault.seed) == (1, "step", 41)
    assert [int(action) for action in ours.fault.last_actions] == [0, 1]
    assert "in step" in (ours.fault.traceback or "")
    envs.reset()
    assert envs.step(np.array([0, 0]))[1].tolist() == [1.0, 1.0]


def test_the_last_of_several_errors_is_raised(backend, opened):
    envs = opened(moody(3, **backend))
    envs.reset()
    with pytest.raises(Trouble) as caught:
        envs.step(np.array([1, 0, 1]))
    assert caught.value.__cause__.fault.slot == 2


def test_a_failing_reset_and_a_missing_attribute_keep_their_types(backend, opened):
    envs = opened(moody(**backend))
    with pytest.raises(Trouble, match="no reset today") as caught:
        envs.reset(options={"fail": True})
    assert isinstance(caught.value.__cause__, EnvError)
    envs.reset()
    with pytest.raises(AttributeError, match="nonsense"):
        envs.get_attr("nonsense")
    with pytest.raises(ValueError, match="use `reset` directly"):
        envs.call("reset")
    assert envs.step(np.array([0, 0]))[1].tolist() == [1.0, 1.0]


def test_actions_that_do_not_fit_are_refused(backend, opened):
    envs = opened(moody(**backend))
    envs.reset()
    for actions, kind in (
        (np.zeros(3, int), ValueError),
        (np.zeros((2, 1), int), ValueError),
        ([0], ValueError),
        (np.array([0.5, 0.0]), ValueError),
        (0, TypeError),
        (None, TypeError),
    ):
        with pytest.raises(kind):
            envs.step(actions)
    assert envs.step(np.array([0, 0]))[0][0, 0] == 0.01


# Calls --------------------------------------------------------------------------------


def test_call_get_attr_set_attr_and_render_equal_gymnasium(backend, opened):
    ours = opened(moody(3, **backend))
    theirs = opened(SyncVectorEnv([Moody] * 3))
    for envs in (ours, theirs):
        envs.reset(seed=2)
        envs.set_attr("mood", ["sad", "glad", "mad"])
    for ask in (
        lambda envs: envs.get_attr("mood"),
        lambda envs: envs.call("add", 1, 2, times=3),
        lambda envs: envs.call("mood"),
        lambda envs: envs.render(),
        lambda envs: envs.np_random_seed,
    ):
        assert ask(ours) == ask(theirs)
    generators = [[g.random() for g in envs.np_random] for envs in (ours, theirs)]
    assert generators[0] == generators[1]
    for envs in (ours, theirs):
        envs.set_attr("mood", "plain")
    assert ours.get_attr("mood") == theirs.get_attr("mood") == ("plain",) * 3
    with pytest.raises(ValueError, match="Got `2` values for 3"):
        ours.set_attr("mood", [1, 2])


def test_frames_of_a_rendered_env_equal_gymnasium(opened):
    fns = [functools.partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")]
    ours = opened(corral.make(fns * 2, **BACKENDS["process"]))
    theirs = opened(SyncVectorEnv(fns * 2))
    for envs in (ours, theirs):
        envs.reset(seed=0)
        envs.step(np.array([0, 1]))
    assert_same(ours.render(), theirs.render(), "frames")


# Layout -------------------------------------------------------------------------------


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr("corral.engine.pool.options.usable_cores", lambda: 2)


def built(log) -> int:
    return len(log.read_text().splitlines())


def test_one_slot_is_serial_and_is_built_once(two_cores, tmp_path, opened):
    log = tmp_path / "log"
    envs = opened(corral.make(Moody, 1, env_kwargs={"log": str(log)}))
    assert (envs.layout.backend, envs.layout.workers) == ("serial", 1)
    assert "one slot" in envs.layout.reason
    assert built(log) == 1


def test_an_explicit_backend_times_nothing(backend, tmp_path, opened):
    log = tmp_path / "log"
    envs = opened(corral.make(Moody, 4, env_kwargs={"log": str(log)}, **backend))
    assert envs.layout.backend == backend["backend"]
    assert envs.layout.reason == "asked for"
    assert envs.layout.step_time is None
    assert envs.layout.extra_envs == (0 if backend["backend"] == "serial" else 3)
    assert built(log) == 4 + envs.layout.extra_envs


def test_auto_measures_some_envs_and_says_why(two_cores, tmp_path, opened):
    log = tmp_path / "log"
    given = {"log": str(log), "metadata": {"corral.threads": False}}
    envs = opened(corral.make(Steady, 4, env_kwargs=given))
    # Twice the cores, since it waits.
    assert (envs.layout.backend, envs.layout.workers) == ("process", 4)
    assert envs.layout.step_time > 0.001
    assert "a step takes" in envs.layout.reason
    assert str(envs.layout).startswith("4 slots, 4 processes: a step takes")
    assert envs.layout.extra_envs == 3
    assert built(log) == 4 + 3
    assert len(set(envs.call("pid"))) == 4 and os.getpid() not in envs.call("pid")


def test_auto_stays_serial_for_quick_envs(two_cores, opened):
    envs = opened(corral.make(Quick, 2))
    assert envs.layout.backend == "serial"
    assert "in the caller" in envs.layout.reason


def test_auto_uses_threads_for_envs_that_declare_it(two_cores, opened):
    metadata = {"corral.threads": True}
    envs = opened(corral.make(Slow, 4, env_kwargs={"metadata": metadata}))
    assert (envs.layout.backend, envs.layout.workers) == ("thread", 4)
    assert "releases the GIL" in envs.layout.reason
    assert envs.call("pid") == (os.getpid(),) * 4


def test_isolation_by_slot_gives_every_slot_a_process(opened):
    envs = opened(moody(3, isolation="slot"))
    assert (envs.layout.backend, envs.layout.workers) == ("process", 3)
    assert 'isolation="slot"' in envs.layout.reason
    assert len({os.getpid(), *envs.call("pid")}) == 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "rocket"}, "'rocket'; choose one of auto, serial"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"backend": "serial", "workers": 2}, "one worker"),
        ({"isolation": "world"}, "'world'"),
        ({"isolation": "slot", "workers": 2}, "one worker per slot"),
        ({"isolation": "slot", "backend": "serial"}, "needs worker processes"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": 2.0}, "num_envs is 2.0"),
    ],
)
def test_options_without_a_meaning_are_refused(options, text):
    with pytest.raises(OptionError) as caught:
        corral.make(Moody, **{"num_envs": 2, **options})
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["CartPole-v7", "Cartpole", "Cart Pole!"])
def test_an_unknown_id_is_refused_with_near_names(name):
    with pytest.raises(OptionError, match=r"CartPole-v1|not a valid name"):
        corral.make(name, num_envs=2)


def test_ids_that_name_their_module_work(backend, tmp_path, monkeypatch, capfd, opened):
    """The module is imported where the env is made, not before."""
    (tmp_path / "ranch_of_this_test.py").write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gymnasium.register('Ranch-v0', entry_point=entry, max_episode_steps=5)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):  # with and, under serial and thread, without the module known
        envs = opened(corral.make("ranch_of_this_test:Ranch-v0", 2, **backend))
        envs.reset(seed=0)
        envs.close()
        importlib.import_module("ranch_of_this_test")
    assert envs.spec is not None and envs.spec.id == "Ranch-v0"
    assert "Overriding" not in capfd.readouterr().err
    del gymnasium.registry["Ranch-v0"], sys.modules["ranch_of_this_test"]


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_name_without_a_version_means_the_latest(backend, opened):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium says that it took the latest
        envs = opened(corral.make("CartPole", np.int64(2), **BACKENDS[backend]))
    assert envs.num_envs == 2
    assert envs.reset(seed=0)[0].shape == (2, 4)
    assert envs.spec is not None and envs.spec.id == "CartPole-v1"


def test_the_spec_is_a_copy_with_the_kwargs(opened):
    registered = gymnasium.spec("FrozenLake-v1")
    before = dict(registered.kwargs)
    envs = opened(
        corral.make(
            "FrozenLake-v1", 2, env_kwargs={"is_slippery": False}, backend="serial"
        )
    )
    assert envs.spec.kwargs == {**before, "is_slippery": False}
    envs.spec.kwargs["map_name"] = "none of them"
    assert registered.kwargs == before


def test_copies_and_pickles_are_refused_with_the_reason(backend, opened):
    envs = opened(corral.make("CartPole-v1", 2, **backend))
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(envs)
    assert envs.reset(seed=0)[0].shape == (2, 4)


# Gymnasium's vector wrappers on top ---------------------------------------------------

WRAPPERS = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipReward": functools.partial(wrappers.ClipReward, max_reward=0.5),
    "DtypeObservation": functools.partial(wrappers.DtypeObservation, dtype=np.float64),
    "FlattenObservation": wrappers.FlattenObservation,
    "TransformReward": functools.partial(
        wrappers.TransformReward, func=lambda reward: reward / 2
    ),
    "DictInfoToList": wrappers.DictInfoToList,
}
# Its episode time is measured with a clock, so it differs from run to run.
CLOCKED = {"RecordEpisodeStatistics"}


def without_clock(infos: dict) -> dict:
    if "episode" not in infos:
        return infos
    episode = {key: v for key, v in infos["episode"].items() if key not in ("t", "_t")}
    return {**infos, "episode": episode}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_vector_wrappers_give_what_they_give_on_gymnasium(name, mode, opened):
    wrap = WRAPPERS[name]
    fns = factories("CartPole-v1")
    ours = opened(corral.make(fns, autoreset=mode, **BACKENDS["process"]))
    theirs = opened(SyncVectorEnv(fns, autoreset_mode=mode))
    try:
        theirs = wrap(theirs)
    # Some of them do not know same-step resets: an assertion, before 1.4.
    except (ValueError, AssertionError) as refusal:
        with pytest.raises(type(refusal)) as caught:
            wrap(ours)
        assert str(caught.value) == str(refusal)
        return
    ours = wrap(ours)
    assert_same(ours.reset(seed=1), theirs.reset(seed=1))
    theirs.action_space.seed(0)
    for step in range(50):
        actions = theirs.action_space.sample()
        here, there = ours.step(actions), theirs.step(actions)
        if name in CLOCKED:
            here, there = ((*o[:4], without_clock(o[4])) for o in (here, there))
        assert_same(here, there, f"step {step}")


def test_numpy_to_torch_works_on_top(opened):
    torch = pytest.importorskip("torch")
    envs = opened(wrappers.NumpyToTorch(corral.make("CartPole-v1", 2)))
    obs, _ = envs.reset(seed=0)
    assert isinstance(obs, torch.Tensor) and obs.shape == (2, 4)
    obs, rewards, *_ = envs.step(torch.tensor([0, 1]))
    assert rewards.tolist() == [1.0, 1.0]


def test_frames_can_be_recorded_from_on_top(tmp_path, opened):
    pytest.importorskip("moviepy")
    envs = corral.make("CartPole-v1", 2, env_kwargs={"render_mode": "rgb_array"})
    folder = tmp_path / "new"  # one that is there already is warned of
    envs = opened(wrappers.RecordVideo(envs, str(folder), video_length=5))
    envs.reset(seed=0)
    for _ in range(5):
        envs.step(np.array([0, 1]))
    envs.close()
    assert list(folder.glob("*.mp4"))


def test_close_with_a_step_under_way_that_hangs_is_bounded():
    class Hanging(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (2,))
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            time.sleep(3600)

    envs = corral.make(Hanging, num_envs=2, backend="process", close_timeout=0.2)
    envs.reset()
    envs.step_async(np.zeros(2, int))
    with pytest.warns(UserWarning, match="while waiting for a pending call to `step`"):
        envs.close()
    assert envs.closed and envs.pool.closed


# In one call and in two ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_step_is_step_async_and_step_wait(backend, mode) -> None:
    both = [corral.make(Chatty, 3, autoreset=mode, **backend) for _ in range(2)]
    at_once, apart = both
    for envs in both:
        envs.reset(seed=5)
    at_once.action_space.seed(0)
    for _ in range(25):
        actions = at_once.action_space.sample()
        apart.step_async(actions)
        assert_same(at_once.step(actions), apart.step_wait())
        assert_same(at_once.valid, apart.valid)
    for envs in both:
        envs.close()


def test_an_interrupted_step_in_the_caller_is_told_by_the_next() -> None:
    class Interrupted(Quick):
        def step(self, action):
            raise KeyboardInterrupt

    envs = corral.make(Interrupted, 2, backend="serial")
    envs.reset(seed=0)
    with pytest.raises(KeyboardInterrupt):
        envs.step(envs.action_space.sample())
    with pytest.raises(ClosedError, match="Ctrl-C interrupted"):
        envs.step(envs.action_space.sample())
    envs.close()


def test_the_seed_that_make_is_given_is_that_of_the_first_reset():
    def make(**options):
        return corral.make("CartPole-v1", 2, backend="serial", **options)

    def observed(envs, **options):
        return envs.reset(**options)[0].tolist()

    ours, theirs = make(seed=7), make()
    assert observed(ours) == observed(theirs, seed=7)
    assert observed(ours) == observed(theirs)  # the episodes after it go on from there
    for envs in (ours, theirs):
        envs.close()
    ours, theirs = make(seed=7), make()
    assert observed(ours, seed=3) == observed(theirs, seed=3)  # what reset says counts
    assert observed(ours) == observed(theirs)
    for envs in (ours, theirs):
        envs.close()


class Unlike(gymnasium.Env):
    """Tells a number, and at the end of an episode one that no array can hold."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {"number": 2**70 if options is not None else 1}

    def step(self, action):
        ended = bool(action)
        return 1, 0.0, ended, False, {"number": 2**70 if ended else 1}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_infos_that_no_array_can_hold_come_as_objects_wherever_they_come(
    backend, opened
):
    envs = opened(
        corral.make(Unlike, num_envs=2, autoreset="same_step", backend=backend)
    )
    envs.reset(seed=0)
    *_, infos = envs.step(np.array([0, 1]))
    assert infos["final_info"]["number"][1] == 2**70
    *_, infos = envs.step(np.array([1, 1]))
    assert infos["final_info"]["number"].tolist() == [2**70, 2**70]
    mask = np.array([True, False])
    _, infos = envs.reset(options={"reset_mask": mask})
    assert infos["number"].tolist() == [2**70, None]
