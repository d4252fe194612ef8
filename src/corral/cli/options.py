"""Options of commands, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def adder(
    add: Callable[..., Any],
) -> Callable[[str, str, Callable[[str], Any], Any, str], None]:
    """Make a function that adds options to a parser or a group of it.

    Args:
        add: its `add_argument`.
    """

    def option(
        flag: str, metavar: str, kind: Callable[[str], Any], default: Any, text: str
    ) -> None:
        add(flag, metavar=metavar, type=kind, default=default, help=text)

    return option


def names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
