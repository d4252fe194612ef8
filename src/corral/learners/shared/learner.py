"""A learner of single agents as one of envs: all agents share its policy.

    policy        acts for every agent of every env          `SharedPolicy`
    update        learns from the rows of agents             `AgentRows`

Everything else is the learner's own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from corral.api.shared_policy.policy import SharedPolicy
from corral.api.shared_policy.spaces import OBSERVATION, PaddedSpaces, SharedSpaces
from corral.engine.adapters.team import TEAM_KEY, Team
from corral.errors import OptionError
from corral.learners.protocol import Learner, LearnerSetup
from corral.learners.shared.agent_rows import AgentRows
from corral.rollouts.normalise import ObsNorm, RewardNorm
from corral.rollouts.rollout import Rollout


def agent_norm(policy: SharedPolicy, obs_norm: ObsNorm | None) -> ObsNorm | None:
    """Return the scales of what single agents see; OptionError if they are padded."""
    if obs_norm is None:
        return None
    _, spaces = policy.single
    if isinstance(spaces, PaddedSpaces):
        raise OptionError(
            "normalise_obs and pad are true: observations are scaled before they are "
            "padded, so the policy needs the run's normaliser; use corral eval"
        )
    inside = OBSERVATION if spaces.masked else ""
    return obs_norm.for_agents(spaces.observation_space, inside)


class SharedLearner(Learner):
    """Trains one policy with the rows of all agents.

    Args:
        kind: the class of the learner.
        setup: of the run; its envs are teams.
        spaces: of the rows: what the policy sees and does.
        **options: for the learner.
    """

    def __init__(
        self,
        kind: type[Learner],
        setup: LearnerSetup,
        spaces: SharedSpaces,
        **options: Any,
    ) -> None:
        super().__init__(setup)
        team: Team = setup.spec.metadata[TEAM_KEY]
        total = setup.total_steps
        row_setup = replace(
            setup,
            spec=replace(
                setup.spec,
                observation_space=spaces.observation_space,
                action_space=spaces.action_space,
            ),
            pool=None,
            # Rows of agents, which is what the learner counts.
            total_steps=None if total is None else total * len(team.agents),
            normalise_reward=False,
        )
        self.learner = kind.make(row_setup, **options)
        self.rows = AgentRows(team, spaces)
        self.policy = SharedPolicy(self.learner.policy, team, spaces)
        self._scale = RewardNorm(self.gamma) if setup.normalise_reward else None

    @property
    def gamma(self) -> float:
        """Discount from an agent's action to its next one."""
        return self.learner.gamma

    def update(self, data: Rollout) -> dict[str, float]:
        """Learn from what all agents did; return the learner's metrics."""
        rows = self.rows.of(data)
        if self._scale is not None:
            rows.reward = self._scale(rows.reward, rows.started, rows.valid)
        return self.learner.update(rows)

    # The learner's own ----------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what the learner saves."""
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        self.learner.load_state_dict(state)

    def load_policy(self, state: dict[str, Any]) -> None:
        """Start with the policy of another learner of the same kind."""
        self.learner.load_policy(state)

    def begin_with(self, state: dict[str, Any], given: Collection[str]) -> None:
        """Do the same for a new run."""
        self.learner.begin_with(state, given)

    def normalisers(self) -> dict[str, Any]:
        """Return the state of the learner's normalisers, and the scale of rewards."""
        own = {} if self._scale is None else {"reward": self._scale.state_dict()}
        return {**self.learner.normalisers(), **own}

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Continue with what `normalisers` returned."""
        self.learner.load_normalisers(state)
        if self._scale is not None and "reward" in state:
            self._scale.load_state_dict(state["reward"])

    def policy_module(self, obs_norm: ObsNorm | None) -> Any:
        """Return the policy of single agents as a plain torch module."""
        return self.learner.policy_module(agent_norm(self.policy, obs_norm))

    def export(self, folder: Path) -> list[Path]:
        """Write files for other programs; return their paths."""
        return self.learner.export(folder)
