"""To test with: environments that fail, ones whose answers are known, and checks.

    from corral.testing import check_env, check_executor
    from corral.testing import Crashing, Hanging, KnownAnswers, known_answers

Lazy, so that a worker imports the environment it runs and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

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

__all__ = ["Answer", "Crashing", "Finding", "Hanging", "KnownAnswers", "KnownEpisode"]
__all__ += ["Leaking", "Noisy", "ODD_SPACES", "OddSpaces", "OnPurpose", "Referee"]
__all__ += ["Report", "Slow", "WAYS", "check_env", "check_executor", "fail"]
__all__ += ["known_answers"]
__path__: list[str] = []  # modules below it are found by engine/old_paths.py

__getattr__ = lazy(
    "corral.testing",
    {
        "corral.tools.testing.answers": "Answer KnownAnswers KnownEpisode "
        "known_answers",
        "corral.tools.testing.env_check": "check_env",
        "corral.tools.testing.executor_check": "check_executor",
        "corral.tools.testing.faulty_envs": "Crashing Hanging Leaking Noisy ODD_SPACES "
        "OddSpaces OnPurpose Slow WAYS fail",
        "corral.tools.testing.referee": "Referee",
        "corral.tools.testing.report": "Finding Report",
    },
)
