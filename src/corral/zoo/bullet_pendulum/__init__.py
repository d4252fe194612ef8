"""A wheeled inverted pendulum in PyBullet: its env and its recipe."""

from corral.zoo.bullet_pendulum.env import BulletPendulum, make

__all__ = ["BulletPendulum", "make"]
