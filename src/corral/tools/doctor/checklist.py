"""The checks, in the order in which they are made."""

from __future__ import annotations

from corral.tools.doctor.checks import (
    api,
    buffers,
    cost,
    determinism,
    generators,
    infos,
    isolation,
    leftovers,
    machine,
    memory,
    pickling,
    rendering,
    spaces,
    surroundings,
    threads,
    waiting,
    window,
)
from corral.tools.doctor.contract import Check

CHECKS: tuple[Check, ...] = (
    machine.CHECK,
    pickling.CHECK,
    api.CHECK,
    spaces.CHECK,
    determinism.CHECK,
    generators.CHECK,
    isolation.CHECK,
    threads.CHECK,
    surroundings.CHECK,
    leftovers.CHECK,
    memory.CHECK,
    cost.CHECK,
    waiting.CHECK,
    window.CHECK,
    infos.CHECK,
    buffers.CHECK,
    rendering.CHECK,
)
