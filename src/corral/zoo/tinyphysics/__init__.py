"""TinyPhysics: steer a car that a small language model simulates.

    env = make_tinyphysics("data", "tinyphysics.onnx")      one car
    envs = make_tinyphysics_batched(8, "data", "tinyphysics.onnx")

After comma's controls challenge (v2). With no path, a small model and routes that are
made here.

route       one drive, read from a CSV file    routes, drives   who drives which next
synthetic   drives that are made up            track   a route behind its warm-up
model       the ONNX session                   small_model, onnx_file   one made here
tokens      accelerations as the model counts  costs   what a drive costs
env, batch  one car, many cars in one call     pid     the controller to beat
"""

from corral.zoo.tinyphysics.batch import TinyPhysicsVectorEnv, make_tinyphysics_batched
from corral.zoo.tinyphysics.costs import Costs
from corral.zoo.tinyphysics.env import TinyPhysicsEnv, make_tinyphysics
from corral.zoo.tinyphysics.model import Model, load_model
from corral.zoo.tinyphysics.observation import OBS_SCALE
from corral.zoo.tinyphysics.pid import PID
from corral.zoo.tinyphysics.route import Route
from corral.zoo.tinyphysics.routes import RouteOrder, find_routes, load_route
from corral.zoo.tinyphysics.synthetic import write_route

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
