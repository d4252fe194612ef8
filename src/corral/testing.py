"""To test with: environments that fail, ones whose answers are known, and checks.

    from corral.testing import check_env, check_executor
    from corral.testing import Crashing, Hanging, KnownAnswers, known_answers

Lazy, so that a worker imports the environment it runs and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.tools.testing.answers import (
        Answer,
        KnownAnswers,
        KnownEpisode,
        known_answers,
    )
    from corral.tools.testing.env_check import check_env
    from corral.tools.testing.executor_check import check_executor
    from corral.tools.testing.faulty_envs import (
        ODD_SPACES,
        WAYS,
        Crashing,
        Hanging,
        Leaking,
        Noisy,
        OddSpaces,
        OnPurpose,
        Slow,
        fail,
    )
    from corral.tools.testing.referee import Referee
    from corral.tools.testing.report import Finding, Report

_HOMES = {
    "answers": ("Answer", "KnownAnswers", "KnownEpisode", "known_answers"),
    "env_check": ("check_env",),
    "executor_check": ("check_executor",),
    "referee": ("Referee",),
    "report": ("Finding", "Report"),
}
"""Modules of `corral.tools.testing`; all other names are in `faulty_envs`."""

__all__ = ["Answer", "Crashing", "Finding", "Hanging", "KnownAnswers", "KnownEpisode"]
__all__ += ["Leaking", "Noisy", "ODD_SPACES", "OddSpaces", "OnPurpose", "Referee"]
__all__ += ["Report", "Slow", "WAYS", "check_env", "check_executor", "fail"]
__all__ += ["known_answers"]
__path__: list[str] = []  # modules below it are found by engine/old_paths.py


def __getattr__(name: str) -> Any:
    if name not in __all__:
        known = ", ".join(__all__)
        raise AttributeError(f"corral.testing has no {name!r}; it has {known}")
    homes = (home for home, names in _HOMES.items() if name in names)
    home = f"corral.tools.testing.{next(homes, 'faulty_envs')}"
    return getattr(importlib.import_module(home), name)
