"""One env with several agents, stepped by hand: what the API has to equal."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.engine.worker.seeds import episode_seed


@dataclass
class LoopRow:
    """What is known after one command to one slot."""

    started: bool = False
    seed: int | None = None
    """Of the episode that starts here."""
    valid: bool = True
    ended: bool = False
    alive: list[Any] = field(default_factory=list)
    acting: list[Any] = field(default_factory=list)
    obs: dict[Any, Any] = field(default_factory=dict)
    masks: dict[Any, Any] = field(default_factory=dict)
    rewards: dict[Any, float] = field(default_factory=dict)
    terminated: list[Any] = field(default_factory=list)
    truncated: list[Any] = field(default_factory=list)
    final_obs: dict[Any, Any] = field(default_factory=dict)
    infos: dict[Any, Any] = field(default_factory=dict)
    final_infos: dict[Any, Any] | None = None
    state: Any = None
    again: LoopRow | None = None
    """(off) What a reset by hand gave after it."""

    def later(self) -> LoopRow:
        """The same moment, once others were reset."""
        return replace(
            self,
            rewards={},
            terminated=[],
            truncated=[],
            final_obs={},
            infos={},
        )


def chosen(space: Any, mask: Any, slot: int, time: int, position: int) -> Any:
    """An action that depends on slot, step and agent alone, and on what is allowed."""
    random = np.random.default_rng((slot, time, position))
    if isinstance(space, spaces.Discrete):
        allowed = np.arange(space.n) if mask is None else np.flatnonzero(mask)
        return np.int64(random.choice(allowed) + space.start)
    return random.uniform(-1, 1, space.shape).astype(space.dtype)


class AgentsEnvLoop:
    """One slot's env; the two kinds below say how it begins and moves on."""

    def __init__(self, env: Any, slot: int, seed: int, mode: str) -> None:
        self.env = env
        self.slot = slot
        self.mode = mode
        self.seeds = self._seeds(seed)

    def _seeds(self, seed: int) -> Iterator[int]:
        yield seed + self.slot
        number = 1
        while True:
            yield episode_seed(seed, self.slot, number)
            number += 1

    def rows(self, count: int) -> list[LoopRow]:
        """The reset's row, and one for each step."""
        rows = [self.begin()]
        over = False
        for time in range(count):
            if over:  # the filler of next_step
                row = self.begin()
                row.valid = over = False
            else:
                row = self.move(time)
                over = row.ended and self.mode == "next_step"
            if row.ended and self.mode == "same_step":
                self.lead_into(row, self.begin())
            if row.ended and self.mode == "off":
                row.again = self.begin()
            rows.append(row)
        return rows

    def lead_into(self, row: LoopRow, first: LoopRow) -> None:
        """The next episode begins in the step that ended one."""
        for name in ("started", "alive", "acting", "obs", "masks", "state"):
            setattr(row, name, getattr(first, name))
        row.final_infos, row.infos = row.infos, first.infos

    def begin(self) -> LoopRow:
        raise NotImplementedError

    def move(self, time: int) -> LoopRow:
        raise NotImplementedError

    def act(self, agent: Any, time: int) -> Any:
        position = list(self.env.possible_agents).index(agent)
        space = self.env.action_space(agent)
        return chosen(space, self.masks.get(agent), self.slot, time, position)

    def mask_of(self, agent: Any, obs: Any, info: Any) -> Any:
        if isinstance(obs, dict) and "action_mask" in obs:
            return np.asarray(obs["action_mask"], bool)
        if info and "action_mask" in info:
            return np.asarray(info["action_mask"], bool)
        return None

    def see(self, row: LoopRow, observations: Any, infos: Any) -> None:
        """What the given agents see now, and may do."""
        row.obs = deepcopy({agent: observations[agent] for agent in observations})
        self.masks = {
            agent: self.mask_of(agent, obs, infos.get(agent))
            for agent, obs in row.obs.items()
        }
        row.masks = {a: mask for a, mask in self.masks.items() if mask is not None}
        row.state = deepcopy(self.env.state()) if self.asks_state else None

    asks_state = False


class ParallelLoop(AgentsEnvLoop):
    """All that are alive act at once."""

    def begin(self) -> LoopRow:
        seed = next(self.seeds)
        observations, infos = self.env.reset(seed=seed)
        self.alive = list(self.env.agents)
        row = LoopRow(started=True, seed=seed, alive=self.alive, acting=self.alive)
        self.see(row, {a: observations[a] for a in self.alive}, infos)
        row.infos = without_masks(infos, self.alive)
        return row

    def move(self, time: int) -> LoopRow:
        before = self.alive
        observations, rewards, terminated, truncated, infos = self.env.step(
            {agent: self.act(agent, time) for agent in before}
        )
        over = {a for a in observations if terminated[a] or truncated[a]}
        ended = [agent for agent in before if agent in over]
        self.alive = [agent for agent in self.env.agents if agent not in over]
        row = LoopRow(alive=self.alive, acting=self.alive, ended=not self.alive)
        row.rewards = dict(rewards)
        row.terminated = [agent for agent in ended if terminated[agent]]
        row.truncated = [agent for agent in ended if truncated[agent]]
        row.final_obs = deepcopy({agent: observations[agent] for agent in ended})
        self.see(row, {a: observations[a] for a in self.alive}, infos)
        row.infos = without_masks(infos, self.alive)
        return row


class TurnLoop(AgentsEnvLoop):
    """One acts at a time, the dead are stepped with None."""

    everybody = False

    def begin(self) -> LoopRow:
        seed = next(self.seeds)
        self.env.reset(seed=seed)
        self.alive = list(self.env.agents)
        row = LoopRow(started=True, seed=seed)
        self.pass_on(row, {})
        return row

    def pass_on(self, row: LoopRow, last_words: dict[Any, Any]) -> None:
        """To whoever of the living is selected."""
        env = self.env
        row.alive, row.ended = list(self.alive), not self.alive
        row.acting = [env.agent_selection] if self.alive else []
        seen = self.alive if self.everybody else row.acting
        views = {agent: deepcopy(env.observe(agent)) for agent in seen}
        self.see(row, views, env.infos)
        infos = {agent: env.infos.get(agent, {}) for agent in seen}
        row.infos = {**last_words, **without_masks(infos, seen)}

    def move(self, time: int) -> LoopRow:
        env, row, last_words = self.env, LoopRow(), {}
        env.step(self.act(env.agent_selection, time))
        row.rewards = dict(env.rewards)
        while True:
            for agent in list(self.alive):
                if env.terminations[agent] or env.truncations[agent]:
                    row.terminated += [agent] * bool(env.terminations[agent])
                    row.truncated += [agent] * bool(env.truncations[agent])
                    row.final_obs[agent] = deepcopy(env.observe(agent))
                    if env.infos[agent]:
                        last_words[agent] = dict(env.infos[agent])
                    self.alive.remove(agent)
            if not env.agents or env.agent_selection in self.alive:
                break
            selected = env.agent_selection
            if not (env.terminations[selected] or env.truncations[selected]):
                break  # somebody new
            env.step(None)
        self.alive = [
            a for a in env.agents if not (env.terminations[a] or env.truncations[a])
        ]
        self.pass_on(row, last_words)
        return row


def without_masks(infos: Any, of: Any) -> dict[Any, Any]:
    """What agents were told, less the masks of those that live."""
    told = {}
    for agent, info in infos.items():
        left = {k: v for k, v in info.items() if agent not in of or k != "action_mask"}
        if left:
            told[agent] = left
    return told


def assert_equal(envs: Any, rows: list[LoopRow], returned: Any) -> None:
    """Everything the API tells of its last step is what the loops told."""
    obs, rewards, terminations, truncations, _ = returned
    alive, acting, finals = envs.alive, envs.acting, envs.final_obs
    masks, infos = envs.action_masks, envs.last.step.infos
    for slot, row in enumerate(rows):
        assert envs.started[slot] == row.started
        assert envs.valid[slot] == row.valid
        assert envs.ended[slot] == row.ended
        for agent in envs.agents:
            space, where = envs.observation_space(agent), (slot, agent)
            assert alive[agent][slot] == (agent in row.alive), where
            assert acting[agent][slot] == (agent in row.acting), where
            same(space, obs[agent], slot, row.obs.get(agent), where)
            same(space, finals[agent], slot, row.final_obs.get(agent), where)
            assert rewards[agent][slot] == row.rewards.get(agent, 0.0), where
            assert terminations[agent][slot] == (agent in row.terminated), where
            assert truncations[agent][slot] == (agent in row.truncated), where
            if masks[agent] is not None:
                mask = row.masks.get(agent) if agent in row.acting else None
                expected = True if mask is None else mask
                assert (masks[agent][slot] == expected).all(), where
        np.testing.assert_equal(infos.of(slot), row.infos)
        if row.final_infos is not None:
            np.testing.assert_equal(envs.final_infos.get(slot, {}), row.final_infos)
        if row.state is not None:
            assert (envs.state[slot] == row.state).all()


def same(space: Any, batch: Any, slot: int, value: Any, where: Any) -> None:
    """The batch has the value, in the space's own dtype; zeros for None."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            inner = None if value is None else value[key]
            same(part, batch[key], slot, inner, (*where, key))
        return
    assert batch.dtype == space.dtype, where
    got = batch[slot]
    expected = np.zeros(space.shape) if value is None else value
    assert np.array_equal(got, np.asarray(expected)), (where, got, expected)


def vector_actions(envs: Any, time: int) -> dict[Any, Any]:
    """The same actions, for all agents of all slots."""
    actions, masks = {}, envs.action_masks
    for position, agent in enumerate(envs.agents):
        space = envs.action_space(agent)
        allowed = masks[agent] if masks[agent] is not None else [None] * envs.num_envs
        actions[agent] = np.array(
            [
                chosen(space, allowed[slot], slot, time, position)
                for slot in range(envs.num_envs)
            ]
        )
    return actions
