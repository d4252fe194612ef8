"""Boxes on a floor, simulated with Box2D: gravity, pushes, jumps. y points downwards.

One action lasts several physics steps. In each of them

    speeds are recorded      a box may jump after ten calm steps
    forces act               as the actions say
    Box2D moves the bodies

The floor reaches from -26.7 to 26.7, the field from 0 to 26.7: a box that leaves the
field on the right falls, one that leaves it on the left slides on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.errors import requires

with (
    requires("the boxes need Box2D ({error}): pip install 'corral[box_jump]'"),
    warnings.catch_warnings(),
):
    # Its types have no __module__, of which Python warns. Where warnings are errors
    # (python -W error, pytest), its import would end the process by SIGSEGV.
    warnings.simplefilter("ignore", DeprecationWarning)
    from Box2D import b2PolygonShape, b2World

# The field, in box sides of 1: 800 by 600 pixels, 30 to a side.
WIDTH, HEIGHT = 800 / 30, 20.0
FLOOR = 15.0
# Physics steps per second, before `physics_timestep_multiplier`.
RATE = 40
# Of Box2D's solver, for speeds and for positions.
ITERATIONS = 30
# Forces, before they are divided by `physics_timestep_multiplier`.
PUSH_FORCE, JUMP_FORCE = 10.0, 250.0
# A box that is faster than this is not pushed further.
TOP_SPEED = 2.0
# A box may jump if its vertical speed was below this in so many steps in a row.
CALM_SPEED, CALM_STEPS = 0.5, 10

# Of the boxes' centres.
Places = Sequence[tuple[float, float]]
ACTIONS = STAY, LEFT, RIGHT, JUMP = range(4)


@dataclass(frozen=True, slots=True)
class Rules:
    """What an episode is like; names and defaults are those of boxjump's version 1.

    Attributes:
        box_width: Of each box; the floor is 15 below the top of the field.
        gravity: Downwards.
        friction: Of the boxes; the floor has Box2D's own, 0.2.
        spacing: Between the centres of two boxes at the start.
        random_spacing: How far a box may start from its place, on either side.
        angular_damping: Slows down rotation.
        fixed_rotation: Whether boxes keep upright.
        physics_steps_per_action: How often an action is applied.
        physics_timestep_multiplier: Of a physics step of 1/40 s; forces are divided by
            it.
        max_timestep: Actions before the last one, in which the episode is truncated.
        reward_mode: See `corral.zoo.box_jump.rewards`.
        termination_on_fall: Whether the episode ends when a box leaves the field.
        penalty_fall_termination: The reward of that box, if the episode ends.
        penalty_fall: If it goes on, what a box loses that is outside all the time.
        termination_max_height: Height of the highest box that ends the episode.
        termination_reward_coef: What all rewards of that physics step are multiplied
            with.
    """

    box_width: float = 1.0
    box_height: float = 1.0
    gravity: float = 10.0
    friction: float = 0.8
    spacing: float = 1.5
    random_spacing: float = 0.5
    angular_damping: float = 1.0
    fixed_rotation: bool = True
    physics_steps_per_action: int = 6
    physics_timestep_multiplier: float = 2.0
    max_timestep: int = 400
    reward_mode: str = "highest"
    termination_on_fall: bool = True
    penalty_fall_termination: float = -100.0
    penalty_fall: float = 20.0
    termination_max_height: float | None = None
    termination_reward_coef: float = 100.0


class World:
    """The bodies of one episode.

    Args:
        rules: what they are like.
        count: number of boxes.
        rng: draws where they start.
    """

    def __init__(self, rules: Rules, count: int, rng: np.random.Generator) -> None:
        self._rules = rules
        # Physics steps in a row in which each box was calm.
        self.calm = [0] * count
        self._world = b2World(gravity=(0, rules.gravity), doSleep=True)
        half = rules.box_width / 2, rules.box_height / 2
        first = WIDTH / 2 - rules.spacing * (count - 1) / 2
        reach = rules.random_spacing
        self.bodies: list[Any] = []
        for number in range(count):
            x = first + number * rules.spacing + rng.uniform(-reach, reach)
            at = (x, FLOOR - rules.box_height / 2)
            body = self._world.CreateDynamicBody(position=at)
            shape = b2PolygonShape(box=half)
            body.CreateFixture(shape=shape, density=1, friction=rules.friction)
            body.angularDamping = rules.angular_damping
            body.fixedRotation = rules.fixed_rotation
            self.bodies.append(body)
        floor = self._world.CreateStaticBody(position=(0, HEIGHT))
        floor.CreateFixture(shape=b2PolygonShape(box=(WIDTH, HEIGHT - FLOOR)))

    def push(self, actions: Sequence[int]) -> None:
        """Record the speeds, then apply the forces of one physics step."""
        slower = self._rules.physics_timestep_multiplier
        for number, (body, action) in enumerate(zip(self.bodies, actions, strict=True)):
            speed = body.linearVelocity
            calm = abs(speed.y) < CALM_SPEED
            self.calm[number] = self.calm[number] + 1 if calm else 0
            if action == JUMP:
                if self.can_jump(number):
                    body.ApplyForceToCenter((0, -JUMP_FORCE / slower), True)
            elif action != STAY:
                way = 1 if action == RIGHT else -1
                if way * speed.x <= TOP_SPEED:
                    body.ApplyForceToCenter((way * PUSH_FORCE / slower, 0), True)

    def move(self) -> None:
        """Let the time of one physics step pass."""
        seconds = self._rules.physics_timestep_multiplier / RATE
        self._world.Step(seconds, ITERATIONS, ITERATIONS)

    def can_jump(self, number: int) -> bool:
        """Whether a box has stood still vertically for long enough."""
        return self.calm[number] >= CALM_STEPS

    def places(self) -> list[tuple[float, float]]:
        """Where the centre of each box is."""
        return [(at.x, at.y) for at in (body.position for body in self.bodies)]

    def heights(self, places: Places) -> list[float]:
        """How many boxes above the floor each box is: 0 on the floor."""
        side = self._rules.box_height
        return [(FLOOR - y - side / 2) / side for _, y in places]


# What a box sees ----------------------------------------------------------------------

# Boxes are neighbours if they overlap by more than this, seen from that direction.
OVERLAP = 0.1
# Heights further below the floor are -1.
BELOW_FLOOR = -0.001
# How many numbers `seen` returns for each box.
SEEN = 11


def seen(world: World, rules: Rules) -> list[list[float]]:
    """What each box sees of itself and its neighbours; see `parallel.BoxJump`."""
    places = world.places()
    heights = world.heights(places)
    rows = []
    for number, body in enumerate(world.bodies):
        x, height, speed = places[number][0], heights[number], body.linearVelocity
        quarters = body.angle / (math.pi / 2)
        rows.append(
            [
                x / WIDTH * 2 - 1,
                -1.0 if height < BELOW_FLOOR else height,
                speed.x * 0.5,
                speed.y * 0.125,
                (quarters + 0.5) % 1.0 - 0.5,
                body.angularVelocity * 0.5,
                *_neighbours(places, places[number], rules),
                float(world.can_jump(number)),
            ]
        )
    return rows


def _neighbours(
    places: Places, place: tuple[float, float], rules: Rules
) -> tuple[float, float, float, float]:
    """Distances to the nearest box on the left, on the right, above and below."""
    x, y = place
    wide, high = rules.box_width - OVERLAP, rules.box_height - OVERLAP
    left = right = above = below = math.inf
    for other_x, other_y in places:
        across, down = other_x - x, other_y - y
        if -high < down < high:  # beside it
            if across < 0:
                left = min(left, -across)
            elif across > 0:
                right = min(right, across)
        if -wide < across < wide:
            if down < 0:
                above = min(above, -down)
            elif down > 0:
                below = min(below, down)
    return (
        1.0 if left == math.inf else left / WIDTH,
        1.0 if right == math.inf else right / WIDTH,
        1.0 if above == math.inf else above / HEIGHT,
        # Below there is always something.
        (FLOOR - y if below == math.inf else below) / HEIGHT,
    )
