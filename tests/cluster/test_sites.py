"""Sites in this process, without Ray: the same numbers as one pool."""

import os
from dataclasses import replace

import numpy as np
import pytest
from in_process import InProcess, cluster_of
from scenes import (
    PARTS,
    Recall,
    Rooms,
    Tilt,
    Walker,
    assert_equal,
    assert_same_rollouts,
    collected,
    draw_task,
    make_trial,
)

import corral
from corral.cluster import room
from corral.cluster.map_items import map_on
from corral.engine.crew import CrewOptions
from corral.engine.faults.advice import advice_for
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import (
    ClosedError,
    ClusterError,
    EnvError,
    ItemError,
    NodeLost,
    OptionError,
    OrderError,
    StartError,
)

ROOMS = dict(sample_task=draw_task, infos="final", isolation="shared")


def local(policy, env="CartPole-v1", num_envs=7, **options):
    with corral.Pool(env, num_envs, seed=0, backend="serial", **options) as pool:
        return collected(pool, policy)


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_rollouts_are_those_of_one_pool(sites):
    with cluster_of("CartPole-v1", 7, sites) as cluster:
        assert_same_rollouts(collected(cluster, Tilt()), local(Tilt()))


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_dicts_tasks_carries_and_weights_too(autoreset):
    options = dict(ROOMS, autoreset=autoreset)
    with cluster_of(Rooms, 7, 3, **options) as cluster:
        ours = collected(cluster, Walker())
    assert_same_rollouts(ours, local(Walker(), Rooms, **options))
    assert [rollout.version[0, 0] for rollout in ours] == [1, 2, 2]


def test_trials_with_tasks_and_carries_too():
    def play(pool):
        return corral.run_episodes(pool, Recall(), episodes=9)

    with cluster_of(make_trial, 5, 3, **ROOMS) as cluster:
        ours = play(cluster)
        assert_same_rollouts(
            collected(cluster, Recall()), local(Recall(), make_trial, 5, **ROOMS)
        )
    with corral.Pool(make_trial, 4, seed=0, backend="serial", **ROOMS) as pool:
        assert_same_episodes(ours, play(pool))


def test_groups_that_play_the_same_episodes_stay_together():
    with cluster_of(Rooms, 8, 3, repeat=2, **ROOMS) as cluster:
        assert [len(slots) for slots in cluster.shards] == [4, 2, 2]
        ours = collected(cluster, Walker())
    assert_same_rollouts(ours, local(Walker(), Rooms, 8, repeat=2, **ROOMS))


def test_workers_of_sites_act_as_workers_of_a_pool_do():
    with cluster_of(Rooms, 6, 2, backend="process", **ROOMS) as cluster:
        ours = collected(cluster, Walker())
    assert_same_rollouts(ours, local(Walker(), Rooms, 6, **ROOMS))


def assert_same_episodes(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        for name in ("item", "seed", "task", "return_", "length", "obs", "action"):
            assert_equal(getattr(one, name), getattr(other, name), name)


def test_episodes_and_evaluations_are_those_of_a_pool():
    with corral.Pool(Rooms, 4, seed=0, backend="serial", **ROOMS) as pool:
        theirs = corral.run_episodes(pool, Walker(), episodes=20)
        scores = corral.evaluate(Walker(), pool, episodes=6, seed=3)
    with cluster_of(Rooms, 5, 2, **ROOMS) as cluster:
        ours = corral.run_episodes(cluster, Walker(), episodes=20)
        again = corral.run_episodes(policy=Walker(), cluster=cluster, episodes=20)
        evaluated = corral.evaluate(Walker(), cluster=cluster, episodes=6, seed=3)
    assert_same_episodes(ours, theirs)
    assert_same_episodes(again, theirs)
    assert_equal(evaluated.returns, scores.returns)


def test_a_map_has_its_results_in_order():
    serial = CrewOptions(backend="serial")
    with cluster_of("CartPole-v1", 4, 2) as cluster:
        assert map_on(cluster, lambda x: x * x, range(11), serial) == [
            x * x for x in range(11)
        ]
    assert map_on("auto", str, iter("abcdefg"), serial, InProcess()) == list("abcdefg")


def test_an_item_that_raises_is_named_by_its_index():
    with pytest.raises(ItemError, match=r"item 9.*site \d, node"):
        map_on("auto", (9).__rfloordiv__, range(-9, 9), CrewOptions(), OneIn())


class OneIn(InProcess):
    """Crews of threads: nothing is started."""

    def start(self, name, cpus, limit, node=None):
        link = super().start(name, cpus, limit, node)
        host = self.hosts[link.handle][0]
        hire = host._hire
        serial = CrewOptions(backend="serial")
        host._hire = lambda options, fn, generation: hire(
            serial, lambda x: 1 // x, generation
        )
        return link


# What is sent -------------------------------------------------------------------------


def test_no_version_of_the_weights_is_sent_twice():
    engine, policy = InProcess(), Walker()
    with cluster_of(Rooms, 4, 2, engine, **ROOMS) as cluster:
        collector = corral.Collector(cluster, policy)
        for _ in range(3):
            collector.collect(2)
        policy.gain = policy.gain * 2
        collector.collect(2)
    weights = [one for one in engine.puts if isinstance(one, dict)]
    assert [one["gain"][0] for one in weights] == [0.5, 1.0]
    fills = [args for method, args in engine.calls if method == "fill"]
    assert [args[2] is not None for args in fills] == [False] * 6 + [True] * 2


def test_a_site_that_acted_with_other_weights_is_refused():
    policy = Walker()
    with cluster_of(Rooms, 4, 2, **ROOMS) as cluster:
        collector = corral.Collector(cluster, policy)
        collector.collect(2)
        host = next(iter(cluster._engine.hosts.values()))[0]
        (copies,) = host._site._copies.values()
        copies.policy.take = lambda orders: None
        policy.gain = policy.gain * 2
        with pytest.raises(OrderError, match="version 1 of the weights; expected 2"):
            collector.collect(2)


@pytest.mark.parametrize("generation", [0, 2])
def test_a_fragment_of_another_generation_is_refused(generation):
    engine = InProcess()
    with cluster_of(Rooms, 4, 2, engine, on_node_loss="restart", **ROOMS) as cluster:
        collector = corral.Collector(cluster, Walker())
        engine.lose = {len(engine.calls) + 1}
        collector.end_episodes(1)
        assert cluster.generation(1) == 1
        host = max(engine.hosts.items())[1][0]
        host._site._setup = replace(host._site._setup, generation=generation)
        text = f"site 1 answered as generation {generation}; expected 1"
        with pytest.raises(OrderError, match=text):
            collector.collect(2)


# Losses -------------------------------------------------------------------------------


def lost_in_second_rollout(engine, cluster, policy):
    """Three rollouts; the host of site 1 ends while it fills the second."""
    collector = corral.Collector(cluster, policy)
    found = [collector.collect(5)]
    engine.lose = {len(engine.calls) + 1}
    found.append(collector.collect(5))
    return [*found, collector.collect(5)]


def test_a_lost_site_is_padding_and_its_slots_begin_again():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart")
    with cluster_of(Rooms, 6, 3, engine, **options) as cluster:
        first, second, third = lost_in_second_rollout(engine, cluster, Walker())
        (fault,) = cluster.faults
        root = cluster.seed
    assert (fault.kind, fault.site, fault.node) == ("node", 1, "b")
    assert second.faults == (fault,)
    assert not second.valid[:, 2:4].any()
    assert second.valid[:, [0, 1, 4, 5]].all() or second.terminated.any()
    assert third.started[0, 2:4].all()
    # The other slots go on as if nothing had happened.
    others = [0, 1, 4, 5]
    with corral.Pool(Rooms, 6, seed=root, backend="serial", **ROOMS) as pool:
        collector = corral.Collector(pool, Walker())
        for ours in (first, second, third):
            theirs = collector.collect(5)
            for name in ("action", "reward", "started", "terminated", "truncated"):
                ours_too = getattr(ours, name)[:, others]
                assert_equal(ours_too, getattr(theirs, name)[:, others], name)
    # Its own are those of a pool that begins with the root after a loss.
    again = episode_seed(root, 1, SeedDomain.RESTARTS)
    with corral.Pool(Rooms, 6, seed=again, backend="serial", **ROOMS) as pool:
        theirs = corral.Collector(pool, Walker()).collect(5)
    assert_equal(third.action[:, 2:4], theirs.action[:, 2:4])
    assert_equal(third.reward[:, 2:4], theirs.reward[:, 2:4])


def test_the_same_loss_gives_the_same_numbers():
    options = dict(ROOMS, on_node_loss="restart")
    runs = []
    for _ in range(2):
        engine = InProcess()
        with cluster_of(Rooms, 6, 3, engine, **options) as cluster:
            runs.append(lost_in_second_rollout(engine, cluster, Walker()))
    for one, other in zip(*runs, strict=True):
        for name in PARTS:
            assert_equal(getattr(one, name), getattr(other, name), name)


def test_what_had_come_back_is_in_the_error():
    engine = InProcess()
    with cluster_of(Rooms, 6, 3, engine, **ROOMS) as cluster:
        text = r"site 1, node b: its process has ended"
        with pytest.raises(NodeLost, match=text) as caught:
            lost_in_second_rollout(engine, cluster, Walker())
        rollout = caught.value.rollout
        assert rollout.valid[:, [0, 1, 4, 5]].any(axis=0).all()
        assert not rollout.valid[:, 2:4].any()
        assert 'on_node_loss="restart"' in str(caught.value)
        with pytest.raises(OrderError, match="can only be closed"):
            corral.Collector(cluster, Walker()).collect(5)


def test_a_site_that_is_late_is_ended():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart", fragment_timeout=1e-3)
    with cluster_of(Rooms, 4, 2, engine, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        engine.late = {len(engine.calls)}
        rollout = collector.collect(2)
    (fault,) = rollout.faults
    assert "longer than fragment_timeout, 0.001 s" in fault.error_text
    assert "give a fragment more time: fragment_timeout=" in [*advice_for(fault)]
    assert not rollout.valid[:, :2].any()


def test_restarts_are_counted_and_limited():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart", max_restarts=1)
    with cluster_of(Rooms, 4, 2, engine, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        engine.lose = {len(engine.calls)}
        collector.collect(2)
        engine.lose = {len(engine.calls)}
        with pytest.raises(NodeLost, match="given up after 1 restart"):
            collector.collect(2)
        assert len(engine.hosts) == 1  # also none that waits to be used


class Logged(InProcess):
    """Remembers when hosts were started, and when answers were taken."""

    def __post_init__(self):
        super().__post_init__()
        self.log = []

    def start(self, name, cpus, limit, node=None):
        self.log.append(f"start {name}")
        return super().start(name, cpus, limit, node)

    def result(self, call):
        if call.method == "call":
            self.log.append(f"{call.args[0]} of {call.link.node.name}")
        return super().result(call)


def test_the_next_host_of_a_lost_site_starts_before_others_are_done():
    engine = Logged({"a": 1, "b": 1})
    with cluster_of(Rooms, 4, 2, engine, on_node_loss="restart", **ROOMS) as cluster:
        collector = corral.Collector(cluster, Walker())
        engine.log, engine.lose = [], {len(engine.calls) + 2}
        collector.collect(2)
    began = ["begin of a", "begin of b", "fill of a", "start site 0", "fill of b"]
    assert engine.log[: len(began) + 1] == [*began, "build of a"]


def test_a_site_may_be_lost_while_it_is_started_again():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart")
    with cluster_of(Rooms, 4, 2, engine, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        # Of site 0: its rows, and what builds its successor.
        engine.lose = {len(engine.calls), len(engine.calls) + 2}
        rollout = collector.collect(2)
        assert cluster.fault_count == 2 and cluster.generation(0) == 2
    assert not rollout.valid[:, :2].any() and rollout.valid[:, 2:].any()


def test_all_sites_may_be_lost_at_once():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart")
    with cluster_of(Rooms, 4, 2, engine, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        engine.lose = {len(engine.calls), len(engine.calls) + 1}
        rollout = collector.collect(2)
    assert rollout.valid.all()
    assert [fault.site for fault in rollout.faults] == [0, 1]


def test_items_of_a_lost_site_are_run_again():
    engine = InProcess()
    options = dict(ROOMS, on_node_loss="restart")
    with cluster_of(Rooms, 4, 2, engine, **options) as cluster:
        engine.lose = {len(engine.calls) + 1}
        ours = corral.run_episodes(cluster, Walker(), episodes=9)
    with corral.Pool(Rooms, 4, seed=0, backend="serial", **ROOMS) as pool:
        assert_same_episodes(ours, corral.run_episodes(pool, Walker(), episodes=9))
    assert sum(len(one.faults) for one in ours) == 2


class Breaks(Rooms):
    def step(self, action):
        if self.np_random.random() < 0.2:
            raise ValueError("a broken joint")
        return super().step(action)


def test_an_env_that_raises_is_named_by_slot_site_and_node():
    with cluster_of(Breaks, 4, 2) as cluster:
        collector = corral.Collector(cluster, Walker())
        text = r"slot \d, worker 0, site \d, node [ab]: ValueError in step"
        with pytest.raises(EnvError, match=text) as caught:
            collector.collect(50)
    for fault in caught.value.faults:
        assert fault.slot in cluster.shards[fault.site]


class Exits(Rooms):
    """Ends its worker in its second episode."""

    episodes = 0

    def set_task(self, task):
        super().set_task(task)
        self.episodes += 1

    def step(self, action):
        if self.episodes == 2:
            os._exit(3)
        return super().step(action)


def test_a_worker_that_dies_at_a_site_is_named_by_slot_site_and_node():
    """Also in rollouts that go on, and with a carry."""
    options = dict(ROOMS, backend="process", workers=2, on_fault="restart")
    envs = [Rooms, Rooms, Rooms, Exits]
    with cluster_of(envs, 4, 2, cpus_per_site=2, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        rollout = collector.collect(30)
        (fault,) = rollout.faults
        assert cluster.faults == (fault,)
        assert (fault.kind, fault.slot, fault.site, fault.node) == ("died", 3, 1, "b")
        assert not rollout.valid[:, 3].any() and rollout.valid[:, :3].all()
        assert collector.collect(2).valid.all()


def no_env():
    raise ValueError("no licence")


def test_an_env_that_cannot_be_built_is_named_by_slot_site_and_node():
    text = r"slot 3, worker 0, site 1, node b could not be built: .*no licence"
    with pytest.raises(StartError, match=text):
        cluster_of([Rooms, Rooms, Rooms, no_env], 4, 2)


# Nodes that come and go ---------------------------------------------------------------


def test_a_node_that_joins_is_used_after_the_next_end_of_episodes():
    engine = InProcess({"a": 1})
    with cluster_of(Rooms, 6, None, engine, **ROOMS) as cluster:
        collector = corral.Collector(cluster, Walker())
        ours = [collector.collect(8)]
        engine.cpus["b"] = 1
        ours.append(collector.collect(8))
        assert len(cluster.shards) == 1
        collector.end_episodes(5)
        assert len(cluster.shards) == 2
        ours.append(collector.collect(8))
    with corral.Pool(Rooms, 6, seed=0, backend="serial", **ROOMS) as pool:
        collector = corral.Collector(pool, Walker())
        theirs = [collector.collect(8), collector.collect(8)]
        collector.end_episodes(5)
        assert_same_rollouts(ours, [*theirs, collector.collect(8)])


def test_sites_whose_number_was_asked_for_move_to_it():
    engine = InProcess({"a": 3})
    with cluster_of(Rooms, 6, 3, engine, **ROOMS) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        engine.cpus["b"] = 3
        collector.end_episodes(1)
        collector.collect(2)
        assert sorted(site.node for site in cluster._links.sites) == ["a", "a", "b"]


# Refusals -----------------------------------------------------------------------------


def test_more_sites_than_slots_are_refused():
    with pytest.raises(OptionError, match="sites is 5, and there are 4 slots"):
        cluster_of("CartPole-v1", 4, 5)


def test_too_few_cpus_are_refused():
    with pytest.raises(
        ClusterError, match=r"too few free CPUs: 3 sites of 2 CPUs.*2 fit.*2, 2"
    ):
        cluster_of("CartPole-v1", 4, 3, InProcess({"a": 2, "b": 2}), cpus_per_site=2)


class GivesBack(InProcess):
    """Other jobs have all CPUs until the nodes have been looked at `looks` times."""

    looks = 3

    def nodes(self):
        self.looks -= 1
        found = super().nodes()
        return [one._replace(free=0.0) for one in found] if self.looks > 0 else found


def test_cpus_that_are_given_back_are_waited_for():
    engine = GivesBack({"a": 2})
    with cluster_of("CartPole-v1", 4, 2, engine) as cluster:
        assert len(cluster.shards) == 2
    engine.looks = 3
    assert map_on("auto", str, "ab", CrewOptions(backend="serial"), engine) == [
        "a",
        "b",
    ]


def test_cpus_that_stay_in_use_are_not_waited_for_for_long(monkeypatch):
    monkeypatch.setattr(room, "OPEN_SECONDS", 0.0)
    engine = GivesBack({"a": 2})
    with pytest.raises(ClusterError, match=r"too few free CPUs.*nodes: 0\."):
        cluster_of("CartPole-v1", 4, 2, engine)


def test_too_few_cpus_in_all_are_refused_at_once():
    engine = GivesBack({"a": 2})
    with pytest.raises(ClusterError, match="too few free CPUs"):
        cluster_of("CartPole-v1", 4, 3, engine)
    assert engine.looks == 2


class FreesLate(InProcess):
    """An ended host keeps its CPUs for some looks at the nodes."""

    def __post_init__(self):
        super().__post_init__()
        self.ended = []

    def nodes(self):
        found = super().nodes()
        self.ended = [(name, looks - 1) for name, looks in self.ended if looks]
        kept = [name for name, _ in self.ended]
        return [one._replace(free=one.free - kept.count(one.id)) for one in found]

    def end(self, link):
        self.ended.append((self.hosts[link.handle][1], 3))
        super().end(link)


def test_a_closed_cluster_has_given_its_cpus_back():
    engine = FreesLate({"a": 2, "b": 2})
    with cluster_of("CartPole-v1", 4, 4, engine):
        assert [node.free for node in engine.nodes()] == [0, 0]
    assert not engine.ended and [node.free for node in engine.nodes()] == [2, 2]


def test_other_versions_are_refused_by_name():
    engine = InProcess(packages={"b": {"numpy": "1.0", "torch": ""}})
    text = r"numpy is .* here and 1\.0 on b\n.*torch is .* and missing on b"
    with pytest.raises(ClusterError, match=text):
        cluster_of("CartPole-v1", 4, 2, engine)
    assert engine.closed and not engine.hosts


def test_a_closed_cluster_says_so():
    cluster = cluster_of("CartPole-v1", 2, 1)
    cluster.close()
    cluster.close()
    with pytest.raises(ClosedError):
        corral.run_episodes(cluster, Tilt(), episodes=1)


def test_a_lost_site_has_no_stats_until_it_starts_again():
    engine = InProcess()
    with cluster_of(Rooms, 4, 2, engine, on_node_loss="restart", **ROOMS) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        engine.lose = {len(engine.calls)}
        lost, there = cluster.stats().sites
        assert (lost.pid, lost.pool) == (0, None) and there.pool is not None
        rollout = collector.collect(2)
        assert not rollout.valid[:, :2].any() and rollout.valid[:, 2:].all()
        assert cluster.stats().sites[0].pid and collector.collect(2).valid.all()


def test_stats_name_nodes_and_sites():
    with cluster_of(Rooms, 4, 2, **ROOMS) as cluster:
        corral.Collector(cluster, Walker()).collect(2)
        stats = cluster.stats()
    assert [one.node for one in stats.sites] == ["a", "b"]
    assert ": slots 2 to 3, 4 calls" in str(stats)
    assert stats.sites[0].pool is not None and np.isfinite(stats.sites[0].busy_seconds)
