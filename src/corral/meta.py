"""Meta-RL under the names of pomdp-baselines: change the import line, keep the loop.

The public path of `corral.zoo.meta`, where all of it is.
"""

from typing import TYPE_CHECKING

from corral.zoo.meta import __all__ as __all__
from corral.zoo.meta import __getattr__ as __getattr__  # lazy

if TYPE_CHECKING:
    from corral.zoo.meta import *  # noqa: F403
