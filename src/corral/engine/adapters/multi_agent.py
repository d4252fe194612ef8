"""The part that the adapters of PettingZoo's two kinds of envs have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import NO_TASK, Adapter, EnvSpec
from corral.engine.adapters.roster import Roster, Seat
from corral.engine.adapters.single_agent import Signature
from corral.engine.adapters.team import MASK_KEY, TEAM_KEY, team_of
from corral.errors import SpaceMismatch, SpacesDiffer

Outcome = tuple[Any, Any, Any, Any, dict[str, Any]]
"""What a step of any env comes to: see `core.Adapter`."""


class PettingZooAdapter(Adapter):
    """One env with several agents; attributes are reached through its wrappers."""

    turns: bool
    """Whether agents act one at a time."""

    def __init__(self, env: Any, state: bool = False) -> None:
        self.env = env
        self.course = env
        """The object that resets and steps the env: the env itself, or a shortcut."""
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
        """The same actions, with a legal one in the place of each that a mask forbids.

        For random actions: many games end, or raise, at the first illegal move.
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
        """Refuse an env that does not fit the arrays of this one."""
        if made.team != self.team:
            raise SpacesDiffer(
                f"{made.env} cannot replace {self.env}: its agents "
                f"({list(made.team.agents)} instead of {list(self.team.agents)}) or "
                "their spaces are not the same"
            )


def layer_with(env: Any, name: str) -> Any:
    """The outermost layer that has the attribute itself; None if none has.

    Wrappers pass on attributes that they do not have, but none that begins with an
    underscore, and an attribute that is set on a wrapper stays there.
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
    """The info of one agent, checked to be a dict."""
    if not isinstance(info, Mapping):
        raise SpaceMismatch(
            f"the info of agent {agent!r} is {info!r:.80}; it must be a dict"
        )
    return info
