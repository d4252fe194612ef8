"""What PettingZoo's two kinds of envs have in common, seen as Adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import NO_TASK, EnvSpec
from corral.engine.adapters.roster import Roster, Seat
from corral.engine.adapters.single_agent import Signature
from corral.engine.adapters.team import MASK_KEY, TEAM_KEY, team_of
from corral.errors import SpaceMismatch, SpacesDiffer

Outcome = tuple[Any, Any, Any, Any, dict[str, Any]]
"""What a step of any env comes to: see `core.Adapter`."""


class PettingZooAdapter:
    """One env with several agents; attributes are reached through its wrappers."""

    turns: bool
    """Whether agents act one at a time."""

    def __init__(self, env: Any, state: bool = False) -> None:
        self.env = env
        self.course = env
        """Who resets and steps the env: itself, or one who does it in less time."""
        self.stepper = self
        self.team = team = team_of(env, self.turns, state)
        self.roster = Roster(team, env)
        self.spec = EnvSpec(
            observation_space=team.observation_space,
            action_space=team.action_space,
            metadata={**(getattr(env, "metadata", None) or {}), TEAM_KEY: team},
            render_mode=getattr(env, "render_mode", None),
        )
        self.masking = False
        """Whether a mask ever came with an info."""
        self._maskable = any(group.mask_by_info for group in team.groups)
        self._resets = Signature()

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        raise NotImplementedError("reset(seed, options, task)")

    def step(self, action: Any) -> Outcome:
        """Step the env."""
        raise NotImplementedError("step(action)")

    def start(self, seed: int | None, options: dict[str, Any] | None, task: Any) -> Any:
        """Reset the env, about `task` where one was given."""
        if task is not NO_TASK:
            set_task = getattr(self.env, "set_task", None)
            if set_task is not None:
                set_task(task)
            else:
                options = {**(options or {}), "task": task}
        if options is None and not self._resets.takes_options(self.env.reset):
            return self.course.reset(seed=seed)
        return self.course.reset(seed=seed, options=options)

    def observed(self) -> NDArray[np.uint8]:
        """The team's buffer, with the env's state where it was asked for."""
        if self.team.state_space is not None:
            self.roster.set_state(self.env.state())
        return self.roster.buffer

    def without_masks(self, infos: dict[Any, Any], seats: Sequence[Seat]) -> None:
        """Take masks out of the infos of these agents, and keep them in the arrays."""
        if not self._maskable:
            return
        for seat in seats:
            info = infos.get(seat.agent)
            if info is None or MASK_KEY not in info:
                seat.unmask()
                continue
            if seat.mask(info[MASK_KEY]):
                self.masking = True
                rest = {key: info[key] for key in info if key != MASK_KEY}
                infos.pop(seat.agent)
                if rest:
                    infos[seat.agent] = rest

    def permitted(self, actions: dict[str, Any]) -> dict[str, Any]:
        """The same, with what masks forbid exchanged for something they allow.

        For whoever draws actions at random: many games end, or raise, at the first
        illegal move.
        """
        allowed = dict(actions)
        for group in self.team.groups:
            masked = group.mask_in_obs or group.mask_by_info
            if not (masked and isinstance(group.action_space, spaces.Discrete)):
                continue
            value, start = self.roster.value[group.name], group.action_space.start
            mask = (value["obs"][MASK_KEY] if group.mask_in_obs else value["mask"])[0]
            chosen = actions[group.name] - start
            fine = mask[np.arange(len(chosen)), chosen] != 0
            first = mask.argmax(axis=1)
            allowed[group.name] = start + np.where(fine, chosen, first)
        return allowed

    # Attributes -----------------------------------------------------------------------

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the method, or read the attribute, wherever in the wrappers it is."""
        found = self.get_attr(name)
        return found(*args, **kwargs) if callable(found) else found

    def get_attr(self, name: str) -> Any:
        """Read the attribute, wherever in the wrappers it is."""
        return getattr(layer_with(self.env, name) or self.env, name)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute on the layer that has it, else on the env itself."""
        setattr(layer_with(self.env, name) or self.env.unwrapped, name, value)

    def exchanged(self, env: Any) -> PettingZooAdapter:
        """The same for another env."""
        made = type(self)(env, self.team.state_space is not None)
        self.refuse_other(made)
        return made

    def refuse_other(self, made: PettingZooAdapter) -> None:
        """Refuse an env that does not fit into the arrays of this one."""
        if made.team != self.team:
            raise SpacesDiffer(
                f"{made.env} cannot take the place of {self.env}: its agents "
                f"({list(made.team.agents)} instead of {list(self.team.agents)}) or "
                "their spaces are not the same"
            )

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def layer_with(env: Any, name: str) -> Any:
    """The outermost layer that has the attribute itself; None if none has.

    Wrappers hand on what they have not, but nothing that begins with an underscore, and
    what is set on them stays with them.
    """
    layer = env
    while layer is not None:
        if name in getattr(layer, "__dict__", ()) or hasattr(type(layer), name):
            return layer
        held = vars(layer) if hasattr(layer, "__dict__") else {}
        layer = next((held[key] for key in _INSIDE if key in held), None)
    return None


_INSIDE = ("env", "aec_env", "par_env")
"""Where PettingZoo's wrappers and conversions keep what they wrap."""


def info_of(agent: Any, info: Any) -> Any:
    """What one agent is told, if it is what it should be."""
    if not isinstance(info, Mapping):
        raise SpaceMismatch(
            f"the info of agent {agent!r} is {info!r:.80}; it must be a dict"
        )
    return info
