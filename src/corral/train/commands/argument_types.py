"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral.errors import OptionError, WriteFailed


def count(text: str) -> int:
    """Parse an integer >= 1."""
    return _integer(text, 1)


def whole(text: str) -> int:
    """Parse an integer >= 0."""
    return _integer(text, 0)


def positive(text: str) -> float:
    """Parse a number > 0."""
    number = not_negative(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"must be a number > 0, got {text!r}")
    return number


def not_negative(text: str) -> float:
    """Parse a number >= 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number >= 0, got {text!r}")
    return number


def add_trust(add: Callable[..., Any], what: str) -> None:
    """Add the option of commands that open files which others may have written."""
    add("--trust", action="store_true", help=f"{what} (docs/guides/what-is-code.md)")


def add_set(add: Callable[..., Any], what: str) -> None:
    """Add the option for settings that have no option of their own."""
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{what}; can be repeated",
    )


def settings_of(given: list[str]) -> dict[str, Any]:
    """Parse the values of `--set`: dotted keys -> values."""
    if not given:
        return {}
    from corral.train.recipes.resolve import setting

    return dict(setting(text) for text in given)


def check_file(option: str, path: Path | None) -> None:
    """Raise OptionError before minutes of work if a file cannot be written."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir():
        raise OptionError(f"{option} {path} is a directory; name a file in it")
    if path.exists():  # a device, too, whose folder cannot be written
        if not os.access(path, os.W_OK):
            raise OptionError(f"{option} {path} exists, and you may not write to it")
        return
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(
            f"{option} {path} cannot be written: "
            f"{folder.resolve()} must be a directory you may write to"
        )


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object: {{...}}")
    return value


def _integer(text: str, least: int) -> int:
    """Also as people write large ones: 100_000, 1e6."""
    plain = text.strip().replace("_", "").replace(",", "")
    try:
        value = float(plain)
        number = int(plain) if plain.isdecimal() else int(value)
        fits = number >= least and (plain.isdecimal() or number == value)
    except (ValueError, OverflowError):
        fits = False
    if not fits:
        raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")
    return number


def save(path: Path, content: bytes) -> None:
    """Write it where it was asked for; that may also be a device."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise WriteFailed(f"{path} cannot be written: {error.strerror}") from error
    print(f"Written: {path}")
