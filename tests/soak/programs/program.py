"""A program: what is made of which environments, and how it is used.

Drawn from a seed; written down as JSON, so that it can be run again and made smaller.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.soak.programs.kinds import Kind


@dataclass(frozen=True, slots=True)
class Program:
    """One program."""

    seed: int
    """Of what is called with which values, in which order."""
    api: str = "pool"
    """A name of `players.PLAYERS`."""
    kind: Kind = field(default_factory=Kind)
    slots: int = 3
    backend: str = "serial"
    workers: int | None = None
    isolation: str = "auto"
    autoreset: str = "same_step"
    infos: str = "all"
    """"all", "final", "none", or keys with commas between them."""
    copy: bool = True
    on_fault: str = "raise"
    isolate_rng: bool = False
    samples_tasks: bool = False
    steps: int = 20
    """Commands to all slots, or about as many to some."""
    style: str = "all"
    """How slots are sent to, where there is a choice; see `drives`."""

    def to_json(self) -> str:
        """The program in one line, without what is as usual."""
        usual = Program(0)
        values = {
            name: value
            for name, value in asdict(self).items()
            if name in ("seed", "kind") or value != getattr(usual, name)
        }
        values["kind"] = {
            name: value
            for name, value in values["kind"].items()
            if value != getattr(usual.kind, name)
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Program:
        """What `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "kind": Kind(**values.get("kind", {}))})

    @property
    def info_choice(self) -> str | tuple[str, ...]:
        """What `infos=` is given."""
        if self.infos in ("all", "final", "none"):
            return self.infos
        return tuple(self.infos.split(","))

    def __str__(self) -> str:
        """What is not as usual, in words."""
        usual, parts = Program(0), [self.api]
        for each in fields(self):
            value = getattr(self, each.name)
            told = each.name not in ("seed", "api", "kind")
            if told and value != getattr(usual, each.name):
                parts.append(f"{each.name}={value}")
        for each in fields(self.kind):
            value = getattr(self.kind, each.name)
            if value != getattr(usual.kind, each.name):
                parts.append(f"{each.name}: {value}")
        return ", ".join(parts)


def options_of(program: Program) -> dict[str, Any]:
    """What a program gives to `Pool` and to every API that takes its options."""
    options: dict[str, Any] = {"infos": program.info_choice, "close_timeout": 3.0}
    if program.isolation != "auto":
        options["isolation"] = program.isolation
    if program.workers is not None:
        options["workers"] = program.workers
    if program.on_fault != "raise":
        options |= {"on_fault": program.on_fault, "restarts_per_minute": 1000}
    if program.isolate_rng:
        options["isolate_rng"] = True
    if program.samples_tasks:
        options["sample_task"] = task_for
    if program.kind.fault == "hang":
        options["step_timeout"] = HANG_LIMIT
    return options


HANG_LIMIT = 1.5
"""Seconds that a step may take where environments hang."""


def task_for(slot: int, episode: int, rng: Any) -> str:
    """The task of an episode that was given none."""
    return f"{slot}/{episode}/{rng.integers(1000)}"
