"""Steps an env of any kind with sampled actions.

    driver = EpisodeDriver(factory, seed, slot)
    for _ in range(steps):
        response = driver.advance()    # a reset where an episode is to start

What it does depends on seed and slot alone, so two runs can be compared bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space

from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.worker.compared_values import difference
from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.seeds import (
    episode_seed,
    sampler_seed,
    seed_globals,
    slot_generators_seed,
)
from corral.engine.worker.step_results import five_of, two_of

# What has to be equal. Infos may hold times and the like.
FIELDS = ("obs", "reward", "terminated", "truncated")
# Some envs take no larger seeds; the API check tries those.
SMALL_SEED_RANGE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class EnvResponse:
    """What an env returned once; of several agents, dicts by agent.

    Attributes:
        what: `reset 0`, `step 17`: counted over all episodes.
        over: Whether the episode is.
    """

    what: str
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    over: bool


def first_difference(one: Sequence[EnvResponse], other: Sequence[EnvResponse]) -> str:
    """In words; "" if there is none, as far as the shorter one goes."""
    for ours, theirs in zip(one, other, strict=False):
        if ours.what != theirs.what:
            return f"{ours.what} came where {theirs.what} was"
        for name in FIELDS:
            if found := difference(name, getattr(ours, name), getattr(theirs, name)):
                return f"{ours.what}: {found}"
    return ""


def kind_of(env: Any) -> str:
    """One of gymnasium, parallel and aec; raises OptionError for anything else."""
    if not is_pettingzoo(env):
        adapt(env)  # for its reason why not
        return "gymnasium"
    turns = any(base.__name__ == "AECEnv" for base in type(env).__mro__)
    return "aec" if turns else "parallel"


def spaces_of(env: Any, kind: str) -> dict[str, Space[Any]]:
    """The spaces of observations or actions by agent; of one alone under ""."""
    space = getattr(env, f"{kind}_space")
    if not is_pettingzoo(env):
        return {"": space}
    return {agent: space(agent) for agent in env.possible_agents}


class EpisodeDriver:
    """Steps one env, episode after episode. Under AEC one step is one agent's turn.

    Args:
        factory: makes the env; called in `around`, as everything else is.
        seed: of episodes and actions.
        slot: which one of several; each plays something else.
        around: entered around each call of the env.
        small_seeds: whether episodes have seeds of 31 bits, instead of a pool's.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        seed: int = 0,
        slot: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        small_seeds: bool = True,
    ) -> None:
        self._seed, self._slot, self._around = seed, slot, around
        self._small_seeds = small_seeds
        # More keywords of every reset: what tells the env its task.
        self.task_keywords: Callable[[], dict[str, Any]] = dict
        with around():
            self.env = factory()
        self.kind = kind_of(self.env)
        self.several = self.kind != "gymnasium"
        self.start_over()

    def start_over(self) -> None:
        """Forget what was played: the same is played again, with the same env."""
        self._episode = self._steps = 0
        self._last: EnvResponse | None = None
        # Copies: sampling must not advance the generators of the env's own spaces.
        self._actions = copy.deepcopy(spaces_of(self.env, "action"))
        for number, space in enumerate(self._actions.values()):
            seed = sampler_seed(self._seed, self._slot, number)
            space.seed(seed & SMALL_SEED_RANGE)

    def advance(self) -> EnvResponse:
        """The next reset or step."""
        if self._last is None or self._last.over:
            seed = episode_seed(self._seed, self._slot, self._episode)
            return self.reset(seed & SMALL_SEED_RANGE if self._small_seeds else seed)
        return self.step(self.draw())

    def reset(self, seed: int | None) -> EnvResponse:
        self._episode += 1
        with self._around():
            given = {} if seed is None else {"seed": seed}
            result = self.env.reset(**given, **self.task_keywords())
            parts = self._turn() if self.kind == "aec" else ()
        if not parts:
            obs, info = two_of(result)
            begun = ({}, {}, {}) if self.several else (0.0, False, False)
            parts = obs, *begun, info, False
        self._last = EnvResponse(f"reset {self._episode - 1}", *parts)
        return self._last

    def draw(self) -> Any:
        """What to do next: an action, or one for each living agent."""
        if self.kind == "gymnasium":
            return self._actions[""].sample()
        if self.kind == "parallel":
            assert self._last is not None
            obs, info = self._last.obs, self._last.info
            return {
                agent: self._sample(agent, obs.get(agent), info.get(agent))
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

    def step(self, drawn: Any) -> EnvResponse:
        """Take what was drawn."""
        self._steps += 1
        with self._around():
            result = self.env.step(drawn)
            parts = self._turn() if self.kind == "aec" else ()
        if not parts:
            parts = five_of(result)
            over = not self.env.agents if self.several else bool(parts[2] or parts[3])
            parts = *parts, over
        self._last = EnvResponse(f"step {self._steps}", *parts)
        return self._last

    def _turn(self) -> tuple[Any, ...]:
        """What the agent whose turn it is sees, and whether the episode is over."""
        env = self.env
        if not env.agents:
            return {}, {}, {}, {}, {}, True
        parts = (env.rewards, env.terminations, env.truncations, env.infos)
        agent = env.agent_selection
        return {agent: env.observe(agent)}, *map(dict, parts), False

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
        with self._around():
            self.env.close()

    def __enter__(self) -> EpisodeDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # else closing might raise as well, and hide the reason
            self.close()


def own_generators(seed: int) -> IsolatedRng:
    """What `isolate_rng=True` would put around each slot."""
    return IsolatedRng(lambda slot: slot_generators_seed(seed, slot))


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
