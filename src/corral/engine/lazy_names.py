"""Names of a package that are imported at first use.

A worker then imports what it runs and nothing else, and no extra is needed to look at
the names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: its name.
        homes: module, or `.module` of the package -> the names to import from it,
            separated by blanks.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            listed = ", ".join(sorted(home_of))
            raise AttributeError(f"{package} has no {name!r}; it has {listed}")
        return getattr(importlib.import_module(home_of[name], package), name)

    return find
