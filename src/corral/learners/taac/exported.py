"""The actor of TAAC as a plain torch module.

module(observation, alive)                 (rows, agents, ...), (rows, agents)
module(observation, alive, action_mask)    where actions are discrete
"""

from __future__ import annotations

import copy
from typing import Any

from corral.engine.adapters.team import MASK_KEY
from corral.learners.nets.encoders import leaf_spaces, part_for
from corral.learners.nets.exported import choice_for, without_forbidden
from corral.learners.taac.nets import Actor
from corral.learners.taac.team import TeamSpaces
from corral.learners.torch_import import nn, torch
from corral.rollouts.space_rows import SpaceParts


class ExportedTeam(nn.Module):  # type: ignore[misc]
    """Observations of all agents to their actions; see `nets.exported`."""

    takes = ()
    carry: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, actor: Actor, team: TeamSpaces) -> None:
        super().__init__()
        group = team.group
        space, name = group.observation_space, group.name
        leaves = [part.name for part in SpaceParts(space).parts]
        inputs = {_joined(name, "obs", leaf): leaf or "observation" for leaf in leaves}
        self.reads = {**inputs, f"{name}.alive": "alive"}
        if group.mask_by_info:
            self.reads[f"{name}.mask"] = MASK_KEY
        # The number of the input that masks actions.
        self._mask = leaves.index(MASK_KEY) if group.mask_in_obs else None
        if group.mask_by_info:
            self._mask = len(leaves) + 1
        self.parts = nn.ModuleList(part_for(leaf) for _, leaf in leaf_spaces(space))
        self.actor = copy.deepcopy(actor)
        self.choice = choice_for(group.action_space)
        self._shape = team.agents, *(group.action_space.shape or ())
        # ONNX runtimes have no identity of bools.
        self.register_buffer("itself", torch.eye(team.agents) > 0)

    def forward(self, *inputs: Any) -> Any:
        """Actions for observations (leaf by leaf), `alive` and masks."""
        count = len(self.parts)
        leaves, alive = inputs[:count], inputs[count]
        pairs = zip(self.parts, leaves, strict=True)
        flat = torch.cat([part(leaf.flatten(0, 1)) for part, leaf in pairs], 1)
        obs = flat.reshape(-1, self._shape[0], flat.shape[-1]) * alive[..., None]
        features, _ = self.actor.features(obs, alive, self.itself)
        outputs = self.actor.head.layer(features.flatten(0, 1))
        if self._mask is not None:
            allowed = (inputs[self._mask] != 0) | ~alive[..., None]
            outputs = without_forbidden(outputs, allowed.flatten(0, 1))
        return self.choice(outputs).reshape(-1, *self._shape)


def _joined(*path: str) -> str:
    return ".".join(filter(None, path))
