"""torch, or what to install; every file of this room takes it from here."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    raise MissingExtra("learners need torch: pip install 'corral[train]'") from error

__all__ = ["functional", "nn", "torch"]
