"""What every player has: the program, its truth, and what was found wrong."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from corral.errors import (
    CorralError,
    EnvError,
    SpaceMismatch,
    StartError,
    WorkerDied,
    WorkerHung,
)
from corral.tools.testing.faulty_envs import OnPurpose
from tests.soak.programs.alone import ProcessState, clear
from tests.soak.programs.digests import digest
from tests.soak.programs.env import Doomed, build
from tests.soak.programs.kinds import DEADLY, HANGING, Kind
from tests.soak.programs.program import Program, task_for
from tests.soak.programs.shapes import sampled, space
from tests.soak.programs.truth import SlotModel, SlotRules

MAX_MISTAKES = 5
"""Mistakes after which a program is given up."""


class TooManyMistakes(Exception):
    """So many mistakes were found that looking further tells nothing."""


class ProgramPlay:
    """One program under way.

    Args:
        program: which.
        seeded: whether every episode has a seed of its own.
        together: whether the environments share a process, as in the caller's.
    """

    def __init__(
        self, program: Program, seeded: bool = True, together: bool = False
    ) -> None:
        self.program = program
        self.kind: Kind = program.kind
        self.rng = random.Random(program.seed)
        self.root = program.seed % 2**31
        self.obs_space = space(self.kind.obs)
        self.action_space = space(self.kind.action)
        self.mistakes: list[str] = []
        self._later: list[Callable[[], str]] = []
        self._counts = [0] * program.slots
        process = ProcessState() if together else None
        rules = SlotRules(
            root=self.root,
            seeded=seeded,
            restarts=program.on_fault == "restart",
            isolate_rng=program.isolate_rng,
            sample_task=task_for if program.samples_tasks else None,
        )
        self.slots: list[SlotModel] = []
        self.cannot_start = False
        try:
            for slot in range(program.slots):
                self.slots.append(SlotModel(self.kind, slot, rules, process))
        except Doomed:
            self.cannot_start = True

    @property
    def factories(self) -> list[Callable[[], Any]]:
        """One for every slot."""
        return [partial(build, self.kind) for _ in range(self.program.slots)]

    # Actions --------------------------------------------------------------------------

    def actions(self, slots: Iterable[int]) -> list[Any]:
        """The next action of each of these slots; depends on nothing but its turn."""
        chosen = []
        for slot in slots:
            self._counts[slot] += 1
            number = digest(self.program.seed, slot, self._counts[slot])
            chosen.append(sampled(self.action_space, number))
        return chosen

    def batch(self, items: Sequence[Any]) -> Any:
        """These actions as a batch of the action space."""
        return batch_of(self.action_space, items)

    def finished(self, play: Callable[[], None]) -> list[str]:
        """Play, and return what was wrong."""
        clear()
        try:
            play()
        except TooManyMistakes:
            pass
        except (Exception, SystemExit) as error:
            self.mistakes.append(unexpected_error_text(error))
        for slot in self.slots:
            slot.close()
        return self.mistakes

    # Finding mistakes -----------------------------------------------------------------

    def check(self, found: str) -> None:
        """Note a difference, if it is one."""
        if found:
            self.mistakes.append(f"wrong row: {found}")
            if len(self.mistakes) >= MAX_MISTAKES:
                raise TooManyMistakes

    def again(self, look: Callable[[], str]) -> None:
        """Look now, and once more at the end: what was given must not change."""
        self.check(look())
        self._later.append(look)

    def look_again(self) -> None:
        """At everything that was given."""
        for look in self._later:
            found = look()
            if found:
                self.check(f"{found}, later on")

    def unexpected(self, error: BaseException, expected: tuple[type, ...]) -> bool:
        """Note an error that is none of these."""
        if isinstance(error, expected):
            return False
        names = ", ".join(kind.__name__ for kind in expected)
        self.mistakes.append(
            f"error: {type(error).__name__}: {str(error)[:400]} instead of {names}"
        )
        return True

    def missing(self, fault: str) -> None:
        """Note that nothing was raised though an environment failed."""
        self.mistakes.append(f"error: nothing was raised for {fault!r}")


def batch_of(of: spaces.Space[Any], items: Sequence[Any]) -> Any:
    """Values of a space as Gymnasium puts them together."""
    out: Any = create_empty_array(of, len(items), np.zeros)
    return deepcopy(concatenate(of, [deepcopy(item) for item in items], out))


def errors_for(fault: str, own: bool) -> tuple[type, ...]:
    """What may be raised for a fault.

    Args:
        fault: the kind's.
        own: whether the api raises the environment's exception itself.
    """
    if fault in DEADLY:
        return (WorkerDied,)
    if fault == HANGING:
        return (WorkerHung,)
    if fault in ("four", "shape", "no number"):
        return (SpaceMismatch,)
    if not own:
        return (EnvError,)
    if fault == "exit":
        return SystemExit, EnvError
    return (OnPurpose,) if fault == "raise" else (OnPurpose, EnvError)


def start_errors_for(fault: str, own: bool) -> tuple[type, ...]:
    """What may be raised where an environment cannot be built."""
    return (StartError, OnPurpose, SystemExit) if own else (StartError,)


def unexpected_error_text(error: BaseException) -> str:
    """An error that nobody expected, with where it came from."""
    sort = "unexpected" if isinstance(error, CorralError) else "untyped"
    text = "".join(traceback.format_exception(error))
    return f"{sort} error: {type(error).__name__}: {str(error)[:300]}\n{text[-1500:]}"
