"""Threads as workers: chosen where they pay, as many as asked for, exact as ever."""

from __future__ import annotations

import functools
import threading
import time
import warnings

import gymnasium
import numpy as np
import pytest

import corral

SLOTS = 6


class Sleeper(gymnasium.Env):
    """Waits for a while, as for a server, and tells which thread waited."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, nap=0.005, threads=True):
        self.metadata = {"corral.threads": threads}
        self.nap = nap

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2), {}

    def step(self, action):
        time.sleep(self.nap)
        self.thread = threading.get_ident()
        observation = self.np_random.random(2) + action
        ended = bool(observation[0] > 3.9)
        return observation, float(action), ended, False, {}


def stepped(envs, steps=20, seed=3):
    """Observations and rewards, with actions drawn from the seed."""
    envs.action_space.seed(seed)
    observations, _ = envs.reset(seed=seed)
    rows = [observations]
    for _ in range(steps):
        observations, rewards, terminated, truncated, _ = envs.step(
            envs.action_space.sample()
        )
        rows += [observations, rewards, terminated, truncated]
    return [np.array(row) for row in rows]


def assert_same(rows, others):
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        np.testing.assert_array_equal(row, other)


# Chosen -------------------------------------------------------------------------------


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr("corral.engine.pool.options.usable_cores", lambda: 2)


def test_auto_gives_every_sleeper_that_declares_it_a_thread(two_cores):
    with corral.Pool(Sleeper, SLOTS) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("thread", SLOTS)
        assert pool.layout.computing < 0.5
        assert "of it computing" in pool.layout.reason
        assert "releases the GIL" in pool.layout.reason
        pool.reset()
        pool.step([0] * SLOTS)
        threads = set(pool.get_attr("thread"))
        assert len(threads) == SLOTS and threading.get_ident() not in threads


def test_auto_never_puts_an_env_in_threads_that_says_no(two_cores):
    with corral.Pool(functools.partial(Sleeper, threads=False), 3) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 3)
        assert "GIL" not in pool.layout.reason


class Waiter(Sleeper):
    """Says nothing about threads."""

    def __init__(self, nap=0.02):
        super().__init__(nap)
        self.metadata = {}


def test_auto_gives_a_thread_to_each_env_that_was_seen_to_wait(two_cores):
    with corral.Pool(Waiter, 16) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("thread", 16)
        assert "the env waits with the GIL released" in pool.layout.reason
        assert "did the same as alone" in pool.layout.sharing


def test_envs_that_wait_get_processes_where_threads_cannot_keep_a_deadline(two_cores):
    with corral.Pool(Waiter, 6, step_timeout=60.0) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 6)


class Muddled(Waiter):
    """Waits, and keeps its state in its class."""

    at = 0.0

    def step(self, action):
        Muddled.at += 1.0
        observation, *rest = super().step(action)
        return observation + Muddled.at, *rest


def test_envs_that_wait_and_disturb_each_other_get_a_process_each(two_cores):
    with corral.Pool(Muddled, 4) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 4)
        assert "one process per slot, since an env" in pool.layout.reason


def test_isolated_generators_go_one_at_a_time_so_threads_are_no_use(two_cores):
    with corral.Pool(Sleeper, 2, isolate_rng=True) as pool:
        assert pool.layout.backend == "process"


@pytest.mark.parametrize("workers", [1, 2, np.int64(5), SLOTS])
def test_as_many_threads_as_asked_for(workers):
    make = functools.partial(Sleeper, nap=0.0, threads=False)
    with corral.Pool(make, SLOTS, backend="thread", workers=workers) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("thread", workers)
        pool.reset()
        pool.step([0] * SLOTS)
        assert len(set(pool.get_attr("thread"))) == workers


def test_a_number_of_workers_alone_means_processes_even_where_threads_are_declared():
    with corral.Pool(Sleeper, 2, workers=2) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 2)


# Exact --------------------------------------------------------------------------------

PLACES = [
    {"backend": "thread", "workers": 2},
    {"backend": "thread", "workers": SLOTS},
    {"backend": "process", "workers": 2},
]


def on_every_backend(make):
    """The rows of a serial run, then those of every other place."""
    for place in ({"backend": "serial"}, *PLACES):
        envs = corral.make(make, SLOTS, **place)
        try:
            yield stepped(envs)
        finally:
            envs.close()


def test_sleepers_do_the_same_on_every_backend():
    serial, *others = on_every_backend(functools.partial(Sleeper, nap=1e-4))
    for rows in others:
        assert_same(serial, rows)


def test_mujoco_does_the_same_on_every_backend():
    pytest.importorskip("mujoco", reason="needs mujoco")
    make = functools.partial(gymnasium.make, "Ant-v5", max_episode_steps=7)
    serial, *others = on_every_backend(make)
    for rows in others:
        assert_same(serial, rows)


class Recurrent(gymnasium.Env):
    """Its next state is what an ONNX model says."""

    metadata = {"corral.threads": True}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (16,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (16,), np.float32)

    def __init__(self, model):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.standard_normal(16).astype(np.float32)
        return self.state, {}

    def step(self, action):
        (self.state,) = self.session.run(None, {"x": self.state + action})
        return self.state, float(self.state.sum()), False, False, {}


def tanh_of_matmul() -> bytes:
    """x -> tanh(x @ weights), as ONNX."""
    with warnings.catch_warnings():  # the packages warn about one another on import
        warnings.simplefilter("ignore")
        pytest.importorskip("onnxruntime", reason="needs onnxruntime")
        onnx = pytest.importorskip("onnx", reason="needs onnx, to write the model")
    random = np.random.default_rng(0)
    weights = (random.standard_normal((16, 16)) / 4).astype(np.float32)
    vector = functools.partial(
        onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[16]
    )
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "weights"], ["product"]),
            onnx.helper.make_node("Tanh", ["product"], ["y"]),
        ],
        "tanh_of_matmul",
        [vector("x")],
        [vector("y")],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def test_onnx_models_do_the_same_on_every_backend():
    serial, *others = on_every_backend(functools.partial(Recurrent, tanh_of_matmul()))
    for rows in others:
        assert_same(serial, rows)
