"""`corral.make_sb3` returns what Stable-Baselines3's own vector envs return."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import threading

import gymnasium
import numpy as np
import psutil
import pytest

import corral
from corral.errors import (
    ClosedError,
    EnvError,
    FactoryError,
    OptionError,
    OrderError,
    SpaceMismatch,
    SpacesDiffer,
    StartError,
    WorkerDied,
)

from ..envs import Moody, Tall, Trouble
from ..side_by_side import assert_same
from .envs import (
    OBSERVATIONS,
    Apart,
    Inner,
    Kinds,
    Masked,
    Mortal,
    Outer,
    loaded,
    wrapped_kinds,
)
from .side_by_side import assert_same_sb3_run

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

BACKENDS = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": "process", "workers": 2},
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


def kinds(kind: str, count: int = 3):
    return [functools.partial(Kinds, kind)] * count


# Trajectories -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_every_step_equals_stable_baselines3(kind, backend, opened):
    ours = opened(corral.make_sb3(kinds(kind), **backend))
    assert assert_same_sb3_run(ours, DummyVecEnv(kinds(kind)), 40) >= 15


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_registered_envs_equal_stable_baselines3(name, backend, opened):
    limit = {"max_episode_steps": 12}
    ours = opened(corral.make_sb3(name, 3, env_kwargs=limit, **backend))
    theirs = DummyVecEnv([functools.partial(gymnasium.make, name, **limit)] * 3)
    assert assert_same_sb3_run(ours, theirs, 60) >= 12


def test_a_monitor_inside_tells_of_episodes_as_it_does_there(opened):
    fns = [lambda: Monitor(Kinds())] * 2
    ours = opened(corral.make_sb3(fns, backend="serial"))
    assert assert_same_sb3_run(ours, DummyVecEnv(fns), 30) >= 5


def test_it_is_a_vec_env_and_says_what_its_envs_are(backend, opened):
    ours = opened(corral.make_sb3(kinds("dict"), **backend))
    theirs = DummyVecEnv(kinds("dict"))
    assert isinstance(ours, VecEnv) and ours.unwrapped is ours
    for name in ("num_envs", "observation_space", "action_space", "render_mode"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.metadata == theirs.metadata
    assert ours._seeds == [None] * 3 and ours._options == [{}] * 3
    assert ours.layout.backend == backend["backend"]


def test_what_was_returned_is_the_callers_own(backend, opened):
    envs = opened(corral.make_sb3(kinds("dict"), seed=0, **backend))
    actions = np.zeros(3, np.int64)
    kept = [(envs.reset(), None, None, envs.reset_infos)]
    kept += [envs.step(actions) for _ in range(8)]
    before = copy.deepcopy(kept)
    for _ in range(8):
        envs.step(actions)
    assert_same(kept, before)
    outcome = envs.step(actions)
    rewards = outcome[1].copy()
    outcome[0]["image"][:] = 0
    outcome[3][0]["time"] = "changed"
    assert "changed" not in [info["time"] for info in outcome[3][1:]]
    assert_same(outcome[1], rewards)


def test_infos_can_be_narrowed(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, infos=["half"], seed=0, **backend))
    envs.reset()
    seen = {key for _ in range(12) for info in envs.step([0, 0])[3] for key in info}
    assert seen == {"half", "TimeLimit.truncated", "terminal_observation"}


def test_the_env_keeps_no_view_too_long(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, debug=True, seed=0, **backend))
    envs.reset()
    assert sum(envs.step([0, 0])[2].sum() for _ in range(12)) >= 4


def test_valid_and_started_speak_of_the_last_step(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, seed=0, **backend))
    with pytest.raises(OrderError, match="reset first"):
        _ = envs.valid
    envs.reset()
    assert envs.started.all() and envs.valid.all()
    for _ in range(8):
        _, _, dones, _ = envs.step([0, 0])
        assert (envs.started == dones).all() and envs.valid.all()
    assert envs.stats().steps == 16


# Seeds and options --------------------------------------------------------------------


def test_seeds_are_used_once_and_count_up(backend, opened):
    ours = opened(corral.make_sb3(kinds("box"), seed=5, **backend))
    assert ours._seeds == [5, 6, 7]
    first = ours.reset()
    assert ours._seeds == [None] * 3
    assert not np.array_equal(ours.reset(), first)
    assert ours.seed(5) == [5, 6, 7]
    np.testing.assert_array_equal(ours.reset(), first)


def test_options_are_used_once_and_may_differ_by_slot(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, **backend))
    each = [{"level": 1}, {}]
    for options, seen in (
        ({"level": 2}, [{"level": 2}] * 2),
        (each, [{"level": 1}, None]),
    ):
        envs.set_options(options)
        envs.reset()
        assert envs.get_attr("current_options") == seen
        envs.reset()
        assert envs.get_attr("current_options") == [None, None]


def test_an_env_that_takes_no_options_can_be_seeded(backend, opened):
    class Plain(Kinds):
        def reset(self, seed=None):
            return super().reset(seed=seed)

    envs = opened(corral.make_sb3(Plain, 2, seed=1, **backend))
    assert envs.reset().shape == (2, 3)


def test_options_for_another_number_of_slots_are_refused(opened):
    envs = opened(corral.make_sb3(Kinds, 3, backend="serial"))
    envs.set_options([{"level": 1}])
    with pytest.raises(OptionError, match="1 options for 3 slots"):
        envs.reset()


# Reaching the envs --------------------------------------------------------------------


def test_attributes_are_read_through_wrappers_and_set_on_the_outermost(backend, opened):
    ours = opened(corral.make_sb3([wrapped_kinds] * 3, seed=0, **backend))
    theirs = DummyVecEnv([wrapped_kinds] * 3)
    for envs in (ours, theirs):
        envs.seed(0)
        envs.reset()
        assert envs.get_attr("time") == [0, 0, 0]
        assert envs.set_attr("time", 5) is None
        assert envs.get_attr("time") == [5, 5, 5]
        envs.step(np.zeros(3, np.int64))  # the env's own is as it was
        assert envs.env_method("get_wrapper_attr", "unwrapped")[0].time == 1
        envs.set_attr("colour", ["red", "blue"], indices=[-1, 0])
        assert envs.get_attr("colour", indices=[0, 2]) == [["red", "blue"]] * 2
        assert envs.has_attr("time") and not envs.has_attr("colour")
        with pytest.raises(AttributeError, match="colour"):
            envs.get_attr("colour", indices=1)


def test_methods_are_called_with_arguments_on_chosen_slots(backend, opened):
    envs = opened(corral.make_sb3([wrapped_kinds] * 3, **backend))
    assert envs.env_method("add", 1, 2, times=2) == [6, 6, 6]
    assert envs.env_method("add", 1, indices=[2, 0]) == [1, 1]
    assert envs.env_method("add", 4, indices=1) == [4]
    assert envs.env_method("add", 4, indices=[1, 1, -1]) == [4, 4, 4]
    assert envs.env_method("add", 4, indices=[]) == []
    assert envs.env_method("add", 4, indices=iter([0])) == [4]
    with pytest.raises(IndexError, match=r"indices is \[0, 3\]; .* slots 0 to 2"):
        envs.env_method("add", 4, indices=[0, 3])
    here = [pid == os.getpid() for pid in envs.env_method("pid")]
    assert here == [backend["backend"] != "process"] * 3


def test_wrappers_are_found_by_class(backend, opened):
    class Local(Outer):
        """Known to this test alone."""

    fns = [lambda: Local(Kinds()), wrapped_kinds, Kinds]
    envs = opened(corral.make_sb3(fns, **backend))
    assert envs.env_is_wrapped(Outer) == [True, True, False]
    assert envs.env_is_wrapped(Local) == [True, False, False]
    assert envs.env_is_wrapped(Inner, indices=[1, 2]) == [True, False]
    assert envs.env_is_wrapped(gymnasium.Wrapper, indices=0) == [True]
    assert envs.env_is_wrapped(Apart) == [False] * 3
    assert envs.env_is_wrapped(Monitor) == [False] * 3


def test_workers_import_torch_only_if_their_envs_do(opened):
    envs = opened(corral.make_sb3(Masked, 2, **BACKENDS["process"]))
    envs.reset()
    envs.env_is_wrapped(Monitor)
    envs.env_method("action_masks")
    envs.step([0, 0])
    for name in ("torch", "stable_baselines3"):
        assert envs.pool.apply(loaded, name) == (False, False)


def test_frames_are_rendered_and_tiled(backend, opened):
    ours = opened(corral.make_sb3(kinds("box"), **backend))
    theirs = DummyVecEnv(kinds("box"))
    for envs in (ours, theirs):
        envs.seed(0)
        envs.reset()
        envs.step(np.zeros(3, np.int64))
    assert_same(ours.get_images(), theirs.get_images())
    assert_same(ours.render(), theirs.render())
    assert ours.render().shape == (16, 16, 3)
    with pytest.warns(UserWarning, match="render"):
        assert ours.render("human_eyes") is None


def test_images_need_the_right_render_mode(backend, opened):
    fns = [functools.partial(Kinds, render_mode=None)] * 2
    envs = opened(corral.make_sb3(fns, **backend))
    with pytest.warns(UserWarning, match="render mode is None"):
        assert envs.get_images() == [None, None]


def test_render_modes_that_differ_are_refused_and_nobody_is_left(opened):
    before = set(psutil.Process().children())
    fns = [functools.partial(Kinds, render_mode=mode) for mode in (None, "rgb_array")]
    with pytest.raises(AssertionError, match="render_mode"):
        corral.make_sb3(fns, **BACKENDS["process"])
    assert set(psutil.Process().children()) <= before


def test_the_envs_themselves_are_there_under_serial_alone(backend, opened):
    envs = opened(corral.make_sb3(Masked, 2, **backend))
    if backend["backend"] == "serial":
        assert [type(env) for env in envs.envs] == [Masked, Masked]
    else:
        assert not hasattr(envs, "envs")
        with pytest.raises(AttributeError, match="use call or get_attr"):
            _ = envs.envs


# Action masks -------------------------------------------------------------------------


def masks_should_be(envs):
    return [[slot != place for slot in range(4)] for place in envs.get_attr("place")]


def test_masks_come_with_the_steps_after_the_first_question(backend, opened):
    envs = opened(corral.make_sb3(Masked, 3, seed=0, **backend))
    envs.reset()
    assert np.array_equal(envs.env_method("action_masks"), masks_should_be(envs))
    free = backend["backend"] != "serial"
    for _ in range(12):
        _, _, dones, infos = envs.step([0, 1, 2])
        for done, info in zip(dones, infos, strict=True):
            ends = {"last", "terminal_observation"} if done else set()
            assert info.keys() == {"TimeLimit.truncated"} | ends
        assert all(info == {} for info in envs.reset_infos)
        before = envs.pool.question_count
        masks = [envs.env_method("action_masks") for _ in range(2)]
        assert envs.has_attr("action_masks")
        assert envs.pool.question_count - before == (0 if free else 3)
        assert_same(*masks)
        assert np.array_equal(masks[0], masks_should_be(envs))
    envs.reset()
    before = envs.pool.question_count
    masks = envs.env_method("action_masks")
    assert envs.pool.question_count - before == (0 if free else 1)
    assert np.array_equal(masks, masks_should_be(envs))


def test_masks_are_taken_once_a_step_as_stable_baselines3_takes_them(backend, opened):
    envs = opened(corral.make_sb3(Masked, 2, seed=0, **backend))
    envs.reset()
    for _ in range(7):
        envs.env_method("action_masks")
        envs.step([0, 0])
    envs.env_method("action_masks")
    assert envs.get_attr("asked") == [8, 8]


def test_nobody_computes_masks_that_nobody_wants(backend, opened):
    envs = opened(corral.make_sb3(Masked, 2, seed=0, **backend))
    envs.reset()
    assert not any(envs.step([0, 0])[3][0].get(key) for key in ("corral.action_masks",))
    assert envs.get_attr("asked") == [0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda envs: envs.env_method("move", 3),
        lambda envs: envs.env_method("move", 3, indices=[1]),
        lambda envs: envs.set_attr("place", 3),
        lambda envs: envs.pool.call("move", 3),
    ],
)
def test_masks_are_asked_for_again_after_anything_that_may_change_them(
    change, backend, opened
):
    envs = opened(corral.make_sb3(Masked, 2, seed=0, **backend))
    envs.reset()
    envs.env_method("action_masks")
    envs.step([0, 0])
    envs.env_method("action_masks")
    change(envs)
    assert np.array_equal(envs.env_method("action_masks"), masks_should_be(envs))
    assert envs.env_method("action_masks")[1].tolist() == [True, True, True, False]
    envs.step([0, 0])
    assert np.array_equal(envs.env_method("action_masks"), masks_should_be(envs))


def test_a_mask_that_was_changed_by_its_owner_is_not_handed_out_again(opened):
    envs = opened(corral.make_sb3(Masked, 2, seed=0, **BACKENDS["process"]))
    envs.reset()
    envs.env_method("action_masks")
    envs.step([0, 0])
    first = envs.env_method("action_masks")
    kept = copy.deepcopy(first)
    first[0][:] = False
    assert_same(envs.env_method("action_masks"), kept)


def test_masks_of_any_type_keep_it(backend, opened):
    fns = [functools.partial(Masked, "list")] * 2
    envs = opened(corral.make_sb3(fns, seed=0, **backend))
    envs.reset()
    for _ in range(4):
        masks = envs.env_method("action_masks")
        assert type(masks[0]) is list and masks == masks_should_be(envs)
        envs.step([0, 0])


def test_masks_that_fail_fail_where_they_are_asked_for(backend, opened):
    fns = [functools.partial(Masked, fails_at=2)] * 2
    envs = opened(corral.make_sb3(fns, seed=0, **backend))
    envs.reset()
    for time in range(5):
        if time == 2:
            with pytest.raises(RuntimeError, match="no masks now"):
                envs.env_method("action_masks")
        else:
            assert np.sum(envs.env_method("action_masks")) == 6
        envs.step([0, 0])


@pytest.mark.parametrize("infos", ["none", "final", ["last"]])
def test_masks_are_there_whichever_infos_are_kept(infos, backend, opened):
    envs = opened(corral.make_sb3(Masked, 2, seed=0, infos=infos, **backend))
    envs.reset()
    for _ in range(7):
        assert np.array_equal(envs.env_method("action_masks"), masks_should_be(envs))
        for info in envs.step([0, 0])[3]:
            assert info.keys() <= {
                "TimeLimit.truncated",
                "terminal_observation",
                "last",
            }


def test_only_the_env_itself_is_seen_of_a_masked_env(backend, opened):
    envs = opened(corral.make_sb3(lambda: Outer(Masked()), 2, **backend))
    assert envs.env_is_wrapped(gymnasium.Wrapper) == [True, True]
    assert envs.env_is_wrapped(Apart) == [False, False]
    assert [type(env) for env in envs.get_attr("env")] == [Masked, Masked]
    envs.set_attr("mark", 1)
    assert envs.env_method("has_wrapper_attr", "mark") == [True, True]
    bare = opened(corral.make_sb3(Masked, 2, **backend))
    assert bare.env_is_wrapped(gymnasium.Wrapper) == [False, False]


def test_masks_are_always_asked_for_where_auto_chose_serial(opened):
    envs = opened(corral.make_sb3(Masked, 1, seed=0))
    assert envs.layout.backend == "serial" and type(envs.envs[0]) is Masked
    envs.reset()
    for place in (1, 2):
        envs.envs[0].place = place  # nobody but the env itself knows
        assert np.flatnonzero(~envs.env_method("action_masks")[0]).tolist() == [place]
        assert envs.step([0])[3] == [{"TimeLimit.truncated": False}]


def test_an_env_without_masks_says_so(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, **backend))
    assert not envs.has_attr("action_masks")
    with pytest.raises(AttributeError, match="action_masks"):
        envs.env_method("action_masks")


# Faults -------------------------------------------------------------------------------


def test_an_envs_own_exception_comes_out_with_ours_as_its_cause(backend, opened):
    envs = opened(corral.make_sb3(Moody, 2, **backend))
    envs.reset()
    with pytest.raises(Trouble, match="at 1") as caught:
        envs.step([0, 1])
    assert isinstance(caught.value.__cause__, EnvError)
    assert caught.value.__cause__.fault.slot == 1
    envs.set_options({"fail": True})
    with pytest.raises(Trouble, match="no reset today"):
        envs.reset()
    envs.set_options()
    assert envs.reset().shape == (2, 2)


def test_a_constructors_own_exception_comes_out(backend):
    def refuse():
        raise Trouble("not today")

    with pytest.raises(Trouble, match="not today") as caught:
        corral.make_sb3(refuse, 2, **backend)
    assert isinstance(caught.value.__cause__, StartError)


def test_a_dead_worker_is_named_and_the_rest_is_closed(opened):
    envs = opened(corral.make_sb3(Mortal, 4, **BACKENDS["process"]))
    pids = set(envs.env_method("pid"))
    envs.reset()
    with pytest.raises(WorkerDied, match="SIGKILL") as caught:
        envs.step([0, 0, 2, 0])
    error = caught.value
    assert error.fault.slot == 2 and error.fault.worker == 1
    # What the pipes of Stable-Baselines3 raise when a process is gone.
    for kind in (EOFError, BrokenPipeError, ConnectionResetError):
        assert isinstance(error, kind)
    assert "slot 2" in str(pickle.loads(pickle.dumps(error)))
    with pytest.raises(ClosedError, match="a worker of this pool died"):
        envs.step([0, 0, 0, 0])
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_envs_must_agree_on_their_spaces(backend):
    with pytest.raises(SpacesDiffer, match="slot 1 has another observation space"):
        corral.make_sb3([lambda: Tall(1.0), lambda: Tall(1.0, length=3)], **backend)


def test_one_env_for_two_slots_is_refused(backend):
    env = Kinds()
    with pytest.raises(ValueError, match="slots 0 and 1 have the same") as caught:
        corral.make_sb3([lambda: env] * 3, **{**backend, "workers": 1})
    assert isinstance(caught.value, OptionError)


@pytest.mark.parametrize("actions", [[0], [0, 0, 0], 0, None, [[0], [0]], [0.5, 0.5]])
def test_actions_that_do_not_fit_are_refused_and_harm_nothing(actions, opened):
    envs = opened(corral.make_sb3(Kinds, 2, **BACKENDS["process"]))
    envs.reset()
    with pytest.raises(SpaceMismatch, match="actions"):
        envs.step(actions)
    assert envs.step([0, 0])[0].shape == (2, 3)


@pytest.mark.parametrize("name", ["autoreset", "copy"])
def test_options_that_stable_baselines3_decides_are_refused(name):
    with pytest.raises(OptionError, match=name):
        corral.make_sb3(Kinds, 2, **{name: "off"})


def test_what_cannot_be_pickled_is_named(opened):
    lock = threading.Lock()
    with pytest.raises(FactoryError, match="its variable 'lock'"):
        corral.make_sb3(lambda: (lock, Kinds())[1], 2, backend="process")
    envs = opened(corral.make_sb3(Kinds, 2, **BACKENDS["process"]))
    with pytest.raises(OptionError, match=r"cannot be sent.*lock"):
        envs.set_attr("lock", lock)
    assert envs.env_method("add", 1, 2) == [3, 3]
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(envs)


def test_something_that_is_no_env_is_refused_with_a_reason(backend):
    with pytest.raises(ValueError, match="the factory returned None"):
        corral.make_sb3(lambda: None, 2, **backend)


# Order and closing --------------------------------------------------------------------


def test_steps_are_sent_and_waited_for_in_turn(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, seed=0, **backend))
    envs.reset()
    assert not envs.waiting
    with pytest.raises(OrderError, match="step_wait without step_async"):
        envs.step_wait()
    envs.step_async([0, 0])
    assert envs.waiting
    with pytest.raises(OrderError, match="step_wait first"):
        envs.step_async([0, 0])
    envs.step_wait()
    assert not envs.waiting
    envs.step_async([0, 0])
    envs.seed(0)
    envs.reset()  # what was under way is given up
    assert not envs.waiting and envs.get_attr("time") == [0, 0]


def test_stepping_before_a_reset_is_left_to_the_env(backend, opened):
    envs = opened(corral.make_sb3(Kinds, 2, **backend))
    with pytest.raises(AttributeError, match="time"):
        envs.step([0, 0])


def test_close_is_final_and_can_be_repeated(backend):
    envs = corral.make_sb3(Kinds, 2, **backend)
    envs.reset()
    envs.step_async([0, 0])
    assert not envs.closed
    for _ in range(2):
        envs.close()
        assert envs.closed and not envs.waiting
    for use in (envs.reset, lambda: envs.step([0, 0]), lambda: envs.get_attr("time")):
        with pytest.raises(ClosedError):
            use()


def test_nothing_is_said_by_envs_that_nobody_closed(run):
    out = run(
        """
        import corral
        from stable_baselines3.common.vec_env import VecMonitor

        class Told(Env):
            def close(self):
                print("closed")

        envs = VecMonitor(corral.make_sb3(Told, 2, backend="serial"))
        envs.reset()
        """
    )
    assert out.split() == ["closed", "closed"]
