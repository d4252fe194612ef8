"""Steps that own their memory: copied, in part, or joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.infos import Infos
from corral.engine.layout.plan import SCALAR_FIELDS
from corral.rollouts.space_rows import SpaceParts


def owned(space: SpaceParts, step: Step) -> Step:
    """Return a copy without `final_obs`."""
    return Step(
        slots=step.slots.copy(),
        obs=space.copied(step.obs),
        final_obs=None,
        infos=step.infos,  # owns its memory
        final_infos={},
        **{name: getattr(step, name).copy() for name in SCALAR_FIELDS},
    )


def some_of(space: SpaceParts, step: Step, where: NDArray[Any]) -> Step:
    """Copy the rows at these positions, or where this is True, without `final_obs`."""
    positions = np.flatnonzero(where) if where.dtype == np.bool_ else where
    kept = list(enumerate(positions.tolist()))
    final, infos = step.final_infos, step.infos
    named = {new: infos.of(old) for new, old in kept} if infos else {}
    obs = [part.array_of(step.obs)[positions] for part in space.parts]
    return replace(
        step,
        slots=step.slots[positions],
        obs=space.batch(obs),
        final_obs=None,
        infos=Infos([], {new: info for new, info in named.items() if info}),
        final_infos={new: final[old] for new, old in kept if old in final},
        previous_action=None,
        **{name: getattr(step, name)[positions] for name in SCALAR_FIELDS},
    )


def joined(space: SpaceParts, steps: Sequence[Step]) -> Step:
    """Join Steps of different slots into one copy, without `final_obs`."""
    slots = np.concatenate([step.slots for step in steps])
    order = np.argsort(slots).tolist()
    obs = [
        np.concatenate([part.array_of(step.obs) for step in steps])[order]
        for part in space.parts
    ]
    each = [info for step in steps for info in step.infos.to_list(len(step))]
    scalars = {
        name: np.concatenate([getattr(step, name) for step in steps])[order]
        for name in SCALAR_FIELDS
    }
    return Step(
        slots=slots[order],
        obs=space.batch(obs),
        final_obs=None,
        infos=Infos([], {new: each[old] for new, old in enumerate(order) if each[old]}),
        final_infos={},
        **scalars,
    )
