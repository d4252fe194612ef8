"""Options of commands, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def add_options(add: Callable[..., Any], *options: tuple[Any, ...]) -> None:
    """Add options that have a value: (flag, metavar, type, help), or with a default."""
    for flag, metavar, kind, text, *given in options:
        default = given[0] if given else None
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        if shown not in (None, "", {}):
            text += f" (default: {shown})"
        add(flag, metavar=metavar, type=kind, help=text, default=default)


def names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
