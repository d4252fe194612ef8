"""All agents of a PettingZoo env as one agent of a Gymnasium env.

For learners that know one agent: one vector holds what all agents see, and one action
holds what all do. It runs where the env runs, so that everything that takes a Gymnasium
env takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.engine.adapters.aec_to_parallel import without_detours
from corral.engine.adapters.joint_spaces import JointAction, JointObservation
from corral.engine.adapters.multi_agent import layer_with
from corral.engine.adapters.parallel import five_dicts, two_dicts
from corral.engine.adapters.pettingzoo import converted, is_aec, is_parallel
from corral.engine.adapters.roster import (
    as_mask,
    as_number,
    gone_without_end,
    nobody_there,
    unknown_agent,
    unseen,
)
from corral.engine.adapters.team import MASK_KEY, Agent
from corral.errors import OptionError

Rewards = Mapping[Agent, float]


_REWARDS: dict[str, Callable[[Rewards], float]] = {
    "sum": lambda rewards: float(sum(rewards.values())),
    "mean": lambda rewards: float(sum(rewards.values())) / max(len(rewards), 1),
}


class FlattenedAgents(gymnasium.Env[Any, Any]):
    """A ParallelEnv seen as one agent, for Stable-Baselines3 and the like.

        envs = corral.make_sb3(make_env, 8, wrappers=[corral.FlattenedAgents])
        PPO("MlpPolicy", envs).learn(100_000)

    Observations are flattened and concatenated in the order of `possible_agents`, as
    float32, with zeros for agents that are not alive. The action has a part for every
    agent, in the same order; the parts of agents that are not alive are ignored.
    Discrete actions become one MultiDiscrete, continuous ones one Box; agents of both
    kinds are refused.

    The episode goes on until no agent is left. It is truncated if one of the agents
    that left last was truncated, and terminated otherwise.

    `info` has `agent_rewards` and `alive`, one entry per possible agent, and the info
    of each agent under the agent's name.

    Args:
        env: a ParallelEnv, or an AECEnv that says that it is parallelizable.
        reward: how the agents' rewards become one: "sum", "mean" over the agents that
            were alive, or a function of the dict of rewards.
    """

    def __init__(
        self, env: Any, reward: str | Callable[[Rewards], float] = "sum"
    ) -> None:
        self.env = env = all_at_once(env)
        self._course, self._course_of = without_detours(env), env
        self.possible_agents = list(env.possible_agents)
        self._known = frozenset(self.possible_agents)
        agents = self.possible_agents
        self._observation = JointObservation(
            {agent: env.observation_space(agent) for agent in agents}
        )
        self._action = JointAction({agent: env.action_space(agent) for agent in agents})
        self.observation_space = self._observation.space
        self.action_space = self._action.space
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self._reward = _aggregate(reward)
        self._alive: list[Agent] = []
        self._masks: dict[Agent, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode with the agents that the env lists."""
        observations, infos = two_dicts(self._way().reset(seed=seed, options=options))
        self._alive = list(self.env.agents)
        self._check_known(observations, self._alive)
        if not self._alive:
            raise nobody_there()
        self._take_masks(observations, infos)
        seen = self._seen(observations, self._alive)
        return self._observation.of(seen), self._joint_info({}, infos)

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step every living agent with its part of the action."""
        actions = {agent: self._action.of(action, agent) for agent in self._alive}
        result = self._way().step(actions)
        observations, rewards, terminations, truncations, infos = five_dicts(result)
        self._check_known(observations, rewards, self.env.agents)
        rewards = {a: as_number(reward, a) for a, reward in rewards.items()}
        left, cut = self._leave(terminations, truncations)
        over = not self._alive
        truncated = over and bool(cut)
        self._take_masks(observations, infos)
        # Agents that were terminated need no observation; all others do.
        seen = self._seen(observations, [*self._alive, *cut], left)
        return (
            self._observation.of(seen),
            float(self._reward(rewards)),
            over and not truncated,
            truncated,
            self._joint_info(rewards, infos),
        )

    def _way(self) -> Any:
        """The object that resets and steps the env: the env itself, or a shortcut."""
        if self._course_of is not self.env:  # the user has replaced it
            self._course, self._course_of = without_detours(self.env), self.env
        return self._course

    def agent_view(self, observation: Any, agent: Agent) -> Any:
        """One agent's part of an observation, or of a batch of observations."""
        return np.asarray(observation)[..., self._observation.part(agent)]

    def action_masks(self) -> NDArray[np.bool_]:
        """The action masks of all agents, concatenated, as sb3-contrib wants them."""
        if not self._action.masked:
            raise OptionError(
                "these agents' actions are a Box, and only discrete actions have masks"
            )
        return np.concatenate([self._mask(agent) for agent in self.possible_agents])

    def render(self) -> Any:
        """What the env renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        # Other attributes are the env's: curricula call its methods.
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set the env's own attributes in the env, where its code looks for them."""
        if name in vars(self) or hasattr(type(self), name):
            return super().set_wrapper_attr(name, value, force=force)
        layer = layer_with(self.env, name)
        if layer is None and not force:
            return False
        setattr(self.env.unwrapped if layer is None else layer, name, value)
        return True

    def _seen(
        self,
        observations: Mapping[Agent, Any],
        must: Sequence[Agent],
        may: Sequence[Agent] = (),
    ) -> dict[Agent, Any]:
        """The observations of agents that must have one, and of those that may."""
        for agent in must:
            if agent not in observations:
                raise unseen(agent, observations)
        chosen = dict.fromkeys((*must, *may))
        return {a: observations[a] for a in chosen if a in observations}

    def _check_known(self, *named: Iterable[Agent]) -> None:
        """Refuse agents that are not in `possible_agents`."""
        for agents in named:
            for agent in agents:
                if agent not in self._known:
                    raise unknown_agent(agent, self.possible_agents)

    def _leave(
        self, terminations: Mapping[Agent, Any], truncations: Mapping[Agent, Any]
    ) -> tuple[list[Agent], list[Agent]]:
        """The agents that have just ended, and those of them that were truncated."""
        # Some envs go on listing agents that are done, and end them again each time.
        done = {a for ends in (terminations, truncations) for a in ends if ends[a]}
        before = self._alive
        self._alive = [agent for agent in self.env.agents if agent not in done]
        for agent in before:
            if agent not in done and agent not in self._alive:
                raise gone_without_end(agent)
        left = [agent for agent in before if agent in done]
        return left, [agent for agent in left if not terminations.get(agent)]

    def _joint_info(
        self, rewards: Rewards, infos: Mapping[Agent, Any]
    ) -> dict[str, Any]:
        agents = self.possible_agents
        alive = set(self._alive)
        joint = {str(agent): info for agent, info in infos.items() if info}
        joint["agent_rewards"] = np.array(
            [float(rewards.get(agent, 0.0)) for agent in agents]
        )
        joint["alive"] = np.array([agent in alive for agent in agents])
        return joint

    def _take_masks(
        self, observations: Mapping[Agent, Any], infos: Mapping[Agent, Any]
    ) -> None:
        """Masks are in the observation or in the info, as PettingZoo's envs have it."""
        self._masks = {}
        for agent in self._alive:
            for said in (observations.get(agent), infos.get(agent)):
                if isinstance(said, Mapping) and MASK_KEY in said:
                    self._masks[agent] = said[MASK_KEY]

    def _mask(self, agent: Agent) -> NDArray[np.bool_]:
        size = self._action.choices(agent)
        mask = self._masks.get(agent)
        if mask is None:
            # An agent that is not alive may do anything: a distribution needs a choice.
            return np.ones(size, np.bool_)
        return as_mask(mask, size, agent).astype(np.bool_)


def _aggregate(reward: Any) -> Callable[[Rewards], float]:
    if callable(reward):
        return reward  # type: ignore[no-any-return]
    if reward not in _REWARDS:
        raise OptionError(
            f"reward is {reward!r}; choose {', '.join(_REWARDS)}, or give a function "
            "of the dict of rewards"
        )
    return _REWARDS[reward]


def all_at_once(env: Any) -> Any:
    """A ParallelEnv as it is; an AECEnv converted, if it says that it can be."""
    if is_parallel(env):
        return env
    if not is_aec(env):
        raise OptionError(
            f"{type(env).__name__} ({env!r:.80}) is neither PettingZoo's ParallelEnv "
            "nor its AECEnv, so it has no agents to be seen as one"
        )
    return converted(env, "use corral.make_multi, which keeps the turns")
