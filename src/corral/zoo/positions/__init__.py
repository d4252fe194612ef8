"""CartPole without velocities: its env, and the recipe `memory`."""

from corral.zoo.positions.env import PositionsOnly, make

__all__ = ["PositionsOnly", "make"]
