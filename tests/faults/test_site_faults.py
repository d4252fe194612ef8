"""What fails inside a site costs that site's call, never the pool."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diary_env import Diary
from fragile_envs import EXIT, FINE, HANG, KILL, RAISE, Fragile, Leaky

import corral
from corral import Pool
from corral.engine.pool.sites import Sites
from corral.errors import EnvError, Fault, WorkerDied, WorkerHung

STEPS = 10


class Walker:
    """Steps its slots; `bad` says which action a slot takes at which step instead."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.calls = 0

    def reset(self) -> Any:
        return self.pool.reset().obs

    def walk(self, bad: dict[tuple[int, int], int]) -> list[Any]:
        self.calls += 1
        rows = []
        for number in range(STEPS):
            slots = self.pool.slots
            actions = [bad.get((slot, number), FINE) for slot in slots]
            step = self.pool.step_all(np.array(actions))
            infos = step.infos.to_list(len(slots))
            columns = step.obs, step.truncated, step.valid, [*slots], infos
            rows += zip(*columns, strict=True)
        return rows

    def count(self) -> int:
        return self.calls

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def think(self) -> str:
        time.sleep(0.8)  # longer than a step may take
        self.pool.step_all(np.zeros(self.pool.num_envs, np.int64))
        return "done"

    def unsendable(self) -> Any:
        return (one for one in ())

    def loop(self) -> None:
        while True:
            self.pool.step_all(np.zeros(self.pool.num_envs, np.int64))


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(env: Any = Fragile, **options: Any) -> Pool:
        settings: dict[str, Any] = {
            "num_envs": 4,
            "workers": 2,
            "seed": 5,
            "backend": "process",
            "isolation": "shared",
        }
        pools.append(Pool(env, **settings | options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def begun(pool: Pool) -> Sites:
    sites = Sites(pool, Walker)
    sites.call("reset")
    return sites


def steps_of(rows: list[Any], slot: int) -> list[int]:
    """The episode's length at each valid row, as the env has observed it."""
    return [int(obs[1]) for obs, _, valid, owner, _ in rows if owner == slot and valid]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_an_env_that_raises_is_one_error_with_its_episode(make_pool, backend):
    pool = make_pool(backend=backend)
    sites = begun(pool)
    with pytest.raises(EnvError, match=r"slot 2.*out of luck") as caught:
        sites.call("walk", ({(2, 3): RAISE},))
    fault = caught.value.fault
    assert (fault.slot, fault.worker, fault.step) == (2, 1, 4)
    assert fault.last_actions[-1] == RAISE
    assert fault.episode.kit.slot == 2 and len(fault.episode.actions) == 4
    # The other worker has finished its call; the slot that failed needs a reset.
    assert pool._state.tickets_of(np.arange(4)).tolist() == [11, 11, 5, 5]
    sites.call("reset")
    assert all(sites.call("walk", ({},)))


def test_an_episode_that_failed_in_a_site_can_be_replayed(make_pool, tmp_path):
    sites = begun(make_pool())
    with pytest.raises(EnvError) as caught:
        sites.call("walk", ({(3, 8): RAISE},))
    caught.value.fault.save(tmp_path / "fault.zip")
    assert "out of luck" in str(corral.replay(tmp_path / "fault.zip"))


def test_an_env_that_raises_is_built_again_inside_the_site(make_pool):
    pool = make_pool(on_fault="restart")
    sites = begun(pool)
    heard: list[Fault] = []
    pool.call_on_restart(heard.append)
    rows = sites.call("walk", ({(1, 2): RAISE},))[0]
    cut = [row for row in rows if not row[2]]
    assert [(row[3], row[1]) for row in cut] == [(1, True)]
    assert cut[0][4]["fault"].slot == 1
    assert [one.slot for one in pool.faults] == [one.slot for one in heard] == [1]
    assert pool.faults[0].episode.kit.slot == 1
    assert len(pool.faults[0].episode.actions) == 3
    assert steps_of(rows, 1) == [1, 2, 1, 2, 3, 4, 5, 0, 1]
    assert pool.fault_count == 1
    sites.call("walk", ({},))
    assert pool.fault_count == 1


@pytest.mark.parametrize("deadly", [KILL, EXIT, HANG])
def test_a_worker_that_ends_in_mid_call_costs_its_call(make_pool, deadly):
    pool = make_pool(on_fault="restart", step_timeout=0.5)
    sites = begun(pool)
    sites.call("walk", ({},))
    fault, rows = sites.call("walk", ({(1, 3): deadly},))
    assert isinstance(fault, Fault) and len(rows) == 2 * STEPS
    kind = "hung" if deadly == HANG else "died"
    assert (fault.kind, fault.slot, fault.worker, fault.command) == (kind, 1, 0, "step")
    # Ten steps, then four of the second walk: episodes have six each.
    assert fault.step == 14 - 12
    assert pool.faults == (fault,)
    assert fault.last_actions[-1] == deadly
    # Another site was built, of which the first row of each slot truncates its episode.
    rows, _ = sites.call("walk", ({},))
    assert sites.call("count") == [1, 3]
    assert [row[1:3] for row in rows[:2]] == [(True, False)] * 2
    assert steps_of(rows, 0) == steps_of(rows, 1) == [1, 2, 3, 4, 5, 0, 1, 2, 3]
    # The fault was told once.
    step = pool.step_all(np.zeros(4, np.int64))
    assert step.valid.all() and "fault" not in step.infos.to_vector(4)


def test_the_fault_of_a_lost_call_is_not_told_again(make_pool):
    pool = make_pool(on_fault="restart")
    sites = begun(pool)
    sites.call("walk", ({(1, 3): KILL},))
    step = pool.step_all(np.zeros(4, np.int64))
    assert step.valid.tolist() == [False, False, True, True]
    assert step.truncated.tolist() == [True, True, False, False]
    assert not any("fault" in info for info in step.infos.to_list(4))
    assert pool.step_all(np.zeros(4, np.int64)).valid.all()


def test_a_worker_that_ends_in_the_sites_own_code(make_pool):
    pool = make_pool(on_fault="restart")
    sites = begun(pool)
    fault, other = sites.call("die")
    for one in (fault, other):
        assert (one.kind, one.slot, one.command) == ("died", None, "site.die")
    assert len(sites.call("walk", ({},))) == 2


def test_a_worker_that_ends_before_its_call_begins_is_replaced_first(make_pool):
    pool = make_pool(on_fault="restart")
    sites = begun(pool)
    pid = pool.apply(_pid, slots=[3])[0]
    os.kill(pid, signal.SIGKILL)
    rows = sites.call("walk", ({},))
    assert [len(part) for part in rows] == [2 * STEPS] * 2
    told = [(row[3], row[4]["fault"].kind) for row in rows[1] if "fault" in row[4]]
    assert told == [(2, "shardmate"), (3, "shardmate")]
    assert not any("fault" in row[4] for row in rows[0])
    assert sites.call("count") == [1, 1]
    assert [fault.worker for fault in pool.faults] == [1]


def _pid(env: Any) -> int:
    return os.getpid()


def test_without_restarts_a_dead_worker_breaks_the_pool(make_pool):
    pool = make_pool()
    sites = begun(pool)
    with pytest.raises(WorkerDied, match=r"slot 3.*SIGKILL during step") as caught:
        sites.call("walk", ({(3, 2): KILL},))
    assert caught.value.fault.step == 3
    pool.close()


def test_deadlines_hold_for_envs_and_not_for_the_sites_own_code(make_pool):
    pool = make_pool(step_timeout=0.5)
    sites = begun(pool)
    assert sites.call("think") == ["done", "done"]
    with pytest.raises(WorkerHung, match=r"slot 0.*longer than 0\.5 s"):
        sites.call("walk", ({(0, 1): HANG},))


class SlowToOpen:
    """Takes longer to unpickle than a step may take, as a module to import does."""

    def __reduce__(self) -> Any:
        return time.sleep, (0.8,)


def test_a_deadline_does_not_hold_while_a_worker_reads_a_message(make_pool):
    pool = make_pool(step_timeout=0.5)
    pool.reset()
    assert pool.apply(_called_with, SlowToOpen()) == (None,) * 4


def _called_with(env: Any, value: Any) -> Any:
    return value


def test_a_call_that_takes_long_stays_pending(make_pool):
    sites = begun(make_pool())
    sites.start("think")
    with pytest.raises(TimeoutError, match=r"workers.*still at work"):
        sites.finish(0.0)
    assert sites.finish() == ["done", "done"]


def test_what_cannot_be_sent_is_an_error(make_pool):
    pool = make_pool()
    sites = begun(pool)
    told = "sending a result to the caller(?s:.*)let infos, extras and carries hold"
    with pytest.raises(EnvError, match=told):
        sites.call("unsendable")
    with pytest.raises(corral.errors.FactoryError, match="the arguments"):
        sites.call("walk", ((one for one in ()),))
    with pytest.raises(corral.errors.FactoryError, match="what builds a site"):
        Sites(pool, _holding(threading.Lock()))
    assert len(sites.call("walk", ({},))) == 2


def _holding(value: Any) -> Callable[[Pool], Any]:
    return lambda pool: value


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_closing_stops_sites_at_their_next_step(make_pool, tmp_path: Path, backend):
    pool = make_pool([lambda: Diary(tmp_path)] * 2, num_envs=2, backend=backend)
    sites = begun(pool)
    sites.start("loop")
    pool.close()
    lines = (tmp_path / "diary").read_text().splitlines()
    assert sorted(lines) == ["built 0", "built 1", "closed 0", "closed 1"]


def test_a_site_that_cannot_be_built_again_is_tried_with_every_call(
    make_pool, tmp_path: Path
):
    pool = make_pool(on_fault="restart")

    def build(pool: Pool) -> Walker:
        if (tmp_path / "refused").exists():
            raise LookupError("not now")
        return Walker(pool)

    sites = Sites(pool, build)
    sites.call("reset")
    (tmp_path / "refused").touch()
    assert isinstance(sites.call("walk", ({(1, 3): KILL},))[0], Fault)
    for _ in range(2):
        with pytest.raises(EnvError, match=r"worker 0.*not now"):
            sites.call("walk", ({},))
    (tmp_path / "refused").unlink()
    assert sites.call("count") == [0, 3]


def test_a_worker_that_holds_too_much_memory_ends_after_its_call(make_pool):
    options = {"isolation": "slot", "workers": None, "memory_limit": 2**20 * 150}
    pool = make_pool(Leaky, num_envs=2, **options)
    sites = begun(pool)
    seen = pids(sites.call("reset"))
    for _ in range(6):  # each adds 60 MiB or more
        parts = sites.call("walk", ({},))
        assert [len(part) for part in parts] == [STEPS] * 2
        now = pids(row[0] for part in parts for row in part)
        # The episode that ran when its worker was replaced is cut short.
        cut = pids(row[0] for part in parts for row in part if not row[2])
        assert cut == now - seen
        seen |= now
    assert len(seen) > 2 and pool.fault_count == 0


def pids(rows: Any) -> set[int]:
    """Where envs were that observed this."""
    return {int(pid) for row in rows for pid in np.atleast_2d(row)[:, 2]}
