"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral.errors import OptionError


def count(text: str) -> int:
    """A whole number >= 1."""
    number = _number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number >= 1")
    return number


def whole(text: str) -> int:
    """A whole number >= 0."""
    number = _number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number >= 0")
    return number


def positive(text: str) -> float:
    """A number > 0."""
    number = not_negative(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return number


def not_negative(text: str) -> float:
    """A number >= 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number >= 0")
    return number


def add_trust(add: Callable[..., Any], what: str) -> None:
    """The option that every command has that opens what others may have written."""
    add("--trust", action="store_true", help=f"{what} (docs/guides/what-is-code.md)")


def add_set(add: Callable[..., Any], what: str) -> None:
    """The option for settings that have none of their own."""
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{what}; can be given again",
    )


def settings_of(given: list[str]) -> dict[str, Any]:
    """Dotted keys -> values, as `--set` was given them."""
    if not given:
        return {}
    from corral.train.recipes.resolve import setting

    return dict(setting(text) for text in given)


def check_file(option: str, path: Path | None) -> None:
    """Before minutes of work: can its results be written at all?"""
    if path is None:
        return
    folder = path.parent
    if path.is_dir():
        raise OptionError(f"{option} {path} is a directory; name a file in it")
    if path.exists():  # a device, too: nobody may write to its folder
        if not os.access(path, os.W_OK):
            raise OptionError(f"{option} {path} is there, and you may not write to it")
        return
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(
            f"{option} {path} cannot be written: "
            f"{folder.resolve()} must be a directory you may write to"
        )


def json_object(text: str) -> dict[str, Any]:
    """Names and values, as JSON."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object: {{...}}")
    return value


def _number(text: str) -> int:
    """Also as people write large ones: 100_000, 1e6."""
    plain = text.strip().replace("_", "").replace(",", "")
    try:
        value = float(plain)
        return int(plain) if plain.isdecimal() else int(value) if value % 1 == 0 else -1
    except (ValueError, OverflowError):
        return -1
