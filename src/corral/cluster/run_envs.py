"""The envs of a training run on a cluster."""

from __future__ import annotations

from typing import Any

from corral.cluster.cluster import Cluster, ClusterOptions
from corral.engine.pool import PoolOptions


def open_sites(config: Any, env: Any, num_envs: int, options: PoolOptions) -> Cluster:
    """Open a cluster as the settings of a run say."""
    asked = ClusterOptions(**dict(config.cluster))
    return Cluster.with_options(env, num_envs, asked, options)
