"""The grid world as PettingZoo's ParallelEnv, and as its AECEnv.

All random numbers come from `reset(seed)`: with a seed an episode does not depend on
earlier ones; without one the generator continues.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatten, flatten_space

from corral.errors import requires
from corral.zoo.grid_world.picture import Frame, picture_of
from corral.zoo.grid_world.world import (
    AGENT,
    CLOUD,
    GOAL,
    OBSTACLE,
    TARGET,
    Agent,
    Rules,
    World,
)

with requires("the grid world needs PettingZoo ({error}): pip install 'corral[multi]'"):
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils import parallel_to_aec, wrappers

SIZES = {
    "small": {"size": 10, "max_steps": 250, "obstacles": 3, "clouds": 3},
    "medium": {"size": 15, "max_steps": 250, "obstacles": 4, "clouds": 4},
    "large": {"size": 20, "max_steps": 500, "obstacles": 5, "clouds": 5},
}
Parts = dict[str, Any]


class GridWorld(ParallelEnv):  # type: ignore[misc]
    """All agents act at once; an agent that is out leaves `agents`, the others go on.

    Args:
        size: "small", "medium" or "large", or the side length in cells.
        ground: number of agents on the ground: `ground_0` and so on.
        air: number of agents in the air: `air_0` and so on.
        flat: True for one float32 vector instead of a Dict: 27 numbers on the ground,
            55 in the air, as Gymnasium flattens them.
        show_target: whether observations contain the cell of the target.
        render_mode: "rgb_array", or None.
        **rules: any of `Rules`: max_steps, watch, goal, death_on_sight, ...
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "grid_world_v0",
        "render_modes": ["rgb_array"],
        "render_fps": 5,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        size: str | int = "small",
        ground: int = 2,
        air: int = 1,
        flat: bool = False,
        show_target: bool = False,
        render_mode: str | None = None,
        **rules: Any,
    ) -> None:
        self.rules = _rules(size, rules)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; use 'rgb_array' or None")
        if ground < 0 or air < 0 or ground + air < 1:
            raise ValueError(
                f"ground={ground} and air={air}; at least one agent is needed"
            )
        self.render_mode = render_mode
        self.flat = flat
        self.show_target = show_target
        agents = [
            Agent(f"{kind}_{number}", number, flies=kind == "air")
            for kind, count in {"ground": ground, "air": air}.items()
            for number in range(count)
        ]
        self._by_name = {agent.name: agent for agent in agents}
        self.possible_agents = list(self._by_name)
        self.agents: list[str] = []
        self._full = {one.name: self._full_space(one) for one in agents}
        self.observation_spaces: dict[str, Space[Any]] = {
            name: _flat_space(space) if flat else space
            for name, space in self._full.items()
        }
        self.action_spaces = {one.name: spaces.Discrete(one.actions) for one in agents}
        side = self.rules.size
        self.state_space = spaces.Box(0, GOAL, (side, side), np.int8)
        self._rng: np.random.Generator | None = None
        self._world: World | None = None

    def observation_space(self, agent: str) -> Space[Any]:
        """The observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """Five moves; in the air also up, hold and down."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Parts]]:
        """Draw a new board and place all agents on it."""
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)
        self._world = World(self.rules, list(self._by_name.values()), self._rng)
        self.agents = list(self.possible_agents)
        return self._observed(), {name: {} for name in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, Parts],
    ]:
        """Step the world with one action of each present agent."""
        world = self._begun()
        if not self.agents:
            return {}, {}, {}, {}, {}
        outcomes = world.step({name: int(actions[name]) for name in self.agents})
        late = world.late
        ended = {name: one.ended for name, one in outcomes.items()}
        # Agents that are out get a last observation.
        observations = self._observed()
        world.leave({name for name in outcomes if ended[name] or late})
        self.agents = [agent.name for agent in world.present]
        return (
            observations,
            {name: one.reward for name, one in outcomes.items()},
            ended,
            dict.fromkeys(outcomes, late),
            {name: one.info for name, one in outcomes.items()},
        )

    def state(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """The whole board, one number per cell."""
        world = self._begun()
        board = np.where(world.board.clouds, CLOUD, 0).astype(np.int8)
        board[world.board.obstacles] = OBSTACLE
        if world.goal is not None:
            board[world.goal] = GOAL
        for agent in world.present:
            board[agent.cell] = AGENT
        board[world.target.cell] = TARGET
        return board

    def render(self) -> Frame | None:
        """A frame, if render_mode is "rgb_array"."""
        return picture_of(self._begun()) if self.render_mode is not None else None

    def close(self) -> None:
        """Nothing to release."""

    def _begun(self) -> World:
        if self._world is None:
            raise RuntimeError("the grid world has no episode yet: call reset first")
        return self._world

    def _full_space(self, agent: Agent) -> spaces.Dict:
        parts = agent.observation_parts(self.rules.size, self.rules.goal)
        shown = {"target": self.show_target, "goal": self.rules.goal}
        return spaces.Dict(
            parts | {name: parts["agent"] for name in shown if shown[name]}
        )

    def _observed(self) -> dict[str, Any]:
        """The observations of all agents, in order."""
        world, seen = self._begun(), dict[str, Any]()
        target = world.target.cell if self.show_target else None
        places = {"target": target, "goal": world.goal}
        for name in self.agents:
            agent = self._by_name[name]
            parts = agent.observed(world.look(agent))
            parts |= {key: np.array(at, np.int32) for key, at in places.items() if at}
            whole = flatten(self._full[name], parts) if self.flat else None
            seen[name] = parts if whole is None else np.asarray(whole, np.float32)
        return seen


def _rules(size: str | int, given: Parts) -> Rules:
    if isinstance(size, str) and size not in SIZES:
        raise ValueError(f"size is {size!r}; choose {', '.join(SIZES)} or a number")
    preset = SIZES[size] if isinstance(size, str) else {"size": int(size)}
    if preset["size"] < 4:
        raise ValueError(f"size is {size}; the smallest board has 4 cells a side")
    return Rules(**{**preset, **given})


def _flat_space(space: spaces.Dict) -> spaces.Box:
    whole = flatten_space(space)
    assert isinstance(whole, spaces.Box)
    return spaces.Box(
        whole.low.astype(np.float32), whole.high.astype(np.float32), dtype=np.float32
    )


def parallel_env(**arguments: Any) -> GridWorld:
    """Make a GridWorld; arguments as there."""
    return GridWorld(**arguments)


def env(**arguments: Any) -> AECEnv:
    """The same as AECEnv: the world steps after every agent had its turn."""
    turns = parallel_to_aec(GridWorld(**arguments))
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(turns))
