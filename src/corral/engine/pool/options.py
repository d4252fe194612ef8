"""What a caller can ask of a pool, checked before anything is done about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK, Autoreset, EnvSpec
from corral.engine.adapters import isolation as verdicts
from corral.engine.adapters.factories import Wrap
from corral.engine.adapters.team import TEAM_KEY
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment
from corral.engine.faults.restart_limits import RestartBudget, RestartLimits
from corral.engine.layout.action_check import ActionCheck
from corral.engine.worker.autoreset import MODES
from corral.engine.worker.commands import ShardOptions
from corral.errors import Fault, OptionError, SpacesDiffer


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
    """What `check_actions=True` holds actions against."""
    if TEAM_KEY in spec.metadata:
        raise OptionError(
            "check_actions=True is for envs with one agent: here the actions of agents "
            "that do not act mean nothing, and may be anything. Wrap the env in "
            "pettingzoo.utils.wrappers.AssertOutOfBoundsWrapper, which is asked for "
            "each action that is taken"
        )
    return ActionCheck(spec.action_space)


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How an API differs from the pool's own behaviour."""

    bare_resets: bool = False
    """Episodes after the first start without a seed, as Gymnasium's do."""
    wants_reset: bool = True
    """Whether stepping a slot that was never reset is refused here, or by the env."""
    agree: Callable[[list[EnvSpec]], EnvSpec] = same_spaces
    """The one spec for all slots, or SpacesDiffer."""
    empty_finals: bool = True
    """Whether `final_infos` has empty ones as well."""
    own_processes: bool = False
    """Whether it stands for a class with a process per env: `workers` is a wish."""


@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """Which faults end in a restart, and how often."""

    deaths: bool = False
    hangs: bool = False
    budget: RestartBudget | None = None

    def recovers(self, fault: Fault, retired: bool) -> bool:
        """Whether another worker takes the place of this one."""
        return retired or (self.hangs if fault.kind == "hung" else self.deaths)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What a pool is asked for beside its envs: `corral.Pool` says what each means.

    It is checked when it is made. `dataclasses.replace` makes one for another pool.
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
        mode_of(self.autoreset)
        if self.seed is not None:
            root_seed(self.seed)
        info_choice(self.infos)
        if not _is_number(self.close_timeout) or not self.close_timeout >= 0:
            raise OptionError(
                f"close_timeout is {self.close_timeout!r}; it must be seconds >= 0"
            )
        self._check_faults()
        self._check_limits()
        self._check_batched()

    def _check_faults(self) -> None:
        on_timeout = self.on_fault if self.on_timeout is None else self.on_timeout
        for name, value in (("on_fault", self.on_fault), ("on_timeout", on_timeout)):
            if value not in ("raise", "restart"):
                raise OptionError(f'{name} is {value!r}; choose "raise" or "restart"')
        for name in ("max_restarts", "restarts_per_minute"):
            count = getattr(self, name)
            if not _is_number(count) or count != int(count) or count < 1:
                raise OptionError(f"{name} is {count!r}; it must be an integer >= 1")

    def _check_limits(self) -> None:
        for name in ("start_timeout", "step_timeout", "reset_timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not (_is_number(seconds) and seconds > 0):
                raise OptionError(
                    f"{name} is {seconds!r}; it must be seconds > 0, or None"
                )
        limit = self.memory_limit
        if limit is not None and not (_is_number(limit) and limit > 0):
            raise OptionError(
                f"memory_limit is {limit!r}; it must be bytes > 0, or None"
            )
        if limit is not None and self.isolation != "slot":
            raise OptionError(
                "memory_limit is kept by giving a slot a new process, so every slot "
                'needs one of its own: add isolation="slot"'
            )

    def _check_batched(self) -> None:
        for name in ("isolate_rng", "memory_limit"):
            value = getattr(self, name)
            if self.batched and value:
                raise OptionError(
                    f"{name}={value!r} is kept slot by slot, and batched=True has all "
                    "slots of a worker in one env; leave out one of the two"
                )

    def fault_policy(self) -> FaultPolicy:
        """Which faults end in a restart, and how often; counts from the start."""
        on_timeout = self.on_fault if self.on_timeout is None else self.on_timeout
        limits = RestartLimits(self.max_restarts, self.restarts_per_minute)
        return FaultPolicy(
            deaths=self.on_fault == "restart",
            hangs=on_timeout == "restart",
            budget=RestartBudget(limits),
        )

    def needs_processes(self) -> str:
        """Which of these only processes can give, as the caller wrote them."""
        names = [*("start_timeout", "step_timeout", "reset_timeout")]
        names += [*("on_fault", "on_timeout", "memory_limit")]
        asked = ((name, getattr(self, name)) for name in names)
        return ", ".join(
            f"{name}={value!r}"
            for name, value in asked
            if value is not None and value != "raise"
        )

    def assignment(
        self, factories: Sequence[Any], policy: FaultPolicy, seeded: bool
    ) -> Assignment:
        """What an executor is told; who runs what is decided later."""
        return Assignment(
            factories=factories,
            shards=[],
            options=ShardOptions(
                root_seed=root_seed(self.seed),
                seeded=seeded,
                infos=info_choice(self.infos),
                sample_task=self.sample_task,
                isolate_rng=self.isolate_rng,
                restarts=policy.budget if policy.deaths else None,
                memory_limit=self.memory_limit,
                batched=self.batched,
            ),
            worker_init=self.worker_init,
            per_worker=self.per_worker,
            shared=dict(self.shared or {}),
            threads_per_worker=self.threads_per_worker,
            devices=tuple(self.devices),
            cores=usable_cores(),
            start_timeout=self.start_timeout,
            step_timeout=self.step_timeout,
            reset_timeout=self.reset_timeout,
            close_timeout=float(self.close_timeout),
            needs_processes=self.needs_processes(),
        )


def own_process_reason(spec: EnvSpec) -> str:
    """Why every slot got a process of its own, though it was not asked for."""
    declared = spec.metadata.get(verdicts.ISOLATION_KEY)
    said = f'metadata["{verdicts.ISOLATION_KEY}"] is "{declared}"'
    saved = "`corral doctor --save` found that envs disturb each other"
    return f"one process per slot, since {said if declared else saved}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Episodes:
    """What `send_reset` says about each slot's episode."""

    def __init__(
        self,
        count: int,
        seeds: Sequence[int | None] | None,
        options: Any,
        tasks: Sequence[Any] | None,
    ) -> None:
        for name, values in (("seeds", seeds), ("tasks", tasks)):
            if values is not None and len(values) != count:
                raise OptionError(
                    f"{len(values)} {name} for {count} slots; one for each"
                )
        listed = options is not None and not isinstance(options, dict)
        if listed and len(options) != count:
            raise OptionError(f"{len(options)} options for {count} slots; one for each")
        self._seeds = None if seeds is None else [_whole(seed) for seed in seeds]
        self._options = options
        self._tasks = tasks

    def by_slot(
        self, slots: NDArray[np.intp]
    ) -> tuple[list[int], dict[int, dict[str, Any]]]:
        """The seeds for the block, and by slot what goes by mail."""
        seeds, requests = [], {}
        for position, slot in enumerate(slots.tolist()):
            seed, message = self._at(position)
            seeds.append(seed)
            if message:
                requests[slot] = message
        return seeds, requests

    def _at(self, position: int) -> tuple[int, dict[str, Any]]:
        """The seed for the block, and what goes by mail."""
        message: dict[str, Any] = {}
        seed = None if self._seeds is None else self._seeds[position]
        number = -1
        if seed is not None:
            if seed >> 63:
                message["seed"] = seed
            else:
                number = seed
        options = self._options
        if options is not None and not isinstance(options, dict):
            options = options[position]
        if options is not None:
            message["options"] = options
        if self._tasks is not None and self._tasks[position] is not NO_TASK:
            message["task"] = self._tasks[position]
        return number, message


def _whole(seed: Any) -> int | None:
    """One of a list of seeds: 1.5 would quietly be the episode of 1."""
    if seed is None or isinstance(seed, (int, np.integer)):
        return None if seed is None else int(seed)
    raise OptionError(f"one of the seeds is {seed!r}; it must be an integer or None")


def mode_of(autoreset: str) -> int:
    """The number of an autoreset mode."""
    if autoreset not in MODES:
        raise OptionError(
            f"autoreset is {autoreset!r}; choose one of {', '.join(MODES)}"
        )
    return MODES[autoreset]


def info_choice(infos: str | Sequence[str]) -> str | tuple[str, ...]:
    """Which infos are kept."""
    if isinstance(infos, str):
        if infos not in ("all", "final", "none"):
            raise OptionError(
                f'infos is {infos!r}; choose "all", "final", "none" or a list of keys'
            )
        return infos
    return tuple(infos)


def root_seed(seed: int | None) -> int:
    """The seed given, or one drawn so that it can be told afterwards."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    given: object = seed
    whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    if not whole or seed < 0:
        raise OptionError(f"seed is {seed!r}; it must be an integer >= 0")
    return int(seed)
