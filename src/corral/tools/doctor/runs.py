"""Runs of one env that can be compared with others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from corral.engine.worker.isolated_rng import Isolation
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.tools.doctor.driver import Player
from corral.tools.doctor.env_response import Moment


def copied(moment: Moment) -> Moment:
    """A moment that no later step can change; infos are not compared, nor sent."""
    return replace(
        moment,
        obs=copy.deepcopy(moment.obs),
        reward=copy.deepcopy(moment.reward),
        terminated=copy.copy(moment.terminated),
        truncated=copy.copy(moment.truncated),
        info=None,
    )


def own_generators(seed: int) -> Isolation:
    """What `isolate_rng=True` would put around each slot."""
    return Isolation(lambda slot: episode_seed(seed, slot))


def run_alone(
    factory: Callable[[], Any],
    seed: int,
    slot: int,
    moments: int,
    isolated: bool = False,
) -> list[Moment]:
    """One env in this process, with global generators that are seeded or its own."""
    isolation = own_generators(seed)
    seed_globals(seed)
    if isolated:
        player = Player(factory, seed, slot, lambda: isolation.of(slot))
    else:
        player = Player(factory, seed, slot)
    found = [copied(moment) for moment in player.play(moments)]
    player.close()
    return found
