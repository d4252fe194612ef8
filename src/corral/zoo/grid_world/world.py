"""The board, the agents, the target; the rules: moves, rewards, ends of agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

# The board --------------------------------------------------------------------------

LONGEST_SIDE = 4
# Cells around the board, enough for the widest view from its edge.
MARGIN = 3

Layer = NDArray[np.int8]


class Board:
    """The part of the world that does not move during an episode.

    Layers have a margin, so that a view is one slice for every cell.
    """

    def __init__(
        self, size: int, obstacles: int, clouds: int, rng: np.random.Generator
    ) -> None:
        self.size = size
        self.obstacles = _rectangles(size, obstacles, rng)
        self.clouds = _rectangles(size, clouds, rng)
        # Seen from the ground: obstacles and the border.
        self.ground: Layer = np.full((size + 2 * MARGIN,) * 2, OBSTACLE, np.int8)
        inside = slice(MARGIN, MARGIN + size)
        self.ground[inside, inside] = self.obstacles
        # Seen from the air: the border only.
        self.border: Layer = self.ground.copy()
        self.border[inside, inside] = 0
        # Where clouds are.
        self.cover = np.zeros(self.ground.shape, np.bool_)
        self.cover[inside, inside] = self.clouds

    def blocks(self, cell: Cell) -> bool:
        """Whether the cell has an obstacle."""
        return bool(self.obstacles[cell])

    def free_cells(self, count: int, rng: np.random.Generator) -> list[Cell]:
        """Draw different cells without obstacles."""
        free = np.flatnonzero(~self.obstacles)
        if len(free) < count:  # too few: use cells with obstacles, too
            free = np.arange(self.size**2)
        chosen = rng.choice(free, size=count, replace=False).tolist()
        return [divmod(index, self.size) for index in chosen]


def _rectangles(size: int, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random rectangles with sides of one to four cells."""
    covered = np.zeros((size, size), np.bool_)
    for _ in range(count):
        width, height = rng.integers(1, LONGEST_SIDE + 1, 2).tolist()
        left = int(rng.integers(0, size - width + 1))
        top = int(rng.integers(0, size - height + 1))
        covered[left : left + width, top : top + height] = True
    return covered


def view(layer: NDArray[np.generic], cell: Cell, radius: int) -> NDArray[np.generic]:
    """The square of a layer around a cell."""
    left, top = cell[0] + MARGIN - radius, cell[1] + MARGIN - radius
    side = 2 * radius + 1
    return layer[left : left + side, top : top + side]


EMPTY = 0
# Also beyond the border.
OBSTACLE = 1
AGENT = 2
TARGET = 3
# Hides the cell from agents in the air.
CLOUD = 4
GOAL = 5
# Out of sight at the agent's altitude.
HIDDEN = -10

Cell = tuple[int, int]

# Right, up, left, down, stay.
MOVES: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0))
DIRECTIONS = MOVES[:4]


def beside(cell: Cell, move: Cell, size: int) -> Cell:
    """The cell after a move; the border stops it."""
    return (
        min(max(cell[0] + move[0], 0), size - 1),
        min(max(cell[1] + move[1], 0), size - 1),
    )


def distance(one: Cell, other: Cell) -> int:
    """The distance in steps."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


# Probability of a turn, per move.
TURNING = 0.3
# It sees the cells around its own, 3 x 3.
SIGHT = 1


class Target:
    """Keeps its direction for some steps, and avoids obstacles."""

    def __init__(self, cell: Cell, speed: float = 1.0) -> None:
        self.cell = cell
        # The probability that it moves in a step.
        self.speed = speed
        self.direction: Cell = (0, 0)

    def move(self, board: Board, rng: np.random.Generator) -> None:
        """Move by one cell, or stay."""
        if rng.random() < self.speed * TURNING:
            self.direction = DIRECTIONS[rng.integers(len(DIRECTIONS))]
        if rng.random() >= self.speed:
            return
        ahead = [beside(self.cell, self.direction, board.size)]
        if board.blocks(ahead[0]):
            order = rng.permutation(len(DIRECTIONS)).tolist()
            ahead = [beside(self.cell, DIRECTIONS[one], board.size) for one in order]
        free = (cell for cell in ahead if not board.blocks(cell))
        self.cell = next(free, self.cell)

    def sees(self, cell: Cell) -> bool:
        """Whether the cell is next to it, or the same."""
        away = max(abs(cell[0] - self.cell[0]), abs(cell[1] - self.cell[1]))
        return away <= SIGHT


# The episode ------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """The parameters of an episode.

    Attributes:
        watch: Lambda: the reward is -lambda if seen by the target, 1 - lambda if seeing
            it.
        new_cell: Reward for every cell that an agent enters for the first time.
        death_on_sight: Whether an agent that the target sees is out.
        goal: Whether there is a goal cell.
        approach: Reward for every step closer to the goal.
    """

    size: int = 10
    max_steps: int = 250
    obstacles: int = 3
    clouds: int = 3
    target_speed: float = 1.0
    watch: float = 0.5
    obstacle_penalty: float = -0.05
    step_penalty: float = -0.01
    new_cell: float = 0.025
    death_on_sight: bool = True
    goal: bool = False
    goal_reward: float = 20.0
    approach: float = 0.05


class Outcome(NamedTuple):
    """The result of a step for one agent."""

    reward: float
    ended: bool
    info: dict[str, bool]


class World:
    """One episode."""

    def __init__(
        self, rules: Rules, agents: list[Agent], rng: np.random.Generator
    ) -> None:
        self.rules = rules
        self.rng = rng
        # The agents that are not out yet.
        self.present = list(agents)
        self.steps = 0
        self.board = Board(rules.size, rules.obstacles, rules.clouds, rng)
        cells = self.board.free_cells(len(agents) + 2, rng)
        for agent, cell in zip(agents, cells, strict=False):
            agent.start(cell)
        self.target = Target(cells[-2], rules.target_speed)
        self.goal: Cell | None = cells[-1] if rules.goal else None

    @property
    def late(self) -> bool:
        """Whether the episode has reached its last step."""
        return self.steps >= self.rules.max_steps

    def step(self, actions: dict[str, int]) -> dict[str, Outcome]:
        """Move the agents, compute their results, then move the target."""
        self.steps += 1
        before = [agent.cell for agent in self.present]
        hits = [self._moved(agent, actions[agent.name]) for agent in self.present]
        outcomes = {
            agent.name: self._settled(agent, cell, hit)
            for agent, cell, hit in zip(self.present, before, hits, strict=True)
        }
        self.target.move(self.board, self.rng)
        return outcomes

    def leave(self, names: set[str]) -> None:
        """Remove agents from the board."""
        self.present = [agent for agent in self.present if agent.name not in names]

    def look(self, agent: Agent) -> View:
        """The view of an agent now; at higher levels it may miss the target."""
        chance = CHANCES[agent.altitude]
        seen = chance >= 1.0 or self.rng.random() < chance
        target = self.target.cell if seen else None
        return see(agent, self.board, self.present, target, self.goal)

    def _moved(self, agent: Agent, action: int) -> bool:
        """Move an agent; returns whether it hit an obstacle."""
        ahead = beside(agent.cell, agent.move_for(action), self.rules.size)
        walkers = [one for one in self.present if not one.flies and one is not agent]
        if not agent.flies and ahead != agent.cell and self.board.blocks(ahead):
            return True
        if agent.flies or all(one.cell != ahead for one in walkers):
            agent.cell = ahead
        return False

    def _settled(self, agent: Agent, before: Cell, hit: bool) -> Outcome:
        rules = self.rules
        reached = agent.cell == self.target.cell
        seen = not reached and self.target.sees(agent.cell)
        detects = not reached and TARGET in self.look(agent)
        reward = rules.obstacle_penalty if hit else 0.0
        if reached or seen:
            reward -= rules.watch
        else:
            reward += 1 - rules.watch if detects else rules.step_penalty
        if agent.cell not in agent.visited:
            agent.visited.add(agent.cell)
            reward += rules.new_cell
        at_goal = agent.cell == self.goal
        if self.goal is not None:
            nearer = distance(before, self.goal) - distance(agent.cell, self.goal)
            reward += rules.approach * nearer + rules.goal_reward * at_goal
        ended = reached or at_goal or (rules.death_on_sight and seen)
        info = {"detects_target": detects, "seen_by_target": seen, "obstacle_hit": hit}
        return Outcome(float(reward), ended, info)


View = NDArray[np.int8]
LEVELS = 3
# The probability of seeing a target in view, by altitude.
CHANCES = (1.0, 1.0, 0.66, 0.33)


class Agent:
    """An agent on the ground or in the air.

    On the ground it sees 5 x 5 cells; actions: four directions, or stay. In the air it
    is above obstacles, at one of three levels, and sees up to 7 x 7 cells: at level 1
    the inner 3 x 3 cells, and always a target there; at level 3 all cells, but a target
    with probability 1/3. Its actions are the moves, then up, hold, down.
    """

    def __init__(self, name: str, number: int, flies: bool) -> None:
        self.name = name
        # Its index among agents of its kind.
        self.number = number
        self.flies = flies
        # Cells that it sees in each direction.
        self.radius = 3 if flies else 2
        self.actions = len(MOVES) + 3 * flies
        self.start((0, 0))

    def start(self, cell: Cell) -> None:
        """Start an episode in a cell, in the air at the lowest level."""
        self.cell = cell
        self.visited = {cell}
        # The flight level, 1 to 3; 0 on the ground.
        self.altitude = int(self.flies)

    def move_for(self, action: int) -> Cell:
        """The move of an action; in the air it may also change the altitude."""
        if action < len(MOVES):
            return MOVES[action]
        change = (1, 0, -1)[action - len(MOVES)]
        self.altitude = min(max(self.altitude + change, 1), LEVELS)
        return (0, 0)

    def observation_parts(self, size: int, goal: bool) -> dict[str, spaces.Space[Any]]:
        """The spaces of its observation, by name; the flight level is never 0."""
        side = 2 * self.radius + 1
        low, high = (HIDDEN, CLOUD) if self.flies else (0, TARGET)
        view_space = spaces.Box(low, GOAL if goal else high, (side, side), np.int8)
        level = {"flight_level": spaces.Discrete(LEVELS + 1)} if self.flies else {}
        place = spaces.Box(0, size - 1, (2,), np.int32)
        return {"agent": place, "obstacles_fov": view_space, **level}

    def observed(self, seen: View) -> dict[str, Any]:
        """The observation, without target and goal."""
        level = {"flight_level": np.int64(self.altitude)} if self.flies else {}
        return {"agent": np.array(self.cell, np.int32), "obstacles_fov": seen, **level}


def see(
    agent: Agent,
    board: Board,
    others: list[Agent],
    target: Cell | None,
    goal: Cell | None,
) -> View:
    """The view of an agent; target is None if it does not detect it."""
    layer = board.border if agent.flies else board.ground
    seen = np.array(view(layer, agent.cell, agent.radius), np.int8)
    things = [
        (other.cell, AGENT)
        for other in others
        if other is not agent and other.altitude <= agent.altitude
    ]
    for cell, code in [*things, (goal, GOAL), (target, TARGET)]:
        if cell is not None:
            across, up = (cell[axis] - agent.cell[axis] for axis in (0, 1))
            if max(abs(across), abs(up)) <= agent.radius:
                seen[across + agent.radius, up + agent.radius] = code
    return _from_above(agent, board, seen) if agent.flies else seen


def _from_above(agent: Agent, board: Board, seen: View) -> View:
    """Clouds hide agents; cells out of sight are HIDDEN."""
    below = (seen != OBSTACLE) & (seen != TARGET) & (seen != GOAL)
    seen[np.asarray(view(board.cover, agent.cell, agent.radius)) & below] = CLOUD
    if rings := LEVELS - agent.altitude:
        seen[:rings] = seen[-rings:] = HIDDEN
        seen[:, :rings] = seen[:, -rings:] = HIDDEN
    return seen
