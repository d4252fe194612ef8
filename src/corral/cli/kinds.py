"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
import json
from typing import Any


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
