"""`corral.meta`: the loop of pomdp-baselines' forks runs as it is, with equal data."""

from __future__ import annotations

import functools
import os

import numpy as np
import psutil
import pytest
from gymnasium.wrappers import TimeLimit

torch = pytest.importorskip("torch", reason="agents need torch")

from corral import meta  # noqa: E402
from corral.errors import EnvError, OptionError, OrderError  # noqa: E402
from corral.zoo.meta import point_robot  # noqa: E402

TASKS = {"num_train_tasks": 5, "num_eval_tasks": 2}
POINT = ("PointRobotSparse-v0", 2)


class Agent:
    """As pomdp-baselines' agents: `act(obs)`, or with an internal state."""

    def __init__(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.mlp = torch.nn.Linear(3, 2)
            self.rnn = torch.nn.GRUCell(3 + 2 + 1, 4)
            self.head = torch.nn.Linear(4, 2)

    def get_initial_info(self):
        return torch.zeros(1, 2), torch.zeros(1, 1), torch.zeros(1, 4)

    def act(self, obs, prev_internal_state=None, prev_action=None, reward=None, **_):
        if prev_internal_state is None:
            return torch.tanh(self.mlp(obs) + torch.randn(1, 2)), None, None, None
        assert prev_action.shape == (1, 2) and reward.shape == (1, 1)
        inputs = torch.cat([prev_action, reward, obs], -1)
        state = self.rnn(inputs, prev_internal_state)
        drawn = torch.tanh(self.head(state) + torch.randn(1, 2))
        return (drawn, None, None, None), state


class Storage:
    """Keeps what it was given."""

    def __init__(self):
        self.rows, self.whole = [], []

    def add_sample(self, **columns):
        self.rows.append(columns)

    def add_episode(self, **columns):
        self.whole.append(columns)


class Learner(meta.ParallelRollouts):
    """The attributes that pomdp-baselines' learner has."""

    def __init__(self, arch):
        self.agent, self.agent_arch = Agent(), arch
        self.policy_storage = Storage()
        self.seed, self.act_dim, self.act_continuous = 3, 2, True
        self.train_env = meta.make_env(*POINT, seed=0, **TASKS)
        self.train_tasks = self.train_env.train_tasks
        self.max_trajectory_len = self.train_env.horizon_bamdp
        self._n_env_steps_total = self._n_rollouts_total = 0


@pytest.fixture(scope="module")
def workers():
    with meta.make_parallel_env(
        *POINT,
        num_workers=3,
        seed=0,
        pool={"backend": "process", "workers": 2},
        **TASKS,
    ) as made:
        yield made


@pytest.mark.parametrize("arch", ["markov", "memory", "memory_markov"])
def test_parallel_and_sequential_collection_store_equal_data(arch, workers):
    alone, together = Learner(arch), Learner(arch)
    for random_actions in (True, False):
        steps = alone.collect_rollouts_parallel(4, random_actions)
        assert steps == 4 * 120
        assert together.collect_rollouts_parallel(4, random_actions, workers) == steps
    assert alone._n_env_steps_total == 960 and alone._n_rollouts_total == 8
    one, other = alone.policy_storage, together.policy_storage
    assert len(one.rows) == (960 if arch == "markov" else 0)
    assert len(one.whole) == (0 if arch == "markov" else 8)
    pairs = zip(one.rows + one.whole, other.rows + other.whole, strict=True)
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


class AgentElsewhere(torch.nn.Module):
    """Its weights are on another device; it draws its actions here."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, device="meta"))

    def get_initial_info(self):
        return (torch.zeros(1, width, device="meta") for width in (2, 1, 4))

    def act(self, obs, prev_internal_state=None, reward=None, **_):
        assert obs.is_meta and reward.is_meta
        return (torch.rand(1, 2), None, None, None), prev_internal_state


def test_an_agent_sees_tensors_of_its_own_device():
    learner = Learner("memory")
    learner.agent = AgentElsewhere()
    assert learner.collect_rollouts_parallel(1) == 120


def test_tables_of_tasks_are_equal_everywhere(workers):
    env = meta.make_env(*POINT, seed=0, **TASKS)
    assert len(env.train_tasks) == 5 and len(env.eval_tasks) == 2 and env.n_tasks == 7
    assert np.array_equal(env.train_tasks, workers.train_tasks)
    assert np.array_equal(env.eval_tasks, workers.eval_tasks)
    other = meta.make_env(*POINT, seed=1, **TASKS)
    assert not np.array_equal(env.train_tasks, other.train_tasks)


def test_remotes_speak_as_pipes_do(workers):
    tasks = workers.train_tasks
    messages = [{"task": tasks[0]}, tasks[1], None]
    for remote, message in zip(workers.remotes, messages, strict=True):
        remote.send(("reset", message))
    assert [remote.recv().shape for remote in workers.remotes] == [(3,)] * 3
    for remote in workers.remotes:
        remote.send(("step", np.zeros(2)))
    obs, reward, done, info = workers.remotes[1].recv()
    assert obs.shape == (3,) and reward in (0.0, 1.0) and done is False
    assert info == {"done_mdp": False}
    with pytest.raises(OrderError, match="env 0 was sent 'step' before the answer"):
        workers.remotes[0].send(("step", np.zeros(2)))
    for remote in (workers.remotes[0], workers.remotes[2]):
        remote.recv()
    workers.remotes[0].send(("get_attr", "episodes"))
    assert workers.remotes[0].recv() == 2
    for odd in (("walk", None), ("reset",), "reset"):
        with pytest.raises(
            OptionError, match=r"env 0 was sent .*Commands: reset, step"
        ):
            workers.remotes[0].send(odd)


def test_remotes_may_answer_in_pairs():
    with meta.make_parallel_env(
        *POINT, num_workers=2, seed=0, pool={"backend": "serial"}, tagged=True, **TASKS
    ) as made:
        assert (made.num_envs, made.n_tasks) == (2, 7)
        remote = made.remotes[1]
        remote.send(("reset", {"task": made.train_tasks[0]}))
        kind, obs = remote.recv()
        assert kind == "obs" and obs.shape == (3,)
        remote.send(("step", {"action": np.ones(2)}))
        kind, (after, reward, done, info) = remote.recv()
        assert kind == "transition" and np.allclose(after[:2] - obs[:2], 0.1)
        assert (reward, done, info) == (0.0, False, {"done_mdp": False})
        remote.send(("get_attr", {"attr": "episodes"}))
        assert remote.recv() == ("attr", 2)
        remote.send(("seed", {"seed": 3}))
        assert remote.recv() == ("done", None)


def test_a_trial_ends_with_done_and_the_returns_of_its_episodes(workers):
    remote = workers.remotes[0]
    remote.send(("reset", {"task": workers.train_tasks[0]}))
    flags, inner = [remote.recv()[-1]], [False]
    done = False
    while not done:
        remote.send(("step", np.zeros(2)))
        obs, _, done, info = remote.recv()
        flags.append(obs[-1])
        inner.append(info["done_mdp"])
    assert np.flatnonzero(inner).tolist() == [60, 120]
    assert len(flags) == 121 and np.flatnonzero(flags).tolist() == [60, 120]
    assert info["trial_lengths"].tolist() == [60, 60] and info["TimeLimit.truncated"]


def test_one_env_has_the_four_values_of_old_gym():
    env = meta.make_env("Pendulum-V-v0", 1, seed=0)
    assert env.reset().shape == (1,) and env.horizon_bamdp == 200
    assert env.action_space.low == -1 and env.train_tasks == []
    obs, reward, done, _ = env.step([0.0])
    assert obs.shape == (1,) and reward <= 0 and done is False
    assert env.unwrapped._max_episode_steps == 200  # theirs evaluate so many steps
    env.close()


def test_a_task_that_the_env_rejects_is_told_with_its_slot(workers):
    with pytest.raises(EnvError, match="slot 2") as caught:
        workers.remotes[2].send(("reset", {"task": [1.0, 2.0, 3.0]}))
        workers.remotes[2].recv()
    assert "too many values to unpack" in str(caught.value)


def pid_of(env):
    return os.getpid()


def test_workers_end_with_their_manager():
    made = meta.make_parallel_env(*POINT, num_workers=2, pool={"backend": "process"})
    workers, pool = set(made.pool.apply(pid_of)), made.pool
    assert os.getpid() not in workers
    del made
    assert pool.closed and not any(map(psutil.pid_exists, workers))


class Fragile(point_robot.PointRobot):
    """Raises where its goal is on the left: always, or in the first such trial."""

    def __init__(self, mark=None):
        super().__init__()
        self._mark = mark

    def step(self, action):
        if self.get_task()[0] < 0 and not (self._mark and self._mark.exists()):
            if self._mark:
                self._mark.touch()
            raise LookupError("no way to the left")
        return super().step(action)


def collected(make, pool=None):
    """Data of four trials, one of them with a goal on the left."""
    with meta.make_parallel_env(make, 2, num_workers=2, seed=0, pool=pool) as workers:
        learner = Learner("memory")
        left, *right = sorted(learner.train_tasks, key=lambda goal: goal[0])
        assert left[0] < 0 < right[-1][0]
        learner._tasks = lambda root, count: [right[-1], left, right[-1], right[-1]]
        learner.collect_rollouts_parallel(4, True, workers)
    return learner.policy_storage.whole


def limited(mark=None):
    return TimeLimit(Fragile(mark), 60)


def test_a_trial_that_failed_once_is_run_again_and_stored_as_without_the_fault(
    tmp_path,
):
    restarts = {"on_fault": "restart", "backend": "process"}
    found = collected(functools.partial(limited, tmp_path / "mark"), restarts)
    expected = collected(point_robot.make)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_trial_that_always_fails_is_told_and_the_others_are_stored():
    restarts = {"on_fault": "restart", "backend": "process"}
    with pytest.warns(UserWarning, match="1 of 4 trials failed and are not stored"):
        found = collected(limited, restarts)
    assert [len(one["rewards"]) for one in found] == [120] * 3


class OldGym:
    """An env of gym 0.21."""

    def __init__(self):
        import gymnasium

        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.task, self.steps = 0.0, 0

    def reset_task(self, task):
        self.task = task

    def reset(self):
        self.steps = 0
        return np.array([self.task], np.float32)

    def step(self, action):
        self.steps += 1
        info = {"TimeLimit.truncated": True} if self.steps == 3 else {}
        return np.array([self.task], np.float32), self.task, self.steps == 3, info

    def close(self):
        pass


def test_envs_of_old_gym_are_translated_with_a_warning():
    with pytest.warns(UserWarning, match="OldGym has the interface of old gym"):
        env = meta.make_env(OldGym, 2)
    assert env.reset(task=0.5).tolist() == [0.5, 0.0]
    rows = [env.step(1) for _ in range(6)]
    assert [row[2] for row in rows] == [False] * 5 + [True]
    assert [row[0][1] for row in rows] == [0, 0, 1, 0, 0, 1]
    assert rows[-1][3]["trial_returns"].tolist() == [1.5, 1.5]
    assert isinstance(env.unwrapped, OldGym)
