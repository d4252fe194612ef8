"""The controller to evaluate: the official PID, or the policy of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from corral.core import EnvSpec, Policy
from corral.errors import OptionError
from corral.train.run.directory import find
from corral.zoo.tinyphysics import PID, make_tinyphysics, make_tinyphysics_batched
from corral.zoo.tinyphysics.cockpit import make_cockpit, make_cockpit_batched

PID_NAME = "pid"
PLAIN = "corral.zoo.tinyphysics"
VIEWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    f"{PLAIN}:make_tinyphysics": (make_tinyphysics, make_tinyphysics_batched),
    f"{PLAIN}.cockpit:make_cockpit": (make_cockpit, make_cockpit_batched),
}
"""The env of a run -> functions that make one car, and many cars."""
SEEN = {"scaled", "dtype", "road"}
"""Arguments of the env that change its observations."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A policy, and the functions that make its envs."""

    name: str
    policy_for: Callable[[EnvSpec], Policy]
    make: Callable[..., Any] = make_tinyphysics
    make_batched: Callable[..., Any] = make_tinyphysics_batched
    env_kwargs: dict[str, Any] = field(default_factory=dict)


def controller_of(name: str, checkpoint: str = "best") -> Controller:
    """The controller `pid`, or that of a run's directory or checkpoint."""
    if name == PID_NAME:
        return Controller("PID", lambda spec: PID(), env_kwargs={"dtype": "float64"})
    return _trained(Path(name), checkpoint)


def _trained(path: Path, which: str) -> Controller:
    directory = find(path)
    # Imported here: a PID needs neither torch nor pydantic.
    from corral.train.run.loaded_run import load_policy
    from corral.train.run.signed_config import read

    config = read(directory)
    if config.env not in VIEWS:
        raise OptionError(
            f"{path} is a run of {config.env}, not of tinyphysics; evaluate it with: "
            f"corral eval {path}"
        )
    make, make_batched = VIEWS[config.env]
    return Controller(
        name=str(path),
        policy_for=partial(load_policy, path, which=which),
        make=make,
        make_batched=make_batched,
        env_kwargs={
            key: config.env_kwargs[key] for key in SEEN & config.env_kwargs.keys()
        },
    )
