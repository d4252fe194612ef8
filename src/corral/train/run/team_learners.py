"""The learner of a run whose envs have several agents."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces as spaces_of

from corral.api.shared_policy.spaces import PaddedSpaces, SharedSpaces, shared_spaces
from corral.core import Factory
from corral.engine.adapters.team import TEAM_KEY, Team
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.learners.protocol import Learner, LearnerSetup, Rows
from corral.learners.registry import learner_class
from corral.learners.shared.learner import SharedLearner
from corral.train.recipes.config import RunConfig, wants_of
from corral.train.run.team_envs import (
    JOINT,
    RANDOM,
    SHARED,
    TEAM,
    VIEW_KEY,
    AgentsFactory,
    LearnerKind,
    View,
)


def agents_factory(
    config: RunConfig, make: Factory, evaluating: bool = False
) -> Factory:
    """Return what makes envs in the view of the config."""
    check_view(config)
    kind = learner_class(config.learner)
    asked = (config.view, config.opponents, config.pad) != (None, "self", False)
    wraps = kind.trains_teams or (kind.needs_pool and kind.uses_masks)
    if ":" not in config.env and not (asked or wraps):
        return make  # of Gymnasium, which has envs with one agent
    return AgentsFactory(
        make,
        LearnerKind(
            config.learner,
            kind.trains_teams,
            _can_share(config),
            kind.uses_masks,
            kind.needs_pool,
        ),
        config.view,
        opponents_of(config, evaluating),
        config.pad,
        config.env,
    )


def opponents_of(config: RunConfig, evaluating: bool) -> str:
    """Return how the other agents play."""
    return (evaluating and config.evaluate_against) or config.opponents


def check_view(config: RunConfig) -> None:
    """Raise OptionError if the learner cannot see agents so."""
    view, learner = config.view, config.learner
    teams = learner_class(learner).trains_teams
    if view is None:
        return
    if teams and view != TEAM:
        reason, instead = "trains whole teams", "leave view out"
    elif view == TEAM and not teams:
        reason = "does not train teams"
        instead = "view: shared or joint, or learner: taac"
    elif view == SHARED and not _can_share(config):
        reason = "has no policy that agents could share"
        instead = "view: joint, or learner: ppo"
    else:
        return
    raise OptionError(
        f"view is {view!r}, and learner: {learner} {reason}. Next steps: {instead}"
    )


def _can_share(config: RunConfig) -> bool:
    kind = learner_class(config.learner)
    return kind.shares_policy and isinstance(wants_of(config), Rows)


def make_learner(config: RunConfig, setup: LearnerSetup, **options: Any) -> Learner:
    """Make the learner of a run, for agents that share it where they do."""
    kind, team = learner_class(config.learner), setup.spec.metadata.get(TEAM_KEY)
    if team is None or kind.trains_teams:
        return kind.make(setup, **options)
    view: View = setup.spec.metadata.get(VIEW_KEY, View(SHARED))
    assert view.name == SHARED, view
    spaces = shared_spaces(team, config.pad)
    if kind.uses_masks and _need_masks(spaces, view):
        spaces = spaces.with_masks()
    if kind.needs_pool:
        return kind.make(setup, **_of_sb3(config, spaces), **options)
    return SharedLearner(kind, setup, spaces, **options)


def _need_masks(spaces: SharedSpaces, view: View) -> bool:
    """Whether rows need masks beside their observations."""
    padded = isinstance(spaces, PaddedSpaces)
    discrete = isinstance(spaces.action_space, spaces_of.Discrete)
    return view.masked or (padded and discrete)


def _of_sb3(config: RunConfig, spaces: SharedSpaces) -> dict[str, Any]:
    """What Stable-Baselines3 steps: a row for each agent."""
    from corral.api.shared_policy.policy import SharedPolicy
    from corral.api.shared_policy.pool import SharedPool
    from corral.api.shared_policy.sb3_env import SharedVecEnv
    from corral.learners.sb3.policy import SB3Policy

    def make_vec_env(pool: Pool) -> SharedVecEnv:
        return SharedVecEnv(SharedPool(pool, pad=config.pad))

    def policy(learner: Any) -> Any:
        team = learner.venv.shared.team
        return SharedPolicy(SB3Policy(learner.predictor), team, spaces)

    return {"make_vec_env": make_vec_env, "policy": policy}


# What the run says --------------------------------------------------------------------


def remark_of(config: RunConfig, pool: Pool) -> str:
    """Return how agents are seen and how they play; "" for envs with one agent."""
    metadata = pool.spec.metadata
    view: View | None = metadata.get(VIEW_KEY)
    if view is None:
        return ""
    team: Team | None = metadata.get(TEAM_KEY)
    why = f" ({view.reason}; set view: to choose another)" if view.reason else ""
    said = [f"view: {view.name}, {_described(view, team)}{why}"]
    if config.opponents == RANDOM:
        said.append("others move at random, in training and in evaluations")
    elif opponents_of(config, evaluating=True) == RANDOM:
        said.append("evaluations are against random moves, every seat in turn")
    if view.ignored:
        said.append(
            f"the env has action masks, which learner: {config.learner} ignores; "
            "learner: sb3_maskable_ppo (sb3-contrib's MaskablePPO) and learner: ppo "
            "obey them"
        )
    return "; ".join(said)


def _described(view: View, team: Team | None) -> str:
    if view.name == JOINT or team is None:
        turns = "; a step is one agent's turn" if view.turns else ""
        return f"one policy acts for all agents as one{turns}"
    count = len(team.agents)
    turns = ", which act in turn" if view.turns else ""
    if view.name == TEAM:
        return f"a team of up to {count} agents{turns}"
    return f"one policy for each of up to {count} agents{turns}"


def seats_of(config: RunConfig, pool: Pool, count: int) -> list[int] | None:
    """Return the seats of evaluations against random moves, in turn; else None."""
    if opponents_of(config, evaluating=True) != RANDOM:
        return None
    team: Team = pool.spec.metadata[TEAM_KEY]
    return [number % len(team.agents) for number in range(count)]
