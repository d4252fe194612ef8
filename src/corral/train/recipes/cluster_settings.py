"""Settings of a run on a cluster: `cluster: auto`, or a group of a config.

cluster:
  address: auto
  cpus_per_site: 8
  fragment_timeout: 120
  on_node_loss: restart
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt


class ClusterSettings(BaseModel):
    """Where the envs of a run are, and what follows if a machine is lost."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    address: str = "auto"
    """Ray cluster: auto, HOST:PORT, or local to try it out (default: auto)"""
    cpus_per_site: PositiveInt | None = None
    """CPUs and workers of a site (default: 8, or those of the largest node)"""
    sites: PositiveInt | None = None
    """number of sites (default: as many as fit)"""
    working_dir: str | None = None
    """folder that every node gets, to import modules from (default: none)"""
    fragment_timeout: PositiveFloat | None = None
    """seconds allowed for the rows of one update (default: no limit)"""
    on_node_loss: Literal["raise", "restart"] = "raise"
    """restart: rows of a lost site are invalid, and it is started again"""
