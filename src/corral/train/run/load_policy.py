"""`corral.load_policy`: imports torch and the run's packages when it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from corral.engine.keywords import checked_keywords

if TYPE_CHECKING:
    from corral.train.run.trained_policy import TrainedPolicy


@checked_keywords()
def load_policy(
    run: str | os.PathLike[str],
    which: str = "best",
    *,
    trust: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> TrainedPolicy:
    """Return the policy of a run, for envs of your own.

    One env of the run is made and closed again, to learn its spaces.

    Args:
        run: a run's directory, a checkpoint in it, or "latest".
        which: "best" or "last", where a directory is named.
        trust: run the code that the run's config names (its env, wrappers, network and
            learner), even if the run is not signed by you.
        seed: of actions that are drawn, with `deterministic=False`.
        device: torch device to act on.
    """
    from corral.train.run.trained_policy import TrainedPolicy, load_run

    with load_run(run, which, trust, device) as loaded:
        return TrainedPolicy.of(loaded, seed)
