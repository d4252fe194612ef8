"""A vector of environments in each worker: its sub-envs are slots like any others."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import corral
from corral import Pool
from corral.errors import EnvError, OptionError, SpaceMismatch

from .batched_envs import Flock, Herd, Own, Sums, actions_for, flock_of_sums
from .envs import Mixed
from .reference import ReferenceSlot, assert_same_rows, drive

MakePool = Callable[..., Pool]
ROOT = 7
SLOTS = 5
CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "cartpole": (functools.partial(gymnasium.make, "CartPole-v1"), 40),
    "mixed": (Mixed, 20),
    "sums": (Sums, 20),
}


def sums(make_pool: MakePool, **options: Any) -> Pool:
    return make_pool(functools.partial(Flock, Sums), SLOTS, batched=True, **options)


def zeros(count: int = SLOTS) -> Any:
    return np.zeros((count, 1), np.float32)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_equals_a_plain_loop_over_single_envs(
    make_pool: MakePool, name: str
) -> None:
    make, steps = CASES[name]
    pool = make_pool(functools.partial(Flock, make), SLOTS, batched=True)
    actions = actions_for(pool.spec.action_space, SLOTS, steps)
    for mode in ("same_step", "next_step"):
        truth = []
        for slot in range(SLOTS):
            reference = ReferenceSlot(make, slot, ROOT)
            rows = [reference.reset()]
            truth.append(
                rows + [reference.step(action, mode) for action in actions[slot]]
            )
        for min_slots in (None, 2):
            got = drive(pool, actions, min_slots, mode, seed=ROOT)
            for slot in range(SLOTS):
                what = f"{mode}, min_slots={min_slots}, slot {slot}"
                assert_same_rows(got[slot], truth[slot], what)


def test_episodes_that_are_run_to_their_end_equal_those_of_single_envs(
    make_pool: MakePool,
) -> None:
    def policy(step: Any, carry: Any, rng: Any) -> corral.Decision:
        return corral.Decision(np.sin(step.obs[:, :1]).astype(np.float32) * 0.5)

    pools = [make_pool(Sums, SLOTS), sums(make_pool)]
    tasks = [0.5 * number for number in range(12)]
    plain, batched = (
        corral.run_episodes(pool, Acting(policy), tasks=tasks, seed=3) for pool in pools
    )
    for one, other in zip(plain, batched, strict=True):
        assert one.task == other.task and one.seed == other.seed
        np.testing.assert_array_equal(one.obs, other.obs)
        np.testing.assert_array_equal(one.reward, other.reward)


class Acting:
    def __init__(self, act: Callable[..., corral.Decision]) -> None:
        self.act = act


def test_times_and_episode_statistics_are_kept_of_every_slot(
    make_pool: MakePool,
) -> None:
    pool = make_pool("CartPole-v1", 4, batched=True, autoreset="next_step")
    pool.reset()
    rows = [pool.step(np.ones(4, int)) for _ in range(30)]
    stepped = sum(int(step.valid.sum()) for step in rows)
    times = pool.stats().step
    assert int(times.number.sum()) == stepped and (times.seconds > 0).all()
    returns = np.zeros(4)
    for step in rows:
        returns = np.where(step.valid, returns + step.reward, 0.0)
        np.testing.assert_array_equal(step.episode_return, returns)
        returns[step.ended] = 0.0


def test_one_call_advances_the_whole_shard(make_pool: MakePool) -> None:
    pool = sums(make_pool)
    pool.reset()
    for _ in range(3):
        pool.step(zeros(), None)
    calls = pool.get_attr("calls")
    ends = 3  # at most so many steps had an episode end in them, each reset in one call
    assert all(1 + 3 <= count <= 1 + 3 + ends for count in calls)


def test_tasks_options_and_seeds_reach_each_slot(make_pool: MakePool) -> None:
    pool = sums(make_pool, infos=["task"])
    step = pool.reset(tasks=[1.0, 2.0, 3.0, 4.0, 5.0], options={"start": 10.0})
    assert step.obs[:, 0].tolist() == [11.0, 12.0, 13.0, 14.0, 15.0]
    assert [step.infos.of(slot)["task"] for slot in range(SLOTS)] == [1, 2, 3, 4, 5]
    step = pool.reset(options=[{"start": float(slot)} for slot in range(SLOTS)])
    assert step.obs[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    step = pool.reset([1, 3], seeds=[8, 9], tasks=[7.0, 8.0])
    assert step.seed.tolist() == [8, 9] and step.obs[:, 0].tolist() == [7.0, 8.0]
    pool.assign(2, 20.0)
    while not (step := pool.step(zeros())).started[2]:
        pass
    assert step.obs[2, 0] == 20.0


def test_a_factory_is_told_its_slots_if_it_takes_them(make_pool: MakePool) -> None:
    pool = make_pool(flock_of_sums, SLOTS, batched=True)
    for shard, slots in zip(pool.shards, pool.get_attr("slots"), strict=False):
        assert pool.get_attr("slots", slots=[shard.start]) == (shard,)
        assert len(slots) <= SLOTS


def test_an_exception_in_a_step_is_a_fault_of_every_slot_of_the_batch(
    make_pool: MakePool,
) -> None:
    pool = sums(make_pool)
    pool.reset()
    actions = zeros()
    actions[0] = 1.0
    with pytest.raises(EnvError, match="too much") as caught:
        pool.step(actions)
    failed = [fault.slot for fault in caught.value.faults]
    assert failed == list(pool.shards[0])
    assert pool.reset().valid.all()


def test_a_task_that_cannot_be_begun_is_the_fault_of_its_slot_alone(
    make_pool: MakePool,
) -> None:
    pool = sums(make_pool)
    with pytest.raises(EnvError, match="no such task") as caught:
        pool.reset(tasks=[1.0, "impossible", 3.0, 4.0, 5.0])
    assert [fault.slot for fault in caught.value.faults] == [1]
    assert caught.value.faults[0].task == "impossible"
    step = caught.value.step
    assert step is not None and step.slots.tolist() == [0, 2, 3, 4]
    assert step.obs[:, 0].tolist() == [1.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(Flock, "same_step"), (Flock, "next_step"), (Herd, "same_step")],
)
def test_a_batch_that_raised_is_built_again(kind: type[Flock], mode: str) -> None:
    factory = functools.partial(kind, functools.partial(Sums, 50))
    with Pool(
        factory,
        4,
        batched=True,
        backend="process",
        workers=2,
        seed=1,
        autoreset=mode,  # type: ignore[arg-type]
        on_fault="restart",
    ) as pool:
        before = pool.reset()
        actions = zeros(4)
        actions[1] = 1.0
        step = pool.step(actions)
        assert step.valid.tolist() == [False, False, True, True]
        assert step.truncated.tolist() == [True, True, False, False]
        kinds = [step.infos.of(slot)["fault"].kind for slot in (0, 1)]
        assert kinds == ["raised", "shardmate"]
        assert (step.started == [mode == "same_step"] * 2 + [False] * 2).all()
        if mode == "next_step":
            step = pool.step(zeros(4))
        assert step.started[:2].all()
        assert (step.seed[:2] != before.seed[:2]).all()
        step = pool.step(zeros(4))
        assert step.valid.all() and not step.ended.any()
        assert step.episode_length[:2].tolist() == [1, 1]


def test_stable_baselines_sees_a_batch_as_it_sees_single_envs() -> None:
    pytest.importorskip("stable_baselines3", reason="its VecEnv")
    flocks = corral.make_sb3(
        functools.partial(Flock, Sums), 3, batched=True, backend="serial", seed=2
    )
    singles = corral.make_sb3(Sums, 3, backend="serial", seed=2)
    np.testing.assert_array_equal(flocks.reset(), singles.reset())
    for _ in range(12):
        ours, theirs = flocks.step(zeros(3)), singles.step(zeros(3))
        for one, other in zip(ours[:3], theirs[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(ours[3], theirs[3], strict=True):
            assert one.keys() == other.keys()
    with pytest.raises(OptionError, match="cannot be called or set for one slot"):
        flocks.env_method("close_extras")
    flocks.close()
    singles.close()


# Envs that restart their episodes by themselves ---------------------------------------


def test_batched_cartpole_equals_the_same_env_in_a_loop() -> None:
    plain = gymnasium.make_vec(
        "CartPole-v1", 4, vectorization_mode="vector_entry_point"
    )
    envs = corral.make("CartPole-v1", 4, batched=True, backend="serial")
    np.testing.assert_array_equal(envs.reset(seed=3)[0], plain.reset(seed=3)[0])
    ended = 0
    for number in range(60):
        actions = np.full(4, number % 3 == 0, int)
        ours, theirs = envs.step(actions), plain.step(actions)
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        ended += int(theirs[2].sum())
    assert ended
    envs.close()


def test_batched_cartpole_is_the_same_in_workers_one_for_each(
    make_pool: MakePool,
) -> None:
    pool = make_pool("CartPole-v1", 4, batched=True, autoreset="next_step")
    loops = []
    for shard in pool.shards:
        loops.append(
            gymnasium.make_vec(
                "CartPole-v1", len(shard), vectorization_mode="vector_entry_point"
            )
        )
    step = pool.reset(seeds=[5, 6, 7, 8])
    assert (step.seed == -1).sum() == 4 - len(loops)
    for loop, shard in zip(loops, pool.shards, strict=True):
        np.testing.assert_array_equal(
            step.obs[shard.start : shard.stop], loop.reset(seed=5 + shard.start)[0]
        )
    over = np.zeros(4, bool)
    for _ in range(40):
        step = pool.step(np.ones(4, int))
        np.testing.assert_array_equal(step.valid, ~over)
        np.testing.assert_array_equal(step.started, over)
        for loop, shard in zip(loops, pool.shards, strict=True):
            part = slice(shard.start, shard.stop)
            obs, reward, terminated, _, _ = loop.step(np.ones(len(shard), int))
            np.testing.assert_array_equal(step.obs[part], obs)
            np.testing.assert_array_equal(step.reward[part], reward)
            np.testing.assert_array_equal(step.terminated[part], terminated)
        over = step.ended
    assert (step.episode_length < 40).all()


def test_an_env_that_restarts_in_the_same_step_keeps_its_final_observations(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Own, 4, batched=True)
    loops = [Own(len(shard)) for shard in pool.shards]
    pool.reset(seeds=[1, 2, 3, 4])
    for loop, shard in zip(loops, pool.shards, strict=True):
        loop.reset(seed=1 + shard.start)
    for _ in range(12):
        step = pool.step(np.zeros(4, int))
        for loop, shard in zip(loops, pool.shards, strict=True):
            part = slice(shard.start, shard.stop)
            obs, _, ended, _, infos = loop.step(np.zeros(len(shard), int))
            np.testing.assert_array_equal(step.obs[part], obs)
            np.testing.assert_array_equal(step.started[part], ended)
            for row in np.flatnonzero(ended).tolist():
                slot = shard.start + row
                assert step.final_obs[slot] == infos["final_obs"][row]
                left = infos["final_info"]["left"][row]
                assert step.final_infos[slot] == {"left": left}


# Refusals -----------------------------------------------------------------------------


def test_what_a_batch_cannot_do_is_refused_with_the_reason() -> None:
    herd = functools.partial(Herd, Sums)
    with pytest.raises(OptionError, match="step_mask"):
        Pool(herd, 2, batched=True, backend="serial", autoreset="next_step")
    with pytest.raises(OptionError, match="restarts its episodes by itself"):
        Pool("CartPole-v1", 2, batched=True, backend="serial")
    with pytest.raises(OptionError, match="isolate_rng"):
        Pool(herd, 2, batched=True, backend="serial", isolate_rng=True)
    with pytest.raises(OptionError, match="one factory"):
        Pool([herd, herd], batched=True, backend="serial")
    with pytest.raises(OptionError, match=r"must return a gymnasium\.vector"):
        Pool(lambda num_envs: Sums(), 2, batched=True, backend="serial")
    with pytest.raises(OptionError, match=r"returned Herd .* with num_envs=2"):
        Pool(lambda num_envs: Herd(Sums, 3), 2, batched=True, backend="serial")
    with Pool(herd, 3, batched=True, backend="serial") as pool:
        pool.reset()
        with pytest.raises(OptionError, match=r"slots \[1\] are a part of worker 0"):
            pool.step(zeros(1), [1])
        with pytest.raises(OptionError, match="autoreset='off'"):
            pool.send(zeros(3), autoreset="off")
        with pytest.raises(OptionError, match=r"pool\.apply"):
            pool.call("close_extras", slots=[0])
        assert pool.step(zeros(3)).valid.all()
    with Pool(
        "CartPole-v1", 2, batched=True, backend="serial", autoreset="next_step"
    ) as pool:
        with pytest.raises(OptionError, match="reset is for the whole batch"):
            pool.reset([0])
        with pytest.raises(OptionError, match="cannot be given a task"):
            pool.reset(tasks=[1, 2])


class Spoilt(Flock):
    """Returns something else than a vector of environments does."""

    def __init__(self, method: str, spoil: Callable[..., Any], num_envs: int) -> None:
        super().__init__(Sums, num_envs)
        original = getattr(self, method)
        setattr(self, method, lambda *args, **kwargs: spoil(original(*args, **kwargs)))


@pytest.mark.parametrize(
    ("method", "spoil", "told"),
    [
        ("reset", lambda result: None, r"reset\(\) .* returned None \(NoneType\)"),
        ("reset", lambda result: (*result, 1), r"reset\(\) .* returned 3 values"),
        (
            "reset",
            lambda result: (result[0][:1], {}),
            r"\]\) as observations; there are 2 slots",
        ),
        ("step", lambda result: result[:4], r"step\(\) .* returned 4 values"),
        ("step", lambda result: (*result[:2], None, None, {}), "None as terminations"),
        (
            "step",
            lambda result: (*result[:4], {"x": [1, 2], "_x": np.array([True])}),
            r'infos\["_x"\] is array\(\[ True\]\).* each of the 2 slots',
        ),
    ],
)
def test_what_no_vector_returns_is_refused_with_what_was_found(
    method: str, spoil: Callable[..., Any], told: str
) -> None:
    factory = functools.partial(Spoilt, method, spoil)
    with (
        Pool(factory, 2, batched=True, backend="serial") as pool,
        pytest.raises(SpaceMismatch, match=told),
    ):
        pool.reset()
        pool.step(zeros(2))


def test_a_fault_of_a_batch_can_be_replayed_as_a_batch_of_one(tmp_path: Any) -> None:
    with Pool(
        functools.partial(Flock, Sums), 3, batched=True, backend="serial", seed=5
    ) as pool:
        pool.reset()
        actions = zeros(3)
        actions[:] = 1.0
        with pytest.raises(EnvError) as caught:
            pool.step(actions)
    caught.value.faults[2].save(tmp_path / "fault.corral")
    with pytest.raises(RuntimeError, match="too much"):
        corral.replay(tmp_path / "fault.corral", raise_error=True)


def test_a_worker_that_is_killed_is_replaced_with_its_batch() -> None:
    factory = functools.partial(Flock, functools.partial(Sums, 50))
    with Pool(
        factory,
        4,
        batched=True,
        backend="process",
        workers=2,
        seed=1,
        on_fault="restart",
    ) as pool:
        pool.reset()
        os.kill(pool.stats().workers[1].pid, signal.SIGKILL)
        step = pool.step(zeros(4))
        assert step.valid.tolist() == [True, True, False, False]
        assert step.started.tolist() == [False, False, True, True]
        assert pool.step(zeros(4)).valid.all()
