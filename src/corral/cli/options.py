"""Options of commands, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Option = Callable[..., Any]


def adder(add: Option) -> Option:
    """Make `option(flag, metavar, type, help, default)` of an `add_argument`."""

    def option(
        flag: str, metavar: str, kind: Option, text: str, default: Any = None
    ) -> None:
        add(flag, metavar=metavar, type=kind, help=text, default=default)

    return option


def names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
