"""Gymnasium's two vector envs, with its constructor arguments, on our workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from corral.api.gymnasium.env import CorralVectorEnv
from corral.api.gymnasium.errors import raise_env_exception
from corral.api.gymnasium.make import ObservationMode, mode_for, open_pool
from corral.api.pool_env import sent_raw
from corral.core import EnvSpec, Factory
from corral.engine.adapters.factories import one_per_slot
from corral.engine.keywords import check_count, checked_keywords
from corral.engine.layout.codec import codec_for
from corral.engine.pool import Pool
from corral.errors import FaultError, OptionError


class _DropIn(CorralVectorEnv):
    """Passes actions of a wrong shape to the env, as Gymnasium does."""

    _syntax = "gymnasium"

    def _open(
        self,
        env_fns: Iterable[Factory],
        copy: bool,
        observation_mode: ObservationMode,
        autoreset_mode: str | AutoresetMode,
        **options: Any,
    ) -> None:
        """Open the pool; an env's exception is raised as itself, as in Gymnasium."""
        self.env_fns = one_per_slot(env_fns)
        self.observation_mode = observation_mode
        mode = mode_for(autoreset_mode)
        try:
            pool, batched = open_pool(
                self.env_fns, None, autoreset_mode, observation_mode, **options
            )
        except FaultError as error:
            raise_env_exception(error, self._syntax)
        CorralVectorEnv.__init__(self, pool, batched, mode, copy, options.get("seed"))

    def _sent_raw(self, actions: Any) -> bool:
        return sent_raw(self.pool, lambda: iterate(self.action_space, actions))


class AsyncVectorEnv(_DropIn):
    """`gymnasium.vector.AsyncVectorEnv`, always in worker processes.

    Args:
        env_fns: one factory per slot.
        shared_memory: refuses custom spaces when True, as Gymnasium does; fixed-size
            spaces go through shared memory either way.
        copy: False to get views instead of copies.
        context: checked, but workers always start in a new interpreter.
        daemon: ignored; workers may have children and never outlive the parent.
        worker: must be None: Corral's workers run many slots, by another protocol.
        observation_mode: as in Gymnasium.
        autoreset_mode: as in Gymnasium.
        max_concurrency: largest number of worker processes.
        **options: anything else that `corral.Pool` takes.
    """

    _logs_faults = True

    @checked_keywords(
        onward=Pool,
        refused={
            "autoreset": "it is called autoreset_mode here",
            "backend": "it always uses processes; use SyncVectorEnv, or corral.make",
        },
    )
    def __init__(
        self,
        env_fns: Iterable[Factory],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Any = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        **options: Any,
    ) -> None:
        if context is not None:
            multiprocessing.get_context(context)  # raises ValueError for an unknown one
        if worker is not None:
            raise OptionError(
                "`worker` is not supported: Gymnasium's workers run one env each over "
                "a pipe, Corral's run many slots through shared memory. Move its code "
                "to a gymnasium.Wrapper, or to `worker_init`."
            )
        self.shared_memory = shared_memory
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.max_concurrency = max_concurrency
        if max_concurrency is not None:
            check_count("`max_concurrency`", max_concurrency)
            options.setdefault("workers", max_concurrency)
        self._open(
            env_fns,
            copy,
            observation_mode,
            autoreset_mode,
            check=_refuse_custom_spaces if shared_memory else None,
            backend="process",
            name="AsyncVectorEnv",
            own_processes=True,
            **options,
        )


class SyncVectorEnv(_DropIn):
    """`gymnasium.vector.SyncVectorEnv`, always in the caller's thread, with `.envs`."""

    @checked_keywords(
        onward=Pool,
        refused={
            "autoreset": "it is called autoreset_mode here",
            "backend": "it always runs here; use AsyncVectorEnv, or corral.make",
        },
    )
    def __init__(
        self,
        env_fns: Iterable[Factory],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        options.update(backend="serial", name="SyncVectorEnv")
        self._open(env_fns, copy, observation_mode, autoreset_mode, **options)

    @property
    def envs(self) -> list[Any]:
        """The environments; `envs.envs[0] = Wrapper(...)` replaces one."""
        return self.pool.envs

    @envs.setter
    def envs(self, envs: Iterable[Any]) -> None:
        self.pool.envs[:] = envs


def _refuse_custom_spaces(spec: EnvSpec) -> None:
    if _has_custom(spec.observation_space):
        raise OptionError(
            "Using `AsyncVector(..., shared_memory=True)` caused an error, you can "
            "disable this feature with `shared_memory=False` however this is slower. "
            f"The observation space {spec.observation_space} has no codec; "
            "corral.register_codec adds one."
        )


def _has_custom(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is neither of fixed size nor one of Gymnasium's own."""
    if isinstance(space, spaces.Dict):
        return any(_has_custom(part) for part in space.values())
    if isinstance(space, spaces.Tuple):
        return any(_has_custom(part) for part in space)
    known = isinstance(
        space, (spaces.Text, spaces.Graph, spaces.Sequence, spaces.OneOf)
    )
    return not known and codec_for(space).mailed > 0
