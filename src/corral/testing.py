"""To test with: environments that fail, ones whose answers are known, and checks.

The public path of `corral.tools.testing`, where all of it is.
"""

from typing import TYPE_CHECKING

from corral.tools.testing import __all__ as __all__
from corral.tools.testing import __getattr__ as __getattr__  # lazy

if TYPE_CHECKING:
    from corral.tools.testing import *  # noqa: F403

__path__: list[str] = []  # modules below it are found by engine/old_paths.py
