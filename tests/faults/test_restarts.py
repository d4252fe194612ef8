"""With on_fault="restart" what broke is built again, and nothing else is disturbed.

The slow obvious reference is in the env: every observation says which episode it
belongs to and how many steps of it were taken, so a lost or doubled step shows.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from fragile_envs import (
    EXIT,
    FINE,
    HANG,
    KILL,
    LEAVE,
    LENGTH,
    RAISE,
    SHAPE,
    Fragile,
    Leaky,
    WordyLeaky,
)
from running import wait_until

import corral
from corral import Pool
from corral.engine.faults.stacks import is_stopped
from corral.engine.worker.seeds import episode_seed
from corral.errors import (
    EnvError,
    OptionError,
    OrderError,
    StartError,
    WorkerDied,
    WorkerHung,
)

DEADLY = (EXIT, KILL, HANG)


def gymnasium_draw(seed: int) -> float:
    """What an episode with this seed observes."""
    return float(gymnasium.utils.seeding.np_random(seed)[0].random())


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(**options: Any) -> Pool:
        settings: dict[str, Any] = {
            "num_envs": 4,
            "workers": 2,
            "seed": 5,
            "backend": "process",
            "on_fault": "restart",
            "step_timeout": 0.5,
            "isolation": "shared",  # its envs break when they are tried
        }
        settings.update(options)
        env = settings.pop("env", Fragile)
        pools.append(Pool(env, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def actions(**chosen: int) -> Any:
    """Fine for all but the slots named: `actions(s1=RAISE)`."""
    batch = np.zeros(4, np.int64)
    for slot, action in chosen.items():
        batch[int(slot[1:])] = action
    return batch


# One row says what happened -----------------------------------------------------------


@pytest.mark.parametrize("action", [RAISE, LEAVE, SHAPE, *DEADLY])
def test_the_slot_comes_back_truncated_and_not_valid(make_pool, action: int) -> None:
    pool = make_pool()
    pool.reset()
    before = pool.step(actions())
    step = pool.step(actions(s0=action))  # walked downwards: slot 1 was done before
    assert step.truncated.tolist() == [True, False, False, False]
    assert step.valid.tolist() == [False, True, True, True]
    assert step.started.tolist() == [True, False, False, False]
    assert step.reward.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert not step.terminated.any()
    # It ends where it stood, and a new episode has begun.
    np.testing.assert_array_equal(step.final_obs[0], before.obs[0])
    assert step.obs[0, 1] == 0
    # The others took their step, in the episode they were in.
    for slot in (1, 2, 3):
        assert step.obs[slot, :2].tolist() == [before.obs[slot, 0], 2.0]


def all_held(pool: Pool) -> corral.Step:
    """Every episode is over, and its last row was repeated."""
    pool.reset()
    for _ in range(LENGTH + 1):
        step = pool.step(actions())
    assert not step.valid.any() and step.terminated.all()
    return step


def test_held_slots_lose_nothing_with_their_worker(make_pool) -> None:
    pool = make_pool(autoreset="hold")
    before = all_held(pool)
    os.kill(int(before.obs[0, 2]), signal.SIGKILL)
    step = pool.step(actions())
    np.testing.assert_array_equal(step.obs, before.obs)
    assert not step.valid.any() and step.terminated.all() and not step.reward.any()
    assert (pool.faults[-1].slot, pool.faults[-1].others) == (None, 0)
    pool.send_reset([1])
    pool.recv(slots=[1])
    step = pool.step(actions(s1=KILL))
    assert step.truncated.tolist() == [False, True, False, False]
    assert (pool.faults[-1].slot, pool.faults[-1].others) == (1, 0)
    np.testing.assert_array_equal(step.obs[0], before.obs[0])


def test_an_error_names_no_episode_if_all_were_over(make_pool) -> None:
    pool = make_pool(autoreset="hold", on_fault="raise")
    before = all_held(pool)
    os.kill(int(before.obs[0, 2]), signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"^worker 0.*SIGKILL during step") as caught:
        pool.step(actions())
    assert "lost" not in str(caught.value) and "Episode" not in str(caught.value)


@pytest.mark.parametrize("action", [RAISE, *DEADLY])
def test_the_fault_is_in_the_info(make_pool, action: int) -> None:
    pool = make_pool()
    pool.reset()
    pool.step(actions())
    step = pool.step(actions(s0=action))  # walked downwards: slot 1 was done before
    fault = step.infos.of(0)["fault"]
    kind = {RAISE: "raised", EXIT: "died", KILL: "died", HANG: "hung"}[action]
    assert (fault.kind, fault.command, fault.slot) == (kind, "step", 0)
    assert fault.worker == 0
    assert [int(a) for a in fault.last_actions] == [FINE, action]
    assert fault.seed == episode_seed(5, 0, 0)
    assert pool.faults[-1].kind == kind
    if action == HANG:
        assert "in step" in fault.stack
    if action == KILL:
        assert fault.signal_name == "SIGKILL"
    if action == EXIT:
        assert fault.exit_code == 3
    for slot in (1, 2, 3):
        assert "fault" not in step.infos.of(slot)


def test_a_restarted_episode_has_a_seed_of_its_own(make_pool) -> None:
    pool = make_pool()
    pool.reset()
    step = pool.step(actions(s1=RAISE))
    assert step.seed[1] == episode_seed(5, 1, 0, 3, 1)
    assert step.obs[1, 0] == gymnasium_draw(int(step.seed[1]))
    step = pool.step(actions(s1=KILL))
    assert step.seed[1] == episode_seed(5, 1, 0, 3, 2)
    for _ in range(LENGTH):
        step = pool.step(actions())
    # The one after it is counted on as if nothing had happened.
    assert step.seed[1] == episode_seed(5, 1, 1)


@pytest.mark.parametrize("action", [RAISE, KILL])
def test_an_episode_of_a_group_begins_again_with_its_seed_and_task(
    make_pool, action: int
) -> None:
    def sample_task(slot: int, episode: int, rng: Any) -> Any:
        return slot, episode

    pool = make_pool(repeat=2, sample_task=sample_task, step_timeout=None)
    pool.reset()
    step = pool.step(actions(s1=action))
    assert not step.valid[1]
    for slot in np.flatnonzero(step.started).tolist():
        assert step.infos.of(slot)["options"] == str({"task": (slot // 2, 0)})
        assert step.seed[slot] == episode_seed(5, slot // 2, 0)
    for _ in range(LENGTH + 1):
        step = pool.step(actions())
    seeds = [episode_seed(5, group, 1) for group in (0, 0, 1, 1)]
    assert step.seed.tolist() == seeds
    assert step.obs[:, 0].tolist() == list(map(gymnasium_draw, seeds))


def test_a_replaced_worker_draws_tasks_with_the_function_assigned_last(
    make_pool,
) -> None:
    def first(slot: int, episode: int, rng: Any) -> Any:
        return "first", slot, episode

    def second(slot: int, episode: int, rng: Any) -> Any:
        return "second", slot, episode

    pool = make_pool(sample_task=first, step_timeout=None)
    pool.reset(seed=9)
    pool.send(actions())
    with pytest.raises(OrderError, match="while results are pending"):
        pool.sample_task = second
    pool.recv()
    pool.sample_task = second
    assert pool.sample_task is second
    pool.step(actions(s2=KILL))
    told = {}
    for _ in range(LENGTH + 1):
        step = pool.step(actions())
        for slot in np.flatnonzero(step.started).tolist():
            told[slot] = step.infos.of(slot)["options"]
    assert {one[:18] for one in told.values()} == {"{'task': ('second'"}
    assert len(told) == 4 and str({"task": ("second", 3, 1)}) == told[3]


def test_a_run_with_faults_is_the_same_every_time(make_pool) -> None:
    def run() -> list[Any]:
        pool = make_pool(step_timeout=None)
        pool.reset(seed=9)
        seen = []
        for batch in (actions(), actions(s1=RAISE), actions(s2=KILL), actions()):
            step = pool.step(batch)
            seen.append(step.obs[:, :2].copy())
        return seen

    for one, other in zip(run(), run(), strict=True):
        np.testing.assert_array_equal(one, other)


# Neighbours ---------------------------------------------------------------------------


@pytest.mark.parametrize("action", [KILL, HANG])
def test_results_finished_before_a_death_are_kept(make_pool, action: int) -> None:
    pool = make_pool()
    pool.reset()
    step = pool.step(actions(s1=action))
    # Slot 0 shares the worker and was done: a valid row, then one that is cut.
    assert step.valid[0] and step.obs[0, 1] == 1
    step = pool.step(actions())
    assert not step.valid[0] and step.truncated[0] and step.started[0]
    assert step.infos.of(0)["fault"].kind == "shardmate"
    assert step.final_obs[0, 1] == 1
    assert step.valid[1:].all()


def test_the_other_worker_is_never_touched(make_pool) -> None:
    pool = make_pool()
    pool.reset()
    pids = pool.step(actions()).obs[:, 2].copy()
    step = pool.step(actions(s0=KILL))
    assert step.obs[2:, 2].tolist() == pids[2:].tolist()
    assert step.obs[0, 2] != pids[0]
    assert step.obs[2:, 1].tolist() == [2, 2]


def test_answers_of_a_worker_that_was_replaced_are_refused(make_pool) -> None:
    pool = make_pool(step_timeout=None)
    pool.reset()
    lost = pool.ask_async("get_attr", [0], lambda _: "metadata")
    pool.send(actions(s0=KILL))
    pool.recv()
    with pytest.raises(OrderError, match="replaced"):
        pool.answers(lost)
    assert len(pool.get_attr("metadata")) == 4


def test_answers_of_a_worker_that_stays_are_kept(make_pool) -> None:
    pool = make_pool(step_timeout=None)
    pool.reset()
    question = pool.ask_async("get_attr", [3], lambda _: "metadata")
    pool.send(actions(s0=KILL))
    pool.recv()
    assert pool.answers(question) == (Fragile.metadata,)


def test_survivors_go_on_while_a_worker_is_replaced(make_pool) -> None:
    pool = make_pool(step_timeout=None)
    pool.reset()
    pool.send(actions(s0=KILL))
    seen: set[int] = set()
    steps = 0
    while 0 not in seen:
        step = pool.recv(min_slots=1)
        seen.update(step.slots.tolist())
        steps += int(np.isin(step.slots, (2, 3)).sum())
        if 0 not in step.slots:
            pool.send(np.zeros(len(step), np.int64), slots=step.slots)
    assert steps > 10  # a replacement takes longer than some hundred steps
    while pool.waiting:
        pool.recv(min_slots=1)


@pytest.mark.parametrize(("one", "other"), [(KILL, KILL), (KILL, HANG), (RAISE, EXIT)])
def test_faults_of_two_workers_in_one_batch_are_both_mended(
    make_pool, one: int, other: int
) -> None:
    pool = make_pool()
    pool.reset()
    step = pool.step(actions(s0=one, s3=other))  # walked upwards
    assert step.valid.tolist() == [False, one == RAISE, True, False]
    kinds = {RAISE: "raised", EXIT: "died", KILL: "died", HANG: "hung"}
    told = {fault.slot: fault.kind for fault in pool.faults}
    assert told == {0: kinds[one], 3: kinds[other]}, pool.faults
    # Slot 2 was done before its worker ended, so its episode is cut one step later.
    assert pool.step(actions()).valid.tolist() == [True, True, False, True]
    assert pool.step(actions()).valid.all()


def test_a_worker_that_dies_while_nothing_is_under_way_loses_no_row(make_pool) -> None:
    pool = make_pool()
    pool.reset()
    before = pool.step(actions())
    pid = int(before.obs[0, 2])
    os.kill(pid, signal.SIGKILL)
    psutil.Process(pid).wait()
    step = pool.step(actions())
    assert step.valid.tolist() == [False, False, True, True]
    np.testing.assert_array_equal(step.final_obs[0], before.obs[0])
    kinds = [step.infos.of(slot)["fault"].kind for slot in (0, 1)]
    assert kinds == ["died", "shardmate"]
    assert pool.step(actions()).valid.all()


def test_a_slot_between_two_episodes_loses_nothing(make_pool) -> None:
    pool = make_pool(autoreset="next_step")
    pool.reset()
    for _ in range(LENGTH):
        step = pool.step(actions())
    assert step.terminated.all()
    pid = int(step.obs[0, 2])
    os.kill(pid, signal.SIGKILL)
    psutil.Process(pid).wait()
    step = pool.step(actions())
    assert step.started.all() and not step.valid.any()  # the filler rows, as ever
    assert not step.truncated.any()
    assert step.seed.tolist() == [episode_seed(5, slot, 1) for slot in range(4)]


# Modes --------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [RAISE, KILL])
def test_next_step_ends_first_and_begins_after(make_pool, action: int) -> None:
    pool = make_pool(autoreset="next_step")
    pool.reset()
    before = pool.step(actions())
    step = pool.step(actions(s1=action))
    assert step.truncated[1] and not step.valid[1] and not step.started[1]
    np.testing.assert_array_equal(step.obs[1], before.obs[1])
    step = pool.step(actions())
    assert step.started[1] and not step.valid[1] and not step.truncated[1]
    assert step.obs[1, 1] == 0
    assert pool.step(actions()).obs[1, 1] == 1


@pytest.mark.parametrize("action", [RAISE, KILL])
def test_off_waits_for_the_caller(make_pool, action: int) -> None:
    pool = make_pool(autoreset="off")
    pool.reset()
    step = pool.step(actions(s1=action))
    assert step.truncated[1] and not step.valid[1]
    lost = [1] if action == RAISE else [0, 1]
    if action == KILL:
        step = pool.step([FINE], slots=[0])
        assert step.truncated[0] and not step.valid[0]
    step = pool.reset(slots=lost)
    assert step.started.all() and step.valid.all()
    assert pool.step(actions()).valid.all()


def test_a_reset_that_fails_is_done_again_with_its_own_seed(
    make_pool, tmp_path
) -> None:
    class Once(Fragile):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            path = (options or {}).get("once")
            if path and not path.exists():
                path.touch()
                if options["signal"]:
                    os.kill(os.getpid(), options["signal"])
                raise RuntimeError("the first time it fails")
            return super().reset(seed=seed)

    for number in (0, signal.SIGKILL):
        pool = make_pool(env=Once, num_envs=2)
        options = [{"once": tmp_path / str(number), "signal": int(number)}, None]
        step = pool.reset(seeds=[77, 78], options=options)
        assert step.valid.all() and step.started.all()
        assert step.seed.tolist() == [77, 78]
        assert step.obs[:, 0].tolist() == [gymnasium_draw(77), gymnasium_draw(78)]
        assert "fault" in step.infos.of(0)


def failing_once(marker: Path) -> type[Fragile]:
    class SecondReset(Fragile):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if getattr(self, "_steps", 0) == LENGTH and not marker.exists():
                marker.touch()
                raise RuntimeError("not this time")
            return super().reset(seed=seed)

    return SecondReset


def test_a_filler_row_is_no_end_also_where_its_reset_failed(
    make_pool, tmp_path
) -> None:
    env = failing_once(tmp_path / "failed")
    pool = make_pool(env=env, num_envs=1, workers=1, autoreset="next_step")
    pool.reset()
    for _ in range(LENGTH + 1):
        step = pool.step([FINE])
    assert step.started[0] and not step.valid[0] and not step.ended[0]
    assert step.infos.of(0)["fault"].command == "reset"
    assert step.final_infos == {}


def test_a_transition_stands_when_the_reset_after_it_fails(make_pool, tmp_path) -> None:
    env = failing_once(tmp_path / "failed")
    pool = make_pool(env=env, num_envs=1, workers=1)
    pool.reset()
    for _ in range(LENGTH):
        step = pool.step([FINE])
    assert step.valid[0] and step.terminated[0] and step.reward[0] == 1.0
    assert step.final_obs[0, 1] == LENGTH
    assert step.started[0] and step.obs[0, 1] == 0
    assert step.final_infos[0] == {"n": LENGTH}
    assert step.infos.of(0)["fault"].command == "reset"


# What was told is told again ----------------------------------------------------------


def test_tasks_and_options_survive_a_death(make_pool) -> None:
    class Tasked(Fragile):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            obs, _ = super().reset(seed=seed)
            return obs, {"task": str((options or {}).get("task"))}

    pool = make_pool(env=Tasked)
    pool.reset(tasks=["a", "b", "c", "d"])
    pool.assign(0, "next")
    step = pool.step(actions(s1=KILL))
    assert step.infos.of(1)["task"] == "b"  # a lost episode is begun again as it was …
    step = pool.step(actions())
    assert step.infos.of(0)["task"] == "next"  # … unless another task is waiting
    for _ in range(LENGTH):
        step = pool.step(actions())
    assert step.infos.of(0)["task"] == "None"


def test_info_columns_go_on_as_they_were(make_pool) -> None:
    pool = make_pool()
    pool.reset()
    for _ in range(2):
        pool.step(actions())
    step = pool.step(actions(s1=KILL))
    assert [step.infos.of(slot).get("n") for slot in range(4)] == [3, None, 3, 3]
    pool.step(actions())
    step = pool.step(actions())
    assert [step.infos.of(slot).get("n") for slot in range(4)] == [1, 2, 5, 5]


def test_questions_are_answered_by_the_new_worker(make_pool) -> None:
    pool = make_pool()
    pool.reset()
    pool.step(actions(s1=KILL))
    assert pool.get_attr("_steps", slots=[1, 2, 3]) == (0, 1, 1)


def test_a_call_that_kills_its_worker_raises_and_the_pool_goes_on(make_pool) -> None:
    class Callable_(Fragile):
        def die(self) -> None:
            os._exit(9)

    pool = make_pool(env=Callable_)
    pool.reset()
    with pytest.raises(WorkerDied, match="exit code 9") as caught:
        pool.call("die", slots=[1])
    told = str(caught.value)
    assert "make the call again: the worker was replaced" in told
    assert "close the envs" not in told and "continue after" not in told
    step = pool.step(actions())
    assert step.valid.tolist() == [False, False, True, True]
    assert pool.step(actions()).valid.all()


@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_step_may_kill_the_worker_of_a_slot_that_is_asked(
    make_pool, on_fault: str
) -> None:
    pool = make_pool(on_fault=on_fault)
    pool.reset()
    pool.send(actions(s0=KILL))
    with pytest.raises(WorkerDied, match=r"^slot 0, worker 0.*during step") as caught:
        pool.set_attr("name", ["new"], slots=[1])
    restarts = on_fault == "restart"
    assert caught.value.fault.replaced == restarts
    assert ("close the envs" in str(caught.value)) != restarts
    if restarts:
        assert not pool.recv().valid[0]
        pool.set_attr("name", ["new"], slots=[1])


def test_only_slots_with_an_episode_lose_one(make_pool) -> None:
    pool = make_pool(workers=1, on_fault="raise")
    with pytest.raises(EnvError):
        pool.reset(slots=[2], options={"break": True})
    pool.reset(slots=[1, 3])
    with pytest.raises(WorkerDied) as caught:
        pool.step([KILL], slots=[1])
    assert (caught.value.fault.slot, caught.value.fault.others) == (1, 1)
    assert "The worker's other slot lost its episode." in str(caught.value)


def test_a_slot_that_failed_before_loses_nothing_more(make_pool) -> None:
    pool = make_pool(on_fault="raise")
    pool.reset()
    with pytest.raises(EnvError):
        pool.step([RAISE], slots=[0])
    with pytest.raises(WorkerDied) as caught:
        pool.step([KILL], slots=[1])
    assert (caught.value.fault.slot, caught.value.fault.others) == (1, 0)
    assert "lost" not in str(caught.value)


def test_a_worker_that_ends_in_a_call_before_any_episode_has_no_seed(make_pool) -> None:
    class Callable_(Fragile):
        def die(self) -> None:
            os._exit(9)

    pool = make_pool(env=Callable_, on_fault="raise")
    with pytest.raises(WorkerDied) as caught:
        pool.call("die", slots=[1])
    assert (caught.value.fault.seed, caught.value.fault.others) == (None, 0)


# Limits -------------------------------------------------------------------------------


def test_too_many_restarts_are_an_error(make_pool) -> None:
    pool = make_pool(max_restarts=2, step_timeout=None)
    pool.reset()
    for _ in range(2):
        assert not pool.step(actions(s3=RAISE)).valid[3]
    with pytest.raises(EnvError, match="out of luck") as caught:
        pool.step(actions(s3=RAISE))
    assert caught.value.fault.restarts == 2


def test_too_many_deaths_are_an_error(make_pool) -> None:
    pool = make_pool(max_restarts=1, step_timeout=None)
    pool.reset()
    pool.step(actions(s3=KILL))
    pool.step(actions())
    with pytest.raises(WorkerDied, match="SIGKILL") as caught:
        pool.step(actions(s3=KILL))
    assert caught.value.fault.restarts == 1
    with pytest.raises(corral.errors.ClosedError):
        pool.step(actions())


def test_an_env_that_cannot_be_built_again_is_an_error(make_pool, tmp_path) -> None:
    marker = tmp_path / "built"

    class Unique(Fragile):
        def __init__(self) -> None:
            if marker.exists():
                raise RuntimeError("there can be only one")
            marker.touch()

    pool = make_pool(env=Unique, num_envs=1, workers=1, max_restarts=2)
    pool.reset()
    with pytest.raises(EnvError, match="there can be only one"):
        pool.step([RAISE])


def test_a_worker_that_cannot_be_built_again_is_an_error(make_pool, tmp_path) -> None:
    marker = tmp_path / "built"

    class Unique(Fragile):
        def __init__(self) -> None:
            if marker.exists():
                raise RuntimeError("there can be only one")
            marker.touch()

    pool = make_pool(env=Unique, num_envs=1, workers=1, max_restarts=2)
    pool.reset()
    with pytest.raises(StartError, match="there can be only one"):
        pool.step([KILL])


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_restarts_are_refused_where_a_death_is_the_callers(backend: str) -> None:
    with pytest.raises(OptionError, match="on_fault='restart' needs worker processes"):
        Pool(Fragile, 2, backend=backend, on_fault="restart")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_fault": "retry"}, "choose one of raise, restart"),
        ({"on_timeout": "ignore"}, "on_timeout is 'ignore'"),
        ({"max_restarts": 0}, "max_restarts is 0"),
        ({"restarts_per_minute": -1}, "restarts_per_minute is -1"),
        ({"step_timeout": 0}, "step_timeout is 0"),
        ({"reset_timeout": "soon"}, "reset_timeout is 'soon'"),
        ({"memory_limit": 1 << 30}, 'add isolation="slot"'),
    ],
)
def test_options_without_meaning_are_refused(options: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Pool(Fragile, 2, **options)


# Deadlines ----------------------------------------------------------------------------


def test_a_step_that_hangs_raises_with_its_stack(make_pool) -> None:
    pool = make_pool(on_fault="raise", step_timeout=0.3)
    pool.reset()
    with pytest.raises(WorkerHung, match="slot 1") as caught:
        pool.step(actions(s1=HANG))
    fault = caught.value.fault
    assert fault.command == "step" and "in step" in fault.stack
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(corral.errors.ClosedError):
        pool.step(actions())


def test_hangs_may_be_restarted_while_deaths_raise(make_pool) -> None:
    pool = make_pool(on_fault="raise", on_timeout="restart", step_timeout=0.3)
    pool.reset()
    step = pool.step(actions(s1=HANG))
    assert step.infos.of(1)["fault"].kind == "hung"
    pool.step(actions())
    with pytest.raises(WorkerDied):
        pool.step(actions(s1=KILL))


def test_a_reset_has_a_deadline_of_its_own(make_pool) -> None:
    class SlowReset(Fragile):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if (options or {}).get("hang"):
                time.sleep(600)
            return super().reset(seed=seed)

    pool = make_pool(
        env=SlowReset,
        on_fault="raise",
        step_timeout=None,
        reset_timeout=0.3,
        close_timeout=0.5,
    )
    pool.reset()
    with pytest.raises(WorkerHung) as caught:
        pool.reset(options={"hang": True})
    assert caught.value.fault.command == "reset"


def test_a_worker_that_is_stopped_is_noticed(make_pool) -> None:
    pool = make_pool(step_timeout=0.3)
    pool.reset()
    pid = int(pool.step(actions()).obs[0, 2])
    os.kill(pid, signal.SIGSTOP)
    step = pool.step(actions())
    assert step.valid.tolist() == [False, False, True, True]
    assert "SIGSTOP" in step.infos.of(0)["fault"].stack


class StopsItsReader:
    """A task that stops the first worker that reads it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGSTOP)


def test_a_worker_stopped_while_it_reads_a_message_is_noticed(
    make_pool, tmp_path: Path
) -> None:
    pool = make_pool(step_timeout=0.3)
    pool.reset()
    pool.assign(0, StopsItsReader(tmp_path / "stopped"))
    step = pool.step(actions())
    assert step.valid.tolist() == [False, False, True, True]
    assert "SIGSTOP" in step.infos.of(0)["fault"].stack


def test_a_worker_seen_idle_twice_has_not_been_idle_all_the_time(make_pool) -> None:
    """Each time it had not noticed its command yet; in between it obeyed."""
    pool = make_pool(on_fault="raise", num_envs=1, workers=1, step_timeout=1.0)
    pool.reset()
    pid = int(pool.step([FINE]).obs[0, 2])
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(pid))
        pool.send([FINE])
        with pytest.raises(TimeoutError, match="results did not arrive"):
            pool.recv(timeout=0.01)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1.1)  # what it was given for a step
        assert pool.recv().valid.all()


# Memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_slot_that_outgrew_its_limit_loses_no_step(mode: str) -> None:
    pool = Pool(
        Leaky,
        2,
        isolation="slot",
        memory_limit=100 * 2**20,
        seed=3,
        autoreset=mode,
    )
    with pool, Pool(Leaky, 2, backend="serial", seed=3, autoreset=mode) as reference:
        pids = set()
        pool.reset()
        reference.reset()
        for _ in range(24):
            step, expected = pool.step([0, 0]), reference.step([0, 0])
            pids.update(step.obs[:, 2].tolist())
            for name in ("reward", "terminated", "truncated", "started", "valid"):
                ours, theirs = getattr(step, name), getattr(expected, name)
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(step.obs[:, :2], expected.obs[:, :2])
            np.testing.assert_array_equal(step.seed, expected.seed)
            ended = step.ended
            np.testing.assert_array_equal(
                step.final_obs[ended, :2], expected.final_obs[ended, :2]
            )
            assert [step.infos.of(i) for i in (0, 1)] == [
                expected.infos.of(i) for i in (0, 1)
            ]
        assert len(pids) > 2, "no process was replaced"
        assert not pool.faults
    Leaky.held.clear()


def test_a_worker_that_makes_room_has_told_all_of_the_end() -> None:
    limit = 100 * 2**20
    pool = Pool(WordyLeaky, 1, isolation="slot", memory_limit=limit, seed=3)
    with pool, Pool(WordyLeaky, 1, backend="serial", seed=3) as reference:
        workers = set()
        pool.reset()
        reference.reset()
        for _ in range(24):
            step, expected = pool.step([0]), reference.step([0])
            workers.add(pool.stats().workers[0].pid)
            assert step.obs == expected.obs
            assert step.infos.of(0) == expected.infos.of(0)
            assert step.final_infos == expected.final_infos
            if step.ended[0]:
                assert step.final_obs == expected.final_obs
        assert len(workers) > 1, "no process was replaced"
    Leaky.held.clear()
