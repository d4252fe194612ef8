"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse
import json
import math
import operator
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from corral.engine.whole_file import writing
from corral.errors import OptionError


def _number(text: str, limit: str, keeps: Callable[[float, float], bool]) -> float:
    with suppress(ValueError):
        number = float(text)
        if math.isfinite(number) and keeps(number, 0):
            return number
    raise argparse.ArgumentTypeError(f"must be a number {limit}, got {text!r}")


def _integer(text: str, least: int) -> int:
    """Also as people write large ones: 100_000, 1e6."""
    plain = text.strip().replace("_", "").replace(",", "")
    with suppress(ValueError, OverflowError):
        number = int(plain) if plain.isdecimal() else int(float(plain))
        if number >= least and (plain.isdecimal() or number == float(plain)):
            return number
    raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")


count, whole = partial(_integer, least=1), partial(_integer, least=0)
positive = partial(_number, limit="> 0", keeps=operator.gt)
not_negative = partial(_number, limit=">= 0", keeps=operator.ge)


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
    if path.is_dir():
        raise OptionError(f"{option} {path} is a directory; name a file in it")
    # A device can be written although its folder cannot.
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK) or not (path.exists() or place.is_dir()):
        raise OptionError(
            f"{option} {path} cannot be written: {place.resolve()} must exist, and you "
            "must be allowed to write to it"
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


def save(path: Path, content: bytes) -> None:
    """Write it where it was asked for; that may also be a device."""
    with writing(path):
        path.write_bytes(content)
    print(f"Written: {path}")
