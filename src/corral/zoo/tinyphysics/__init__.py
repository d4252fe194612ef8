"""TinyPhysics: steer a car that a small language model simulates.

    env = make_tinyphysics("data", "tinyphysics.onnx")      one car
    envs = make_tinyphysics_batched(8, "data", "tinyphysics.onnx")

After comma's controls challenge (v2). Without paths it uses a small generated model and
synthetic routes.

route       drives read from CSV files or generated, and the order of slots
track       a route after its warm-up, what a controller observes of it
model       the ONNX session                     onnx_graphs   models made here
tokens      accelerations as the model's tokens  costs   the cost of a drive
env, batch  one car, many cars in one call       pid     the controller to beat

Names are imported at first use: options can be shown without gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral.zoo.tinyphysics.batch import (
        TinyPhysicsVectorEnv,
        make_tinyphysics_batched,
    )
    from corral.zoo.tinyphysics.costs import Costs
    from corral.zoo.tinyphysics.env import TinyPhysicsEnv, make_tinyphysics
    from corral.zoo.tinyphysics.model import Model, load_model
    from corral.zoo.tinyphysics.pid import PID
    from corral.zoo.tinyphysics.route import (
        Route,
        RouteOrder,
        find_routes,
        load_route,
        write_route,
    )
    from corral.zoo.tinyphysics.track import OBS_SCALE


__all__ = [
    "Costs",
    "Model",
    "OBS_SCALE",
    "PID",
    "Route",
    "RouteOrder",
    "TinyPhysicsEnv",
    "TinyPhysicsVectorEnv",
    "find_routes",
    "load_model",
    "load_route",
    "make_tinyphysics",
    "make_tinyphysics_batched",
    "write_route",
]

__getattr__ = lazy(
    __name__,
    {
        ".batch": "TinyPhysicsVectorEnv make_tinyphysics_batched",
        ".costs": "Costs",
        ".env": "TinyPhysicsEnv make_tinyphysics",
        ".model": "Model load_model",
        ".pid": "PID",
        ".route": "Route RouteOrder find_routes load_route write_route",
        ".track": "OBS_SCALE",
    },
)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
