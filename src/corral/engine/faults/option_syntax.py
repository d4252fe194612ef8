"""How an error writes options: as Python keywords, or as settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OptionSyntax:
    """Python's keywords, or `key: value` as YAML and `--set key=value` have them."""

    in_python: bool

    def option(self, name: str, value: Any = None) -> str:
        """An option with a value; without one, what comes after its name is left."""
        if not self.in_python:
            return name if value is None else f"{name}: {value}"
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        return f"{name}=" if value is None else f"{name}={shown}"


PYTHON_SYNTAX, SETTINGS_SYNTAX = OptionSyntax(True), OptionSyntax(False)
