"""The limits of batched envs, which are a whole shard each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.adapters.batched import AUTORESET_KEY, STEP_MASK_KEY
from corral.engine.worker.autoreset import MODES, OFF, SAME_STEP
from corral.errors import OptionError

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
        self._only = MODES.get(AutoresetMode(spec.metadata[AUTORESET_KEY]).name.lower())
        """The mode in which the env restarts episodes by itself, if it does."""

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
            waits = "stays" if mode == OFF else "is reset"
            raise OptionError(
                f"autoreset={name!r}: a slot whose episode has ended {waits} while "
                "others step, but the batched env is always stepped as a whole; use "
                'autoreset="same_step", or give its step a step_mask argument'
            )

    def check_restarts(self, wanted: bool) -> None:
        """Refuse restarts of an env whose slots cannot be reset one by one."""
        if wanted and self._only is not None:
            raise OptionError(
                'on_fault="restart" begins the episode of one slot again, but the '
                "batched env restarts its episodes by itself; it needs one whose "
                'metadata["autoreset_mode"] is AutoresetMode.DISABLED'
            )

    def check_step(self, slots: NDArray[np.intp]) -> None:
        """Refuse to step a part of a batch that is stepped as a whole."""
        if not self._masks_steps:
            self._check_whole(slots, "stepped", "its step takes no step_mask")

    def check_reset(self, slots: NDArray[np.intp]) -> None:
        """Refuse to reset a part of a batch that is reset as a whole."""
        if self._only is not None:
            self._check_whole(slots, "reset", "it restarts its episodes by itself")

    def _check_whole(self, slots: NDArray[np.intp], done: str, reason: str) -> None:
        chosen = set(slots.tolist())
        for worker, shard in enumerate(self._shards):
            part = chosen.intersection(shard)
            if part and len(part) < len(shard):
                raise OptionError(
                    f"slots {sorted(part)} are a part of worker {worker}'s batch "
                    f"({shard.start} to {shard.stop - 1}), which is {done} as a whole: "
                    f"{reason}"
                )
