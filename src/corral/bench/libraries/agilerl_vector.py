"""AgileRL's way to many envs."""

from __future__ import annotations

from agilerl.utils.utils import make_vect_envs

from corral.bench.libraries import Stepped
from corral.bench.libraries.gymnasium_vector import stepped
from corral.bench.messages import Order
from corral.core import Factory


def build(order: Order, factory: Factory) -> Stepped:
    """Make what `make_vect_envs` gives for the factory, and reset it."""
    envs = make_vect_envs(num_envs=order.num_envs, make_env=factory)
    return stepped(envs, order.seed)
