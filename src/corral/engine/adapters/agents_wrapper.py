"""What all wrappers of PettingZoo's envs have in common."""

from __future__ import annotations

from typing import Any

from corral.engine.adapters.team import Agent


class AgentsWrapper:
    """A ParallelEnv around an env; all that it does not define is the env's."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.agents: list[Agent] = []
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)

    def observation_space(self, agent: Agent) -> Any:
        """The observation space of an agent."""
        return self.env.observation_space(agent)

    def action_space(self, agent: Agent) -> Any:
        """The action space of an agent."""
        return self.env.action_space(agent)

    def render(self) -> Any:
        """What the env renders."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        # It is no AECEnv; and while it is unpickled it has no env.
        if name.startswith("_") or name in ("env", "agent_iter"):
            raise AttributeError(name)
        return getattr(self.env, name)
