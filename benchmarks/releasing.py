"""Environments that leave the GIL to others, as factories a worker can import.

They wait (for a server), or compute in C with the GIL released (a hash, an ONNX model).
None of them says so by itself: `declared` makes a factory whose envs do.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium import spaces
from workloads import FixedWork

MESSAGE = bytes(16)


def declared(factory: Callable[[], gymnasium.Env]) -> Callable[[], gymnasium.Env]:
    """A factory whose envs say that they release the GIL."""
    return functools.partial(_declare, factory)


def _declare(factory: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    env = factory()
    env.metadata = {**env.metadata, "corral.threads": True}
    return env


# --- computing in C ---------------------------------------------------------------


class Hashing(FixedWork):
    """Every step hashes the same number of bytes; hashlib releases the GIL."""

    def __init__(self, size: int) -> None:
        super().__init__(iterations=0)
        self._data = bytes(size)

    def step(self, action):
        hashlib.sha256(self._data).digest()
        return super().step(action)


def make_hashing(size: int) -> gymnasium.Env:
    return Hashing(size)


@functools.cache
def bytes_for(microseconds: float) -> int:
    """How many bytes take so long to hash on this machine; measured once."""
    trial = bytes(200_000)
    times = []
    for _ in range(15):
        began = time.perf_counter()
        hashlib.sha256(trial).digest()
        times.append(time.perf_counter() - began)
    return round(len(trial) * microseconds * 1e-6 / statistics.median(times))


class Inference(gymnasium.Env):
    """Every step asks an ONNX model for what comes next."""

    def __init__(self, model: bytes, width: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self.observation_space = spaces.Box(-1.0, 1.0, (width,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._rows = np.zeros((16, width), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._rows[:] = self.np_random.random(self._rows.shape)
        return self._rows[0].copy(), {}

    def step(self, action):
        (rows,) = self._session.run(None, {"x": self._rows})
        self._rows[1:] = rows[:-1]
        self._steps += 1
        return rows[-1].copy(), 0.0, False, self._steps >= 1_000, {}


def make_inference(model: bytes, width: int) -> gymnasium.Env:
    return Inference(model, width)


def inference(width: int = 256, layers: int = 8) -> Callable[[], gymnasium.Env]:
    """A factory around a model of dense layers; needs onnx and onnxruntime."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(layers):
        values = random.standard_normal((width, width)) / np.sqrt(width)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"]))
        last = f"y{layer}"
        nodes.append(helper.make_node("Tanh", [f"h{layer}"], [last]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, width])
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return functools.partial(make_inference, model.SerializeToString(), width)


# --- waiting for a server ---------------------------------------------------------


class Remote(FixedWork):
    """Every step sends a message to a server and waits for the answer."""

    def __init__(self, port: int) -> None:
        super().__init__(iterations=0)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def step(self, action):
        self._socket.sendall(MESSAGE)
        self._socket.recv(len(MESSAGE), socket.MSG_WAITALL)
        return super().step(action)

    def close(self):
        self._socket.close()


def make_remote(port: int) -> gymnasium.Env:
    return Remote(port)


@functools.cache
def echo_port(seconds: float) -> int:
    """The port of a server that echoes after so long; it ends with this process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=run_echo, args=(seconds, theirs), daemon=True).start()
    return ours.recv()


def run_echo(seconds: float, pipe) -> None:
    """The body of the server's process."""

    async def echo(reader, writer):
        try:
            while True:
                message = await reader.readexactly(len(MESSAGE))
                await asyncio.sleep(seconds)
                writer.write(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
