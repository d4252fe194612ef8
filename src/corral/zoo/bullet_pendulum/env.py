"""A wheeled inverted pendulum in PyBullet; several envs can share a process.

    obs      pitch, ground position, pitch rate, ground velocity
    action   target ground velocity, at most 1 m/s
    reward   1 for every step; an episode ends when the pendulum falls

Every call goes through a client, which says which simulator it is for.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from corral.zoo.bullet_pendulum.camera import picture
from corral.zoo.bullet_pendulum.client import Client, pybullet

# Steps per second.
RATE = 50.0
SUBSTEPS = 5
# Radians.
FALLEN = 1.0
WHEEL_RADIUS = 0.08
# Of the rod: the distance from the axle to its middle.
HALF_HEIGHT = 0.25
# Newton metres, of each wheel.
TORQUE = 2.0
WHEELS = (0, 1)

Obs = NDArray[np.float32]


class BulletPendulum(gymnasium.Env[Obs, NDArray[np.float32]]):
    """A rod on two wheels.

    Args:
        max_steps: steps after which an episode is truncated; None: no limit.
        init_rand: largest deviation from upright and at rest at the start of an
            episode, in radians, and in radians and metres per second.
        render_mode: None or "rgb_array".
    """

    metadata = {  # noqa: RUF012 - as Gymnasium has it
        "render_modes": ["rgb_array"],
        "render_fps": int(RATE),
        "corral.isolation": "shared",
    }

    def __init__(
        self,
        *,
        max_steps: int | None = 300,
        init_rand: float = 0.1,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.max_steps = max_steps
        self.init_rand = init_rand
        high = np.array([math.pi, np.inf, np.inf, np.inf], np.float32)
        self.observation_space = Box(-high, high)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.client = self.connect()
        self._steps = 0

    def connect(self) -> Any:
        """Open the simulator of this env."""
        client = Client()
        client.connect(client.DIRECT)
        return client

    def update_init_rand(self, init_rand: float) -> None:
        """Set `init_rand` for the next episodes; called by a curriculum."""
        self.init_rand = init_rand

    # Episodes -------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Build a new world, so that the solver keeps nothing of the last episode."""
        super().reset(seed=seed)
        pitch, pitch_rate, velocity = self.np_random.uniform(
            -self.init_rand, self.init_rand, 3
        )
        self._steps = 0
        self._build(pitch)
        client = self.client
        client.resetBaseVelocity(self._rod, [velocity, 0, 0], [0, pitch_rate, 0])
        for wheel in WHEELS:
            spin = velocity / WHEEL_RADIUS - pitch_rate
            client.resetJointState(self._rod, wheel, 0.0, spin)
        return self._observed(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Drive for a fiftieth of a second."""
        velocity = float(np.clip(action[0], -1.0, 1.0))
        client = self.client
        client.setJointMotorControlArray(
            self._rod,
            WHEELS,
            pybullet.VELOCITY_CONTROL,
            targetVelocities=[velocity / WHEEL_RADIUS] * 2,
            forces=[TORQUE] * 2,
        )
        for _ in range(SUBSTEPS):
            client.stepSimulation()
        self._steps += 1
        obs = self._observed()
        fallen = bool(abs(obs[0]) > FALLEN)
        late = self.max_steps is not None and self._steps >= self.max_steps
        return obs, 1.0, fallen, late and not fallen, {}

    def _observed(self) -> Obs:
        client, rod = self.client, self._rod
        position, orientation = client.getBasePositionAndOrientation(rod)
        linear, angular = client.getBaseVelocity(rod)
        pitch = pybullet.getEulerFromQuaternion(orientation)[1]
        # Of the axle, not of the rod's middle, which sways.
        ground = position[0] - HALF_HEIGHT * math.sin(pitch)
        speed = linear[0] - HALF_HEIGHT * math.cos(pitch) * angular[1]
        return np.array([pitch, ground, angular[1], speed], np.float32)

    # The world ------------------------------------------------------------------------

    def _build(self, pitch: float) -> None:
        client = self.client
        client.resetSimulation()
        client.setGravity(0.0, 0.0, -9.81)
        client.setTimeStep(1.0 / (RATE * SUBSTEPS))
        floor = client.createCollisionShape(pybullet.GEOM_PLANE)
        client.createMultiBody(0.0, floor)
        rod = self._shape(pybullet.GEOM_BOX, halfExtents=[0.03, 0.1, HALF_HEIGHT])
        wheel = self._shape(pybullet.GEOM_CYLINDER, radius=WHEEL_RADIUS, height=0.04)
        across = pybullet.getQuaternionFromEuler([math.pi / 2, 0.0, 0.0])
        height = WHEEL_RADIUS + HALF_HEIGHT * math.cos(pitch)
        self._rod = client.createMultiBody(
            2.0,
            *rod,
            [HALF_HEIGHT * math.sin(pitch), 0.0, height],
            pybullet.getQuaternionFromEuler([0.0, pitch, 0.0]),
            linkMasses=[0.3, 0.3],
            linkCollisionShapeIndices=[wheel[0]] * 2,
            linkVisualShapeIndices=[wheel[1]] * 2,
            linkPositions=[[0.0, side, -HALF_HEIGHT] for side in (-0.13, 0.13)],
            linkOrientations=[across] * 2,
            linkInertialFramePositions=[[0.0, 0.0, 0.0]] * 2,
            linkInertialFrameOrientations=[[0.0, 0.0, 0.0, 1.0]] * 2,
            linkParentIndices=[0, 0],
            linkJointTypes=[pybullet.JOINT_REVOLUTE] * 2,
            linkJointAxis=[[0.0, 0.0, -1.0]] * 2,
        )

    def _shape(self, kind: int, **size: Any) -> tuple[int, int]:
        """A collision shape, and a visual one if the env renders."""
        shape: int = self.client.createCollisionShape(kind, **size)
        if self.render_mode is None:
            return shape, -1
        if "height" in size:  # visual shapes call it length
            size = {"radius": size["radius"], "length": size["height"]}
        color = [0.2, 0.4, 0.8, 1.0] if kind == pybullet.GEOM_BOX else [0.2] * 3 + [1.0]
        return shape, self.client.createVisualShape(kind, rgbaColor=color, **size)

    def render(self) -> Any:
        """A picture that follows the pendulum."""
        if self.render_mode != "rgb_array":
            return None
        (x, _, _), _ = self.client.getBasePositionAndOrientation(self._rod)
        return picture(self.client, (x, -1.6, 0.6), (x, 0.0, 0.25))

    def close(self) -> None:
        """Disconnect this simulator; the others stay."""
        self.client.close()


def make(**kwargs: Any) -> BulletPendulum:
    """Make one env: `corral.zoo.bullet_pendulum:make`."""
    return BulletPendulum(**kwargs)
