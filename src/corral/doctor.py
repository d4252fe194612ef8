"""What is wrong with an environment, and why: `check` one.

The public path of `corral.tools.doctor`, where all of it is.
"""

from typing import TYPE_CHECKING

from corral.tools.doctor import __all__ as __all__
from corral.tools.doctor import __getattr__ as __getattr__  # lazy

if TYPE_CHECKING:
    from corral.tools.doctor import *  # noqa: F403

__path__: list[str] = []  # modules below it are found by engine/old_paths.py
