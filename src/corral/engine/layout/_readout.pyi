from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.readout import Column

def copy_out(
    columns: list[Column], arrays: list[NDArray[Any]], presence: NDArray[np.uint8], /
) -> list[tuple[Column, NDArray[Any], NDArray[np.bool_]]]: ...
def to_dicts(
    keys: tuple[str, ...],
    sources: tuple[list[Any] | NDArray[Any], ...],
    plain: bytes,
    count: int,
    /,
) -> list[dict[Any, Any]]: ...
