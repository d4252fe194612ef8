"""torch, or what to install; every file of this room takes it from here."""

from __future__ import annotations

from corral.errors import requires

with requires("learners need torch: pip install 'corral[train]'"):
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.optim.adam import adam
    from torch.overrides import TorchFunctionMode

__all__ = ["TorchFunctionMode", "adam", "functional", "nn", "torch"]
