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
    "Answer": "answers",
    "Crashing": "faulty_envs",
    "Finding": "report",
    "Hanging": "faulty_envs",
    "KnownAnswers": "answers",
    "KnownEpisode": "answers",
    "Leaking": "faulty_envs",
    "Noisy": "faulty_envs",
    "ODD_SPACES": "faulty_envs",
    "OddSpaces": "faulty_envs",
    "OnPurpose": "faulty_envs",
    "Referee": "referee",
    "Report": "report",
    "Slow": "faulty_envs",
    "WAYS": "faulty_envs",
    "check_env": "env_check",
    "check_executor": "executor_check",
    "fail": "faulty_envs",
    "known_answers": "answers",
}

__all__ = [
    "Answer",
    "Crashing",
    "Finding",
    "Hanging",
    "KnownAnswers",
    "KnownEpisode",
    "Leaking",
    "Noisy",
    "ODD_SPACES",
    "OddSpaces",
    "OnPurpose",
    "Referee",
    "Report",
    "Slow",
    "WAYS",
    "check_env",
    "check_executor",
    "fail",
    "known_answers",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = importlib.import_module(f"corral.tools.testing.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(f"corral.testing has no {name!r}; it has {', '.join(__all__)}")
