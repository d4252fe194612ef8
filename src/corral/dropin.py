"""The names people import today; change the import line and nothing else.

The public path of `corral.api.dropin`, where all of it is.
"""

from typing import TYPE_CHECKING

from corral.api.dropin import __all__ as __all__
from corral.api.dropin import __getattr__ as __getattr__  # lazy

if TYPE_CHECKING:
    from corral.api.dropin import *  # noqa: F403

__path__: list[str] = []  # modules below it are found by engine/old_paths.py
