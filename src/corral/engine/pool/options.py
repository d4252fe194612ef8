"""The options of a pool, checked before anything is built; limits of batched envs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from corral.core import NO_TASK, Autoreset, EnvSpec
from corral.engine.adapters.batched import AUTORESET_KEY, STEP_MASK_KEY
from corral.engine.adapters.factories import Wrap
from corral.engine.adapters.task_delivery import TaskBy, check_task_by
from corral.engine.adapters.team import TEAM_KEY
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment
from corral.engine.executors.devices import devices_for
from corral.engine.executors.placement import BACKENDS, ISOLATIONS, check_workers
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.keywords import (
    check_arrays,
    check_callable,
    check_choice,
    check_count,
    check_flag,
    check_limit,
    is_listed,
    is_number,
)
from corral.engine.layout.action_check import ActionCheck
from corral.engine.worker.autoreset import MODES, NEXT_STEP, SAME_STEP
from corral.engine.worker.commands import ShardOptions
from corral.errors import OptionError, SpacesDiffer

# How `sample_task` is called.
TASK_SIGNATURE = "sample_task(slot, episode, rng)"
_ON_FAULT = ("raise", "restart")
_ONE_BY_ONE = ("isolate_rng", "memory_limit", "task_by")
_FLAGS = ("isolate_rng", "copy", "debug", "batched", "check_actions")
_TIMEOUTS = ("start_timeout", "step_timeout", "reset_timeout")


def same_spaces(specs: list[EnvSpec], before: str = "", after: str = "") -> EnvSpec:
    """The first spec, if all slots have its spaces."""
    first = specs[0]
    for slot, spec in enumerate(specs):
        for name in ("observation_space", "action_space"):
            ours, theirs = getattr(spec, name), getattr(first, name)
            if ours != theirs:
                raise SpacesDiffer(
                    f"{before}slot {slot} has another {name.replace('_', ' ')} than "
                    f"slot 0: {ours} instead of {theirs}{after}"
                )
    return first


def limits_for(spec: EnvSpec) -> ActionCheck:
    """The check that `check_actions=True` asks for."""
    if TEAM_KEY in spec.metadata:
        raise OptionError(
            "check_actions=True is for envs with one agent: with several, the actions "
            "of agents that do not act may be anything. Wrap the env in "
            "pettingzoo.utils.wrappers.AssertOutOfBoundsWrapper, which checks each "
            "action that an agent takes"
        )
    return ActionCheck(spec.action_space)


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How an API differs from the pool's own behaviour.

    Attributes:
        bare_resets: Whether episodes after the first start without a seed, as
            Gymnasium's do.
        wants_reset: Whether the pool refuses to step a slot that was never reset, or
            the env does.
        agree: The one spec for all slots, or SpacesDiffer.
        empty_finals: Whether `final_infos` has empty ones as well.
        own_processes: Whether it replaces a class with a process per env: `workers` is
            a wish.
        first_slot: The number of slot 0 in seeds and tasks, where the pool has a part
            of the slots of a cluster.
    """

    bare_resets: bool = False
    wants_reset: bool = True
    agree: Callable[[list[EnvSpec]], EnvSpec] = same_spaces
    empty_finals: bool = True
    own_processes: bool = False
    first_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of a pool, which `corral.Pool` documents.

    They are checked when they are made. `dataclasses.replace` makes others from them.
    """

    env_kwargs: dict[str, Any] | None = None
    wrappers: Sequence[Wrap] = ()
    backend: str = "auto"
    workers: int | None = None
    isolation: str | None = "auto"
    autoreset: Autoreset = "same_step"
    seed: int | None = None
    infos: str | Sequence[str] = "all"
    isolate_rng: bool = False
    sample_task: Callable[[int, int, np.random.Generator], Any] | None = None
    task_by: TaskBy | None = None
    repeat: int = 1
    worker_init: Callable[[], Any] | None = None
    per_worker: Callable[[], Any] | None = None
    shared: Mapping[str, NDArray[Any]] | None = None
    threads_per_worker: int | None = 1
    devices: Sequence[str] = ()
    copy: bool = True
    debug: bool = False
    start_timeout: float | None = None
    reset_timeout: float | None = None
    step_timeout: float | None = None
    on_fault: str = "raise"
    on_timeout: str | None = None
    max_restarts: int = 100
    restarts_per_minute: int = 10
    memory_limit: int | None = None
    close_timeout: float = 10.0
    batched: bool = False
    check_actions: bool = False

    def __post_init__(self) -> None:
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        self._check_envs()
        self._check_workers()
        self._check_faults()
        for name in _ONE_BY_ONE if self.batched else ():
            if value := getattr(self, name):
                raise OptionError(
                    f"{name}={value!r} works slot by slot, and batched=True has all "
                    "slots of a worker in one env; leave out one of the two"
                )

    def _check_envs(self) -> None:
        if self.env_kwargs is not None and not isinstance(self.env_kwargs, Mapping):
            raise OptionError(
                f"env_kwargs is {self.env_kwargs!r:.200}; it must be a dict of keyword "
                "arguments for the env"
            )
        check_wrappers(self.wrappers)
        mode_of(self.autoreset)
        root_seed(self.seed)
        info_choice(self.infos)
        check_task_by(self.task_by)
        check_callable("sample_task", self.sample_task, TASK_SIGNATURE)
        check_count("repeat", self.repeat)

    def _check_workers(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        if self.isolation is not None:
            check_choice("isolation", self.isolation, ISOLATIONS)
        check_workers(self.workers, self.backend)
        check_callable("worker_init", self.worker_init, "worker_init()")
        check_callable("per_worker", self.per_worker, "per_worker()")
        check_arrays("shared", self.shared)
        if self.threads_per_worker is not None:
            check_count("threads_per_worker", self.threads_per_worker)
        devices_for(self.devices, must_exist=False)

    def _check_faults(self) -> None:
        close_timeout = self.close_timeout
        if not (is_number(close_timeout) and 0 <= close_timeout < math.inf):
            raise OptionError(
                f"close_timeout is {close_timeout!r}; it must be seconds >= 0"
            )
        late = self.on_fault if self.on_timeout is None else self.on_timeout
        check_choice("on_fault", self.on_fault, _ON_FAULT)
        check_choice("on_timeout", late, _ON_FAULT)
        for name in ("max_restarts", "restarts_per_minute"):
            count = getattr(self, name)
            whole = isinstance(count, float) and count.is_integer()
            check_count(name, int(count) if whole else count)
        for name in _TIMEOUTS:
            check_limit(name, getattr(self, name))
        check_limit("memory_limit", self.memory_limit, "bytes")
        if self.memory_limit is not None and self.isolation != "slot":
            raise OptionError(
                "memory_limit gives a slot a new process, so every slot needs one of "
                'its own: add isolation="slot"'
            )

    def _check_groups(self, slots: int) -> None:
        """Refuse groups of equal episodes that the slots do not fill."""
        if slots % self.repeat:
            fewer = slots - slots % self.repeat
            near = f"{fewer} or {fewer + self.repeat}" if fewer else f"{self.repeat}"
            raise OptionError(
                f"num_envs is {slots} and repeat is {self.repeat}: num_envs must be a "
                f"multiple of repeat; use num_envs={near}"
            )

    def restarts(self, kind: str) -> bool:
        """Whether a fault of this kind ends in a restart."""
        timed_out = kind == "hung" and self.on_timeout is not None
        return (self.on_timeout if timed_out else self.on_fault) == "restart"

    @property
    def restarts_workers(self) -> bool:
        """Whether any fault of a worker ends in a restart."""
        return self.restarts("died") or self.restarts("hung")

    def needs_processes(self) -> str:
        """The options that only processes support, as the caller wrote them."""
        names = (*_TIMEOUTS, "on_fault", "on_timeout", "memory_limit")
        asked = ((name, getattr(self, name)) for name in names)
        return ", ".join(
            f"{name}={value!r}"
            for name, value in asked
            if value is not None and value != "raise"
        )

    def assignment(
        self,
        factories: Sequence[Any],
        budget: RestartBudget,
        seeded: bool,
        first_slot: int = 0,
    ) -> Assignment:
        """What an executor is given; the shards are decided later."""
        self._check_groups(len(factories))
        return Assignment(
            factories=factories,
            shards=[],
            options=ShardOptions(
                root_seed=root_seed(self.seed),
                # Without seeds, the envs of a group would draw apart.
                seeded=seeded or self.repeat > 1,
                infos=info_choice(self.infos),
                sample_task=self.sample_task,
                task_by=self.task_by,
                repeat=self.repeat,
                isolate_rng=self.isolate_rng,
                restarts=budget if self.restarts("raised") else None,
                memory_limit=self.memory_limit,
                batched=self.batched,
                first_slot=first_slot,
            ),
            worker_init=self.worker_init,
            per_worker=self.per_worker,
            shared=dict(self.shared or {}),
            threads_per_worker=self.threads_per_worker,
            devices=devices_for(self.devices, must_exist=False),
            cores=usable_cores(),
            start_timeout=self.start_timeout,
            step_timeout=self.step_timeout,
            reset_timeout=self.reset_timeout,
            close_timeout=float(self.close_timeout),
            needs_processes=self.needs_processes(),
        )


def episode_requests(
    slots: list[int],
    seeds: Sequence[int | None] | None,
    options: Any,
    tasks: Sequence[Any] | None,
) -> tuple[list[int], dict[int, dict[str, Any]]]:
    """What `send_reset` says about each slot's episode.

    Returns:
        The seeds for the block, and by slot what goes by mail.
    """
    count = len(slots)
    for_all = options is None or isinstance(options, dict)
    given = {
        "seeds": [None] * count if seeds is None else seeds,
        "options": [options] * count if for_all else options,
        "tasks": [NO_TASK] * count if tasks is None else tasks,
    }
    for name, values in given.items():
        if len(values) != count:
            raise OptionError(
                f"{len(values)} {name} for {count} slots; give one for each"
            )
    numbers, requests = [], {}
    for slot, seed, asked, task in zip(slots, *given.values(), strict=True):
        if seed is not None and not isinstance(seed, (int, np.integer)):
            # 1.5 would quietly be the episode of 1.
            raise OptionError(
                f"the seed for slot {slot} is {seed!r}; it must be an integer or None"
            )
        number = -1 if seed is None else int(seed)
        message: dict[str, Any] = {}
        if number >> 63 and seed is not None:
            message["seed"], number = number, -1
        if asked is not None:
            message["options"] = asked
        if task is not NO_TASK:
            message["task"] = task
        numbers.append(number)
        requests[slot] = message
    return numbers, {slot: about for slot, about in requests.items() if about}


def mode_of(autoreset: str) -> int:
    """The number of an autoreset mode."""
    check_choice("autoreset", autoreset, MODES)
    return MODES[autoreset]


def check_wrappers(wrappers: Any) -> None:
    """Refuse what is not a list of functions."""
    if not is_listed(wrappers) or not all(map(callable, wrappers)):
        raise OptionError(
            f"wrappers is {wrappers!r:.200}; it must be a list of functions that take "
            "an env and return one"
        )


def info_choice(infos: str | Sequence[str]) -> str | tuple[str, ...]:
    """Which infos are kept."""
    if isinstance(infos, str):
        known = infos in ("all", "final", "none")
    else:
        known = is_listed(infos) and all(isinstance(key, str) for key in infos)
    if not known:
        raise OptionError(
            f'infos is {infos!r:.200}; choose "all", "final", "none" or a list of keys'
        )
    return infos if isinstance(infos, str) else tuple(infos)


def root_seed(seed: int | None) -> int:
    """The seed given, or a random one, which `pool.seed` shows."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    check_count("seed", seed, least=0)
    return int(seed)


_MODE_NAMES = {number: name for name, number in MODES.items()}


class BatchedEnvs:
    """Refuses what a pool's batched envs cannot do, before anything is sent.

    Args:
        spec: the spec of the envs.
        shards: the slots of each env.
    """

    def __init__(self, spec: EnvSpec, shards: Sequence[range]) -> None:
        self._shards = shards
        self._masks_steps = bool(spec.metadata.get(STEP_MASK_KEY))
        # The mode in which the env restarts episodes by itself, if it does.
        self._only = MODES.get(AutoresetMode(spec.metadata[AUTORESET_KEY]).name.lower())
        alone = "it restarts its episodes by itself"
        self._only_whole = {
            "step": "" if self._masks_steps else "its step takes no step_mask",
            "reset": "" if self._only is None else alone,
        }

    def check_mode(self, mode: int) -> None:
        """Refuse an autoreset mode that the env does not support."""
        name = _MODE_NAMES[mode]
        if self._only is not None and mode != self._only:
            raise OptionError(
                f"autoreset is {name!r}, but the batched env restarts its episodes by "
                f'itself; use autoreset="{_MODE_NAMES[self._only]}", or an env whose '
                'metadata["autoreset_mode"] is AutoresetMode.DISABLED'
            )
        if self._only is None and not self._masks_steps and mode != SAME_STEP:
            waits = "is reset" if mode == NEXT_STEP else "stays"
            raise OptionError(
                f"autoreset={name!r}: a slot whose episode has ended {waits} while "
                "others step, but the batched env is always stepped as a whole; use "
                'autoreset="same_step", or give its step a step_mask argument'
            )

    def check_options(self, restarts: bool, repeat: int) -> None:
        """Refuse what needs an env whose slots can be reset one by one."""
        what = 'on_fault="restart" begins the episode of one slot again'
        if not restarts:
            what = f"repeat={repeat} gives each slot the seed of its group"
        if (restarts or repeat > 1) and self._only is not None:
            raise OptionError(
                f"{what}, but the batched env restarts its episodes by itself; it "
                'needs one whose metadata["autoreset_mode"] is AutoresetMode.DISABLED'
            )

    def check_whole(self, slots: NDArray[np.intp], command: str) -> None:
        """Refuse to step or reset a part of a batch where only the whole can be."""
        reason, chosen = self._only_whole[command], set(slots.tolist())
        for worker, shard in enumerate(self._shards if reason else ()):
            part = chosen.intersection(shard)
            if part and len(part) < len(shard):
                raise OptionError(
                    f"slots {sorted(part)} are a part of worker {worker}'s batch "
                    f"({shard.start} to {shard.stop - 1}), and {command} is for the "
                    f"whole batch: {reason}"
                )
