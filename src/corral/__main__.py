"""`python -m corral`: the same as `corral`."""

from __future__ import annotations

import sys

from corral.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
