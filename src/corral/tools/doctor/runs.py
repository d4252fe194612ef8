"""Runs of one env that can be compared with others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse


def copied(moment: EnvResponse) -> EnvResponse:
    """A moment that no later step can change; infos are not compared, nor sent."""
    return replace(
        moment,
        obs=copy.deepcopy(moment.obs),
        reward=copy.deepcopy(moment.reward),
        terminated=copy.copy(moment.terminated),
        truncated=copy.copy(moment.truncated),
        info=None,
    )


def own_generators(seed: int) -> IsolatedRng:
    """What `isolate_rng=True` would put around each slot."""
    return IsolatedRng(lambda slot: episode_seed(seed, slot))


def run_alone(
    factory: Callable[[], Any],
    seed: int,
    slot: int,
    moments: int,
    isolated: bool = False,
) -> list[EnvResponse]:
    """One env in this process, with global generators that are seeded or its own."""
    isolation = own_generators(seed)
    seed_globals(seed)
    if isolated:
        driver = EpisodeDriver(factory, seed, slot, lambda: isolation.of(slot))
    else:
        driver = EpisodeDriver(factory, seed, slot)
    found = [copied(moment) for moment in driver.play(moments)]
    driver.close()
    return found
