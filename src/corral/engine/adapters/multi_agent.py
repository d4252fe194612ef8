"""The part that the adapters of PettingZoo's two kinds of envs have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.adapters.pettingzoo_wrappers import without_detours
from corral.engine.adapters.roster import Roster, Seat
from corral.engine.adapters.single_agent import SingleEnvAdapter
from corral.engine.adapters.team import MASK_KEY, TEAM_KEY, masks_of, team_of
from corral.errors import SpaceMismatch, SpacesDiffer

# Agents in turn: the agents that are observed in each turn.
OBSERVE_CHOICES = ("acting", "all")
# What a step of any env comes to: see `core.Adapter`.
Outcome = tuple[Any, Any, Any, Any, dict[str, Any]]


class PettingZooAdapter(SingleEnvAdapter):
    """One env with several agents; attributes are reached through its wrappers.

    Attributes:
        turns: Whether agents act one at a time.
    """

    turns: bool

    def __init__(
        self, env: Any, state: bool = False, observe: str = OBSERVE_CHOICES[0]
    ) -> None:
        self.env = env
        self.observe = observe
        # The object that resets and steps the env: the env itself, or a shortcut.
        self.course = env if self.turns else without_detours(env)
        self.stepper = self
        self.team = team = team_of(env, self.turns, state)
        self.roster = Roster(team, env)
        self.spec = EnvSpec(
            observation_space=team.observation_space,
            action_space=team.action_space,
            metadata={**(getattr(env, "metadata", None) or {}), TEAM_KEY: team},
            render_mode=getattr(env, "render_mode", None),
        )
        # Whether a mask ever came with an info.
        self.masking = False
        self._maskable = any(group.mask_by_info for group in team.groups)

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
            elif seat.mask(info[MASK_KEY]):
                self.masking = True
                rest = {key: info[key] for key in info if key != MASK_KEY}
                infos.pop(seat.agent)
                if rest:
                    infos[seat.agent] = rest

    def permitted(self, actions: dict[str, Any]) -> dict[str, Any]:
        """The same actions, with a legal one in the place of each that a mask forbids.

        For random actions: many games end, or raise, at the first illegal move.
        """
        allowed = dict(actions)
        for group in self.team.groups:
            masks = masks_of(group, self.roster.value[group.name])
            if masks is not None and isinstance(group.action_space, spaces.Discrete):
                mask, start = masks[0], group.action_space.start
                chosen = actions[group.name] - start
                fine = mask[np.arange(len(chosen)), chosen] != 0
                first = mask.argmax(axis=1)
                allowed[group.name] = start + np.where(fine, chosen, first)
        return allowed

    # Attributes -----------------------------------------------------------------------

    def get_attr(self, name: str) -> Any:
        """Read the attribute, wherever in the wrappers it is."""
        return getattr(layer_with(self.env, name) or self.env, name)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute on the layer that has it, else on the env itself."""
        setattr(layer_with(self.env, name) or self.env.unwrapped, name, value)

    def exchanged(self, env: Any) -> PettingZooAdapter:
        """The same for another env."""
        made = type(self)(env, self.team.state_space is not None, self.observe)
        if made.team != self.team:
            raise SpacesDiffer(
                f"{made.env} cannot replace {self.env}: its agents "
                f"({list(made.team.agents)} instead of {list(self.team.agents)}) or "
                "their spaces are not the same"
            )
        made.task_by = self.task_by
        return made


def layer_with(env: Any, name: str) -> Any:
    """The outermost layer that has the attribute itself; None if none has.

    Wrappers pass on attributes that they do not have, but none that begins with an
    underscore, and an attribute that is set on a wrapper stays there.
    """
    layer = env
    while layer is not None:
        held = getattr(layer, "__dict__", {})
        if name in held or hasattr(type(layer), name):
            return layer
        # Where PettingZoo's wrappers and conversions keep the env that they wrap.
        inside = [held[key] for key in ("env", "aec_env", "par_env") if key in held]
        layer = inside[0] if inside else None
    return None


def info_of(agent: Any, info: Any) -> Any:
    """The info of one agent, checked to be a dict."""
    if not isinstance(info, Mapping):
        raise SpaceMismatch(
            f"the info of agent {agent!r} is {info!r:.80}; it must be a dict"
        )
    return info
