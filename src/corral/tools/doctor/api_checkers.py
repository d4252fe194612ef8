"""Gymnasium's `check_env` and PettingZoo's API tests: what they say about an env."""

from __future__ import annotations

import importlib
import io
import re
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

CYCLES = 100
"""Steps that PettingZoo's tests take in an episode."""
CHECKERS = {
    "gymnasium": ("gymnasium.utils.env_checker", "check_env"),
    "parallel": ("pettingzoo.test.parallel_test", "parallel_api_test"),
    "aec": ("pettingzoo.test.api_test", "api_test"),
}
"""Kind of env -> where its checker is, and its name."""
OPTIONS: dict[str, dict[str, Any]] = {
    # Other checks look at these, in processes of their own.
    "gymnasium": {"skip_render_check": True, "skip_close_check": True},
    "parallel": {"num_cycles": CYCLES},
    "aec": {"num_cycles": CYCLES},
}
FILES = ("env_checker", "passive_env_checker", "api_test", "parallel_test")
"""Modules whose warnings are meant; the env and its libraries may have others."""
BESIDE_THE_POINT = "is different from the unwrapped version"
"""Of an env with wrappers, which is how `gymnasium.make` makes them."""


def complaints(factory: Callable[[], Any], kind: str) -> tuple[str, list[str]]:
    """Run the checker of this kind of env on a new one; its error and its warnings."""
    home, name = CHECKERS[kind]
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            checker = getattr(importlib.import_module(home), name)
        except ImportError:  # PettingZoo's tests need more than PettingZoo itself
            return "", []
        env = factory()
        try:
            with redirect_stdout(io.StringIO()):
                checker(env, **OPTIONS[kind])
        except Exception as raised:
            error = _plain(f"{type(raised).__name__}: {raised}")
        env.close()
    said = [str(one.message) for one in caught if Path(one.filename).stem in FILES]
    texts = [_plain(text) for text in said if BESIDE_THE_POINT not in text]
    return error, list(dict.fromkeys(texts))


def _plain(text: str) -> str:
    """Without colours, and in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = text.removeprefix("WARN: ").removeprefix("AssertionError: ")
    return f"{' '.join(text.split()):.200}".rstrip(".")
