"""PyBullet with one simulator: what each call is for need not be said again.

    client = Client()
    client.connect(client.DIRECT)
    client.stepSimulation()        # pybullet.stepSimulation(physicsClientId=...)

PyBullet keeps its simulators in a table of the process, and a call without an id goes
to the first. Code that was written for the module `pybullet` can be given a Client
instead; then several of its worlds can be in one process.
"""

from __future__ import annotations

from functools import partial
from types import BuiltinFunctionType
from typing import Any

from corral.errors import requires

with requires(
    "this env needs PyBullet, which has wheels up to Python 3.11: "
    "pip install 'corral[bullet]'"
):
    import pybullet

__all__ = ["Client", "pybullet"]


class Client:
    """The names of the module `pybullet`; its functions are for one simulator."""

    def __init__(self) -> None:
        # Of the simulator; -1 while there is none.
        self.number = -1

    def __getattr__(self, name: str) -> Any:
        value = getattr(pybullet, name)
        if isinstance(value, BuiltinFunctionType):
            value = partial(value, physicsClientId=self.number)
            self.__dict__[name] = value  # found without this method from now on
        return value

    def connect(self, *arguments: Any, **named: Any) -> int:
        """Open the simulator; returns its number, as PyBullet does."""
        self.disconnect()
        self.number = pybullet.connect(*arguments, **named)
        if self.number < 0:
            raise RuntimeError("PyBullet cannot open another simulator in this process")
        return self.number

    def disconnect(self) -> None:
        """Close this simulator, and no other; idempotent."""
        number = self.number
        self.__dict__ = {"number": -1}  # without the functions: ids are used again
        if number >= 0:
            pybullet.disconnect(physicsClientId=number)

    close = disconnect
