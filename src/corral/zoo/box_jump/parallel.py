"""The boxes as PettingZoo's ParallelEnv.

All random numbers come from `reset(seed)`: with a seed an episode does not depend on
earlier ones; without one the generator continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.errors import requires
from corral.train.sinks.window import Window
from corral.zoo.box_jump.picture import Frame, picture_of
from corral.zoo.box_jump.rewards import MODES, Moment
from corral.zoo.box_jump.world import (
    ACTIONS,
    SEEN,
    WIDTH,
    Places,
    Rules,
    World,
    seen,
)

with requires("the boxes need PettingZoo ({error}): pip install 'corral[box_jump]'"):
    from pettingzoo import ParallelEnv

Floats = NDArray[np.float32]
ByAgent = dict[str, Any]
RENDER_MODES = ("rgb_array", "human")


class BoxJump(ParallelEnv):  # type: ignore[misc]
    """All boxes act at once, and an episode is over for all of them together.

    Actions: 0 nothing, 1 and 2 push to the left and right, 3 jump. Observations:

        0 x, -1 to 1                      6 distance to the next box on the left
        1 height in boxes, -1 below       7 ... on the right
        2 horizontal speed / 2            8 ... above (6 to 8: 1 without one)
        3 vertical speed / 8, downwards   9 ... below, or to the floor
        4 rotation in quarter turns      10 whether the box may jump
        5 angular speed / 2

    then, as asked for: the best height, the time, who the box is, how many boxes play.
    Distances are between centres, in parts of the field's width or height.

    Possible agents are `box-1` to `box-N`. How many of them play is an episode's task:
    `set_task(3)` has the first three play from the next reset on; the others are not
    in `agents`. The last infos have `best_height` and `boxes`.

    Args:
        num_boxes: the most boxes that can play.
        include_highest: whether boxes see the best height of the episode.
        include_time: whether they see the time, 0 to 1.
        agent_one_hot: whether each sees which box it is.
        include_num_boxes: whether they see how many play.
        render_mode: "rgb_array", "human" for a window, or None.
        **rules: any of `Rules`: reward_mode, max_timestep, termination_on_fall, ...
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "box_jump_v1",
        "render_modes": list(RENDER_MODES),
        "render_fps": 10,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        num_boxes: int = 4,
        *,
        include_highest: bool = False,
        include_time: bool = False,
        agent_one_hot: bool = False,
        include_num_boxes: bool = True,
        render_mode: str | None = None,
        **rules: Any,
    ) -> None:
        self.rules = Rules(**rules)
        _check(self.rules, num_boxes)
        if render_mode not in (None, *RENDER_MODES):
            raise ValueError(
                f"render_mode is {render_mode!r}; use 'rgb_array', 'human' or None"
            )
        self.render_mode = render_mode
        self.possible_agents = [f"box-{number}" for number in range(1, num_boxes + 1)]
        self.agents: list[str] = []
        self._options = {
            "highest": include_highest,
            "time": include_time,
            "count": include_num_boxes,
        }
        self._one_hot = agent_one_hot
        common = sum(self._options.values())
        size = SEEN + common + num_boxes * agent_one_hot
        self._space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._actions = spaces.Discrete(len(ACTIONS))
        whole = (SEEN * num_boxes + common,)
        self.state_space = spaces.Box(-np.inf, np.inf, whole, np.float32)
        self._playing = num_boxes
        self._rng: np.random.Generator | None = None
        self._world: World | None = None
        self._window: Window | None = None
        self._best = 0.0
        self._time = 0

    @property
    def observation_spaces(self) -> dict[str, spaces.Box]:
        """The observation space of each agent."""
        return dict.fromkeys(self.possible_agents, self._space)

    @property
    def action_spaces(self) -> dict[str, spaces.Discrete]:
        """The action space of each agent."""
        return dict.fromkeys(self.possible_agents, self._actions)

    def observation_space(self, agent: str) -> spaces.Box:
        """The observation space of an agent."""
        return self._space

    def action_space(self, agent: str) -> spaces.Discrete:
        """Nothing, left, right, jump."""
        return self._actions

    # Episodes -------------------------------------------------------------------------

    def sample_tasks(self, count: int, rng: np.random.Generator) -> list[int]:
        """Draw how many boxes play, from 1 to all."""
        drawn = rng.integers(1, len(self.possible_agents), count, endpoint=True)
        return [int(number) for number in drawn]

    def set_task(self, task: int) -> None:
        """Have so many boxes play from the next reset on."""
        most = len(self.possible_agents)
        if not 1 <= int(task) <= most:
            raise ValueError(f"the task is {task!r}; 1 to {most} boxes can play")
        self._playing = int(task)

    def get_task(self) -> int:
        """How many boxes play."""
        return self._playing

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Floats], dict[str, ByAgent]]:
        """Place the boxes on the floor, side by side."""
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)
        self._world = World(self.rules, self._playing, self._rng)
        self.agents = self.possible_agents[: self._playing]
        self._best, self._time = 0.0, 0
        self._show()
        return self._observed(), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, Floats],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, ByAgent],
    ]:
        """Apply one action of each box, for several physics steps."""
        self._begun()
        if not self.agents:
            return {}, {}, {}, {}, {}
        agents, chosen = self.agents, [int(actions[agent]) for agent in self.agents]
        if not all(action in ACTIONS for action in chosen):
            raise ValueError(f"the actions are {actions}; each must be 0, 1, 2 or 3")
        paid, over = [0.0] * len(agents), False
        for _ in range(self.rules.physics_steps_per_action):
            rewards, over = self._physics_step(chosen)
            paid = [one + more for one, more in zip(paid, rewards, strict=True)]
            if over:
                break
        self._time += 1
        late = self._time > self.rules.max_timestep
        if late:  # boxjump does not pay the last step
            paid = [0.0] * len(agents)
        self._show()
        info = {"best_height": self._best, "boxes": len(agents)}
        result = (
            self._observed(),
            dict(zip(agents, paid, strict=True)),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, late),
            {agent: dict(info) if over or late else {} for agent in agents},
        )
        if over or late:
            self.agents = []
        return result

    def _physics_step(self, actions: list[int]) -> tuple[list[float], bool]:
        """The rewards of one physics step, and whether it ends the episode.

        Heights are those before the boxes move.
        """
        world, rules = self._begun(), self.rules
        world.push(actions)
        places, count = world.places(), len(actions)
        heights = world.heights(places)
        steady = [world.can_jump(number) for number in range(count)]
        counted = steady if rules.reward_mode == "highest_stable" else [True] * count
        known = [one for one, counts in zip(heights, counted, strict=True) if counts]
        best = max([self._best, *known])
        moment = Moment(heights, steady, best - self._best, rules.max_timestep)
        each = count * rules.physics_steps_per_action
        rewards = [reward / each for reward in MODES[rules.reward_mode](moment)]
        over = self._fallen(rewards, places)
        world.move()
        self._best = best
        goal = rules.termination_max_height
        if goal is None or best < goal:
            return rewards, over
        return [one * rules.termination_reward_coef for one in rewards], True

    def _fallen(self, rewards: list[float], places: Places) -> bool:
        """Pay the boxes outside the field; returns whether that ends the episode."""
        rules = self.rules
        for number, (x, _) in enumerate(places):
            if 0 <= x <= WIDTH:
                continue
            if rules.termination_on_fall:
                rewards[number] = rules.penalty_fall_termination
                # Boxes after it in the list get nothing in this physics step.
                rewards[number + 1 :] = [0.0] * (len(rewards) - number - 1)
                return True
            share = rules.max_timestep * rules.physics_steps_per_action
            rewards[number] = -rules.penalty_fall / share
        return False

    # What is seen ---------------------------------------------------------------------

    def _common(self) -> list[float]:
        """What all boxes see, as asked for."""
        values = {
            "highest": self._best,
            "time": self._time / self.rules.max_timestep,
            "count": float(len(self._begun().bodies)),
        }
        return [values[name] for name, shown in self._options.items() if shown]

    def _observed(self) -> dict[str, Floats]:
        rows, common = seen(self._begun(), self.rules), self._common()
        shown = {}
        for number, (agent, row) in enumerate(zip(self.agents, rows, strict=True)):
            # In boxjump's order: best height, time, who, how many.
            end = len(common) - self._options["count"]
            who = [0.0] * (len(self.possible_agents) if self._one_hot else 0)
            if who:
                who[number] = 1.0
            whole = [*row, *common[:end], *who, *common[end:]]
            shown[agent] = np.array(whole, np.float32)
        return shown

    def state(self) -> Floats:
        """What all boxes see, box after box, and once what they have in common.

        Zeros for boxes that do not play.
        """
        rows, common = seen(self._begun(), self.rules), self._common()
        whole = np.zeros(self.state_space.shape, np.float32)
        flat = [number for row in rows for number in row]
        whole[: len(flat)] = flat
        whole[len(whole) - len(common) :] = common
        return whole

    def render(self) -> Frame | None:
        """A frame, if render_mode is "rgb_array"."""
        if self.render_mode != "rgb_array":
            return None
        return picture_of(self._begun(), self.rules, self._best)

    def _show(self) -> None:
        if self.render_mode == "human":
            self._window = self._window or Window("box_jump")
            frame = picture_of(self._begun(), self.rules, self._best)
            self._window.show(frame, self.metadata["render_fps"])

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def _begun(self) -> World:
        if self._world is None:
            raise RuntimeError("there is no episode yet: call reset first")
        return self._world


def _check(rules: Rules, num_boxes: int) -> None:
    if num_boxes < 1:
        raise ValueError(f"num_boxes is {num_boxes}; at least one box is needed")
    if rules.reward_mode not in MODES:
        raise ValueError(
            f"reward_mode is {rules.reward_mode!r}; choose one of {', '.join(MODES)}"
        )
    if min(rules.max_timestep, rules.physics_steps_per_action) < 1:
        raise ValueError(
            f"max_timestep is {rules.max_timestep} and physics_steps_per_action is "
            f"{rules.physics_steps_per_action}; both must be >= 1"
        )
    widest = rules.spacing * (num_boxes - 1) + 2 * rules.random_spacing
    if widest > WIDTH:
        raise ValueError(
            f"{num_boxes} boxes with spacing={rules.spacing} and random_spacing="
            f"{rules.random_spacing} start up to {widest:.1f} apart, and the field is "
            f"{WIDTH:.1f} wide: lower one of the three"
        )


def parallel_env(**arguments: Any) -> BoxJump:
    """Make a BoxJump; arguments as there."""
    return BoxJump(**arguments)
