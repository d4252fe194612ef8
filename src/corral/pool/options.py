"""What a caller can ask of a pool, checked before anything is done about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import NO_TASK, EnvSpec
from corral.errors import OptionError, SpacesDiffer
from corral.workers.autoreset import MODES


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


@dataclass(frozen=True, slots=True)
class FaceOptions:
    """How a face differs from the pool's own ways."""

    bare_resets: bool = False
    """Episodes after the first start without a seed, as Gymnasium's do."""
    wants_reset: bool = True
    """Whether stepping a slot that was never reset is refused here, or by the env."""
    agree: Callable[[list[EnvSpec]], EnvSpec] = same_spaces
    """The one spec for all slots, or SpacesDiffer."""


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
