"""The two forms of the env that policies are trained in.

steers  TinyPhysicsEnv: 56 numbers, and an action is the steer itself
turns   CockpitEnv: an action changes the steer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.zoo.tinyphysics.batch import make_tinyphysics_batched
from corral.zoo.tinyphysics.cockpit import (
    make_cockpit,
    make_cockpit_batched,
    turn_of_pid,
)
from corral.zoo.tinyphysics.env import make_tinyphysics
from corral.zoo.tinyphysics.pid import steer_of_pid

# Arguments of the env that change its observations.
SEEN = {"scaled", "limit", "error_sum_limit", "dtype", "road"}


class View(NamedTuple):
    """One form of the env.

    Attributes:
        make: Makes one car.
        make_batched: Makes many cars.
        pid: Observations, and whether they are scaled -> a PID controller's actions.
        deviation: Of actions, to see how the controller corrects them.
    """

    name: str
    make: Callable[..., Any]
    make_batched: Callable[..., Any]
    pid: Callable[[NDArray[Any], bool], NDArray[np.float32]]
    deviation: float


STEERS = View("steers", make_tinyphysics, make_tinyphysics_batched, steer_of_pid, 0.015)
TURNS = View(
    "turns", make_cockpit, make_cockpit_batched, lambda seen, _: turn_of_pid(seen), 0.15
)
# The env of a run -> its view.
VIEWS = {
    "corral.zoo.tinyphysics:make_tinyphysics": STEERS,
    "corral.zoo.tinyphysics.cockpit:make_cockpit": TURNS,
}


def view_of(env: str) -> View:
    """Return the view of a run's env; raise OptionError for another env."""
    if env not in VIEWS:
        raise OptionError(f"env is {env!r}; choose {' or '.join(VIEWS)}")
    return VIEWS[env]


def seen_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments of an env that change its observations."""
    return {name: kwargs[name] for name in sorted(SEEN & kwargs.keys())}
