"""What a caller can ask of a pool, checked before anything is done about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import NO_TASK, EnvSpec
from corral.engine.adapters import isolation as verdicts
from corral.engine.adapters.team import TEAM_KEY
from corral.engine.faults.restart_limits import RestartBudget, RestartLimits
from corral.engine.layout.action_check import ActionCheck
from corral.engine.pool.recovery import FaultPolicy
from corral.engine.worker.autoreset import MODES
from corral.errors import OptionError, SpacesDiffer


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


def fault_policy(
    on_fault: str,
    on_timeout: str | None,
    max_restarts: int,
    restarts_per_minute: int,
) -> FaultPolicy:
    """Which faults end in a restart, and how often."""
    on_timeout = on_fault if on_timeout is None else on_timeout
    for name, value in (("on_fault", on_fault), ("on_timeout", on_timeout)):
        if value not in ("raise", "restart"):
            raise OptionError(f'{name} is {value!r}; choose "raise" or "restart"')
    counts = {"max_restarts": max_restarts, "restarts_per_minute": restarts_per_minute}
    for name, count in counts.items():
        if not _is_number(count) or count != int(count) or count < 1:
            raise OptionError(f"{name} is {count!r}; it must be an integer >= 1")
    budget = RestartBudget(RestartLimits(max_restarts, restarts_per_minute))
    return FaultPolicy(on_fault == "restart", on_timeout == "restart", budget)


def process_reasons(isolation: str | None, **asked: Any) -> str:
    """Which of these options need processes, as the caller wrote them; "" for none."""
    for name in ("start_timeout", "step_timeout", "reset_timeout"):
        seconds = asked[name]
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise OptionError(f"{name} is {seconds!r}; it must be seconds > 0, or None")
    limit = asked["memory_limit"]
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise OptionError(f"memory_limit is {limit!r}; it must be bytes > 0, or None")
    if limit is not None and isolation != "slot":
        raise OptionError(
            "memory_limit is kept by giving a slot a new process, so every slot needs "
            'one of its own: add isolation="slot"'
        )
    wanted = [
        f"{name}={value!r}"
        for name, value in asked.items()
        if value is not None and value != "raise"
    ]
    return ", ".join(wanted)


def own_process_reason(spec: EnvSpec) -> str:
    """Why every slot got a process of its own, though nobody asked for that."""
    declared = spec.metadata.get(verdicts.ISOLATION_KEY)
    said = f'metadata["{verdicts.ISOLATION_KEY}"] is "{declared}"'
    saved = "`corral doctor --save` found that envs disturb each other"
    return f"one process per slot, since {said if declared else saved}"


def closing_time(seconds: Any) -> float:
    """How long envs may take to finish."""
    if not _is_number(seconds) or not seconds >= 0:
        raise OptionError(f"close_timeout is {seconds!r}; it must be seconds >= 0")
    return float(seconds)


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

    def at(self, position: int) -> tuple[int, dict[str, Any]]:
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
