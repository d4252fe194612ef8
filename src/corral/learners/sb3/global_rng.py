"""The global generators of torch and numpy, lent to a learner that draws from them.

Other code in the process that draws from them does not change what the learner draws,
nor the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from corral.learners.torch_import import torch

# As many as numpy's can be seeded with.
SEED_RANGE = 2**32


class GlobalGenerators:
    """A state of both, put in place while it is needed.

    Args:
        seed: of both, as `stable_baselines3.common.utils.set_random_seed` gives it.
        cuda: whether torch draws on a GPU as well.
    """

    def __init__(self, seed: int, cuda: bool = False) -> None:
        self._cuda = cuda
        before = self._current()
        torch.manual_seed(seed % SEED_RANGE)
        np.random.seed(seed % SEED_RANGE)
        self._own = self._current()
        self._put(before)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """What is drawn in this block is drawn from these."""
        before = self._current()
        self._put(self._own)
        try:
            yield
        finally:
            self._own = self._current()
            self._put(before)

    def state_dict(self) -> dict[str, Any]:
        """Where they are."""
        return dict(self._own)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there."""
        self._own = {**self._own, **state}

    def _current(self) -> dict[str, Any]:
        cuda = {"cuda": torch.cuda.get_rng_state()} if self._cuda else {}
        numpy = np.random.get_state(legacy=False)
        return {"torch": torch.get_rng_state(), "numpy": numpy, **cuda}

    def _put(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        if self._cuda and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"])
