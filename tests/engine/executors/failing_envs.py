"""Envs that fail in one of their methods, wherever they run."""

from lonely_envs import Walk


class FailsInStep(Walk):
    """Its first step raises."""

    def step(self, action):
        raise ValueError("the gripper is stuck")


class FailsInReset(Walk):
    """Its first reset raises."""

    def reset(self, **arguments):
        raise ValueError("no such arena")


class FailsInConstructor(Walk):
    """It cannot be built."""

    def __init__(self):
        raise ValueError("no licence")
