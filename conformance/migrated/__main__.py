"""`python -m conformance.migrated [NAME ...]`: every script before and after."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

from conformance.migrated.migration import NEEDS, compared, scripts


def main() -> int:
    """Run them; returns the exit status."""
    failed = 0
    for name in sys.argv[1:] or scripts():
        missing = [one for one in NEEDS.get(name, ()) if find_spec(one) is None]
        if missing:
            print(f"skipped  {name}: {', '.join(missing)} is not installed", flush=True)
            continue
        began = time.monotonic()
        mistakes = compared(name)
        failed += bool(mistakes)
        verdict = "FAILED " if mistakes else "equal  "
        print(f"{verdict}  {name}, {time.monotonic() - began:.0f} s", flush=True)
        for mistake in mistakes:
            print(f"    {mistake}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
