"""Steps that outlive the block, in part or put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.codec import Codec
from corral.engine.layout.infos import Infos
from corral.engine.pool.rows import SCALAR_FIELDS
from corral.rollouts.space_parts import parts_of
from corral.rollouts.space_rows import as_batch


def owned(codec: Codec, step: Step) -> Step:
    """The same in memory of its own; `final_obs` is left behind."""
    return joined(codec, [step])


def some_of(codec: Codec, step: Step, where: NDArray[Any]) -> Step:
    """The rows at these positions, or where this is True; copied, but `final_obs`."""
    positions = np.flatnonzero(where) if where.dtype == np.bool_ else where
    infos = step.infos
    kept = enumerate(positions.tolist())
    final = step.final_infos
    return replace(
        step,
        slots=step.slots[positions],
        obs=as_batch(
            codec, [part.array_of(step.obs)[positions] for part in parts_of(codec)]
        ),
        final_obs=None,
        infos=Infos([], _infos_at(infos, positions) if infos else {}),
        final_infos={new: final[old] for new, old in kept if old in final},
        previous_action=None,
        **{name: getattr(step, name)[positions] for name in SCALAR_FIELDS},
    )


def joined(codec: Codec, steps: Sequence[Step]) -> Step:
    """Several Steps of different slots as one, copied; `final_obs` is left behind."""
    slots = np.concatenate([step.slots for step in steps])
    order = np.argsort(slots).tolist()
    parts = parts_of(codec)
    obs = [
        np.concatenate([part.array_of(step.obs) for step in steps])[order]
        for part in parts
    ]
    each = [info for step in steps for info in _each(step)]
    scalars = {
        name: np.concatenate([getattr(step, name) for step in steps])[order]
        for name in SCALAR_FIELDS
    }
    return Step(
        slots=slots[order],
        obs=as_batch(codec, obs),
        final_obs=None,
        infos=Infos([], {new: each[old] for new, old in enumerate(order) if each[old]}),
        final_infos={},
        **scalars,
    )


def copied(codec: Codec, batch: Any) -> Any:
    """A batch in memory of its own."""
    return as_batch(codec, [part.array_of(batch).copy() for part in parts_of(codec)])


def _each(step: Step) -> list[dict[str, Any]]:
    if not step.infos:
        return [{}] * len(step)
    return [step.infos.of(position) for position in range(len(step))]


def _infos_at(infos: Any, positions: NDArray[np.intp]) -> dict[int, dict[str, Any]]:
    copies = ((new, infos.of(old)) for new, old in enumerate(positions.tolist()))
    return {position: info for position, info in copies if info}
