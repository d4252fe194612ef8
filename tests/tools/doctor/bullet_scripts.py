"""Code that calls PyBullet in the ways that people do. Imported while it is watched."""

from functools import partial

import pybullet as p
from pybullet import disconnect, stepSimulation
from pybullet import resetSimulation as wipe
from pybullet_utils.bullet_client import BulletClient


class Careless:
    def __init__(self):
        self.sim = p.connect(p.DIRECT)
        p.setGravity(
            0, 0,
            gravZ=-9.81,
        )  # fmt: skip

    def step(self):
        stepSimulation()
        return p.getQuaternionFromEuler([0, 0, 0])

    def close(self):
        disconnect()


class Careful:
    def __init__(self):
        self.sim = p.connect(p.DIRECT)
        p.setGravity(0, 0, -9.81, self.sim)

    def step(self):
        stepSimulation(self.sim)
        named = {"physicsClientId": self.sim}
        p.getNumBodies(**named)

    def close(self):
        disconnect(physicsClientId=self.sim)


class WithBulletClient:
    def __init__(self):
        self.bullet = BulletClient(p.DIRECT)
        self.bullet.setGravity(0, 0, -9.81)

    def step(self):
        self.bullet.stepSimulation()

    def close(self):
        self.bullet.disconnect()


class Inside:
    """The simulator belongs to a part."""

    def __init__(self):
        self.part = Careful()

    def step(self):
        p.performCollisionDetection()

    def close(self):
        self.part.close()


class Forgetful:
    def __init__(self):
        p.connect(p.DIRECT)

    def step(self):
        for _ in map(p.setTimeStep, [0.1]):
            pass

    def close(self):
        p.disconnect()


class OtherNames:
    def __init__(self):
        self.sim = p.connect(p.DIRECT)
        self.advance = p.stepSimulation
        wipe()

    def step(self):
        gravity = partial(p.setGravity, 0, 0)
        gravity(-9.81), self.advance(), gravity(-1.6)

    def close(self):
        self.leave(p.disconnect)

    @staticmethod
    def leave(how):
        how()
