"""Steps written by hand, for tests that need no pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral import Step
from corral.engine.layout.infos import Infos

DEFAULTS: dict[str, tuple[Any, Any]] = {
    "reward": (0.0, np.float64),
    "terminated": (False, np.bool_),
    "truncated": (False, np.bool_),
    "started": (False, np.bool_),
    "valid": (True, np.bool_),
    "episode_return": (0.0, np.float64),
    "episode_length": (0, np.int32),
    "seed": (-1, np.int64),
}


def step_of(
    slots: list[int],
    obs: Any,
    *,
    final_obs: Any = None,
    infos: dict[int, dict[str, Any]] | None = None,
    final_infos: dict[int, dict[str, Any]] | None = None,
    **fields: Any,
) -> Step:
    """A step in the middle of an episode, but for the fields that are given."""
    assert fields.keys() <= DEFAULTS.keys()
    arrays = {
        name: np.array(fields.get(name, [default] * len(slots)), dtype)
        for name, (default, dtype) in DEFAULTS.items()
    }
    return Step(
        slots=np.array(slots, np.intp),
        obs=obs,
        final_obs=final_obs,
        infos=Infos([], infos or {}),
        final_infos=final_infos or {},
        **arrays,
    )
