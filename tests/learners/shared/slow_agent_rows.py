"""What happened to each agent in a number of turns, by PettingZoo's own loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Row:
    """One action of one agent, and what came of it until its next turn."""

    obs: Any
    action: Any
    started: bool
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    bootstrap: float = 0.0
    known: bool = False


def played(
    env: Any,
    turns: int,
    act: Callable[[Any], Any],
    value: Callable[[Any], float],
) -> dict[str, list[Row]]:
    """Play so many turns of one env, episode after episode."""
    rows: dict[str, list[Row]] = {agent: [] for agent in env.possible_agents}
    open_rows: dict[str, Row] = {}
    while True:
        env.reset()
        here: set[str] = set()
        for agent in env.agent_iter():
            obs, reward, terminated, truncated, _ = env.last()
            row = open_rows.pop(agent, None)
            if row is not None:
                row.known, row.reward = True, reward
                row.terminated = terminated
                row.truncated = truncated and not terminated
                row.bootstrap = value(obs) if row.truncated else 0.0
            if terminated or truncated:
                here.discard(agent)
                env.step(None)
                continue
            if turns == 0:
                return rows
            turns -= 1
            action = act(obs)
            open_rows[agent] = Row(obs.copy(), action, agent not in here)
            rows[agent].append(open_rows[agent])
            here.add(agent)
            env.step(action)
        if turns == 0:
            return rows
