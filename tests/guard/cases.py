"""Every case of the guard, by name; as a program, plays some and prints their hashes.

python -m tests.guard.cases serial:pool/walk process:pool/rooms
"""

from __future__ import annotations

import importlib.util
import json
import sys

from tests.guard import apis, faulty, leading, pools
from tests.guard.case import Case

CASES: dict[str, Case] = {
    **pools.CASES,
    **apis.CASES,
    **leading.CASES,
    **faulty.CASES,
}


def missing(names: tuple[str, ...]) -> list[str]:
    """Which of these packages are not installed."""
    tops = [name.partition(".")[0] for name in names]
    return [name for name in tops if importlib.util.find_spec(name) is None]


if __name__ == "__main__":
    played = {}
    for asked in sys.argv[1:]:
        executor, _, name = asked.partition(":")
        played[asked] = CASES[name].on(executor)
    print(json.dumps(played))
