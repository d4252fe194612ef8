"""SuperSuit's way to many envs, for those of Gymnasium.

Not `concat_vec_envs_v1`: around one Gymnasium env its reset expects no infos.
"""

from __future__ import annotations

from supersuit import gym_vec_env_v0

from corral.bench.libraries import Stepped
from corral.bench.libraries.gymnasium_vector import stepped
from corral.bench.messages import Order
from corral.core import Factory


def build(order: Order, factory: Factory) -> Stepped:
    """Make copies of one env with `gym_vec_env_v0`, and reset them."""
    processes = order.candidate.kind == "async"
    envs = gym_vec_env_v0(factory(), order.num_envs, multiprocessing=processes)
    return stepped(envs, order.seed)
