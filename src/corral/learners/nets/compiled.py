"""The C part of nets, where it could be built: see `_dense.c`.

`Dense` computes dense layers, and `choose` one choice of a few options. Where they are
None, `numpy_forward` and `heads` call numpy, and come to the same bits.
"""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import Any

C_PART: Any = None
if os.environ.get("CORRAL_PURE_PYTHON") != "1":
    with suppress(ImportError):
        C_PART = importlib.import_module("corral.learners.nets._dense")
Dense: Any = getattr(C_PART, "Dense", None)
choose: Any = getattr(C_PART, "choose", None)
