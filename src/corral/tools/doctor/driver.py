"""An env that plays by itself: of any kind, with sampled actions.

    driver = EpisodeDriver(factory, seed, slot)
    for _ in range(steps):
        response = driver.advance()    # a reset where an episode is to start

What it does depends on seed and slot alone, so two runs can be compared bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space

from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.engine.worker.step_results import five_of, two_of

SMALL_SEED_RANGE = 0x7FFFFFFF
"""Some envs take no larger seeds; the API check tries those."""


@dataclass(frozen=True, slots=True)
class EnvResponse:
    """What an env returned once; of several agents, dicts by agent."""

    what: str
    """`reset 0`, `step 17`: counted over all episodes."""
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    over: bool
    """Whether the episode is."""


def kind_of(env: Any) -> str:
    """One of gymnasium, parallel and aec; raises OptionError for anything else."""
    if not is_pettingzoo(env):
        adapt(env)  # for its reason why not
        return "gymnasium"
    turns = any(base.__name__ == "AECEnv" for base in type(env).__mro__)
    return "aec" if turns else "parallel"


class EnvDriver:
    """One env, reset and stepped with sampled actions.

    Under AEC one step is one agent's turn.
    """

    def __init__(self, env: Any, seed: int) -> None:
        self.env, self.kind = env, kind_of(env)
        self.several = self.kind != "gymnasium"
        if self.several:
            seen, actions = (
                {agent: space(agent) for agent in env.possible_agents}
                for space in (env.observation_space, env.action_space)
            )
        else:
            seen, actions = {"": env.observation_space}, {"": env.action_space}
        self.observation_spaces: dict[str, Space[Any]] = seen
        """By agent; of a single-agent env under ""."""
        # Copies: sampling must not advance the generators of the env's own spaces.
        self._actions = {agent: copy.deepcopy(one) for agent, one in actions.items()}
        for number, space in enumerate(self._actions.values()):
            space.seed(episode_seed(seed, number) & SMALL_SEED_RANGE)
        self._obs: Any = {}
        self._info: Any = {}

    def reset(self, seed: int | None, what: str) -> EnvResponse:
        """Start an episode."""
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if self.kind == "aec":
            return self._turn(what)
        self._obs, self._info = two_of(result)
        begun = ({}, {}, {}) if self.several else (0.0, False, False)
        return EnvResponse(what, self._obs, *begun, self._info, False)

    def draw(self) -> Any:
        """What to do next: an action, or one for each living agent."""
        if self.kind == "gymnasium":
            return self._actions[""].sample()
        if self.kind == "parallel":
            return {
                agent: self._sample(agent, self._obs.get(agent), self._info.get(agent))
                for agent in self.env.agents
            }
        obs, _, terminated, truncated, info = self.env.last()
        if terminated or truncated:
            return None
        return self._sample(self.env.agent_selection, obs, info)

    def _sample(self, agent: str, obs: Any, info: Any) -> Any:
        """An action that its mask allows, where there is one."""
        for holder in (obs, info):
            mask = holder.get("action_mask") if isinstance(holder, Mapping) else None
            if mask is not None:
                return self._actions[agent].sample(np.asarray(mask, np.int8))
        return self._actions[agent].sample()

    def step(self, drawn: Any, what: str) -> EnvResponse:
        """Take what was drawn."""
        result = self.env.step(drawn)
        if self.kind == "aec":
            return self._turn(what)
        obs, reward, terminated, truncated, info = five_of(result)
        self._obs, self._info = obs, info
        ended = not self.env.agents if self.several else terminated or truncated
        return EnvResponse(what, obs, reward, terminated, truncated, info, bool(ended))

    def _turn(self, what: str) -> EnvResponse:
        env = self.env
        if not env.agents:
            return EnvResponse(what, {}, {}, {}, {}, {}, True)
        obs = {env.agent_selection: env.observe(env.agent_selection)}
        parts = (env.rewards, env.terminations, env.truncations, env.infos)
        reward, terminated, truncated, info = map(dict, parts)
        return EnvResponse(what, obs, reward, terminated, truncated, info, False)


class EpisodeDriver:
    """Steps one env, episode after episode.

    Args:
        factory: makes the env; called in `around`, as everything else is.
        seed: of episodes and actions.
        slot: which one of several; each plays something else.
        around: entered around each call of the env.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        seed: int = 0,
        slot: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._seed, self._slot, self._around = seed, slot, around
        with around():
            self.env = factory()
        self.start_over()

    def start_over(self) -> None:
        """Forget what was played: the same is played again, with the same env."""
        self._episode = self._steps = 0
        self._over = True
        self.env_driver = EnvDriver(self.env, episode_seed(self._seed, self._slot))

    def advance(self) -> EnvResponse:
        """The next reset or step."""
        if self._over:
            seed = episode_seed(self._seed, self._slot, self._episode)
            with self._around():
                moment = self.env_driver.reset(
                    seed & SMALL_SEED_RANGE, f"reset {self._episode}"
                )
            self._episode += 1
        else:
            drawn = self.env_driver.draw()
            self._steps += 1
            with self._around():
                moment = self.env_driver.step(drawn, f"step {self._steps}")
        self._over = moment.over
        return moment

    def play(self, moments: int) -> Iterator[EnvResponse]:
        """So many resets and steps."""
        for _ in range(moments):
            yield self.advance()

    def record(self, moments: int) -> list[EnvResponse]:
        """The same as values that no later step can change.

        Without infos, which may hold times and are neither compared nor sent.
        """
        played = self.play(moments)
        return [copy.deepcopy(replace(moment, info=None)) for moment in played]

    def close(self) -> None:
        """Close the env."""
        with self._around():
            self.env.close()

    def __enter__(self) -> EpisodeDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # else closing might raise as well, and hide the reason
            self.close()


def own_generators(seed: int) -> IsolatedRng:
    """What `isolate_rng=True` would put around each slot."""
    return IsolatedRng(lambda slot: episode_seed(seed, slot))


def run_alone(
    factory: Callable[[], Any],
    seed: int,
    slot: int,
    moments: int,
    isolated: bool = False,
) -> list[EnvResponse]:
    """Record one env in this process, with seeded or its own global generators."""
    isolation = own_generators(seed)
    seed_globals(seed)
    around = (lambda: isolation.of(slot)) if isolated else nullcontext
    with EpisodeDriver(factory, seed, slot, around) as driver:
        return driver.record(moments)
