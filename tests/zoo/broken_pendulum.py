"""The wheeled pendulum as many write it: no call says which simulator it is for.

Alone it does what the right one does; of two in a process both drive the first.
"""

import pybullet

from corral.zoo.bullet_pendulum import BulletPendulum


class Nameless:
    """PyBullet itself; a call without a client goes to the first one."""

    def __init__(self):
        pybullet.connect(pybullet.DIRECT)

    def __getattr__(self, name):
        return getattr(pybullet, name)

    def close(self):
        if pybullet.isConnected():
            pybullet.disconnect()


class BrokenPendulum(BulletPendulum):
    """Unsafe beside another one, and does not know it."""

    metadata = {  # noqa: RUF012
        key: value
        for key, value in BulletPendulum.metadata.items()
        if key != "corral.isolation"
    }

    def connect(self):
        return Nameless()


def make(**kwargs):
    return BrokenPendulum(**kwargs)


class LeavingPendulum(BrokenPendulum):
    """Disconnects at the end of an episode, until the next one begins."""

    def reset(self, **arguments):
        if not pybullet.isConnected():
            self.client = self.connect()
        return super().reset(**arguments)

    def step(self, action):
        outcome = super().step(action)
        if outcome[2] or outcome[3]:
            self.client.close()
        return outcome
