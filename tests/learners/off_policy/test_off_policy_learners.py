"""SAC and TD3 as learners of a run: collecting, storing, saving, refusing, learning."""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy_envs import Aim, Broken, Choice, Drift, Recall
from pydantic import ValidationError

import corral
from corral.errors import (
    CheckpointError,
    OptionError,
    SpaceMismatch,
    TrainingDiverged,
)
from corral.learners.episode_batch import EpisodeGatherer
from corral.learners.off_policy.learner import SACLearner, TD3Learner
from corral.learners.off_policy.transitions import of_episode, of_rollout
from corral.learners.protocol import Episodes, LearnerSetup, Rows
from corral.rollouts.collector import Collector

SMALL = {
    "hidden": (8, 8),
    "memory_size": 6,
    "batch_size": 8,
    "random_steps": 0,
    "replay_size": 1000,
}
LEARNERS = {"sac": SACLearner, "td3": TD3Learner}


def made_learner(kind: str = "sac", env=Drift, seed: int = 0, **settings):
    learner = LEARNERS[kind]
    setup = LearnerSetup(
        SimpleNamespace(
            observation_space=env.observation_space, action_space=env.action_space
        ),
        learner.Config(**(SMALL | settings)),
        seed=seed,
    )
    return learner(setup)


def trained(learner, env, turns: int, first: int = 0):
    """Collect from two slots and update, in numbered turns; return all metrics."""
    wants = learner.wants(learner.settings)
    found = []
    for turn in range(first, first + turns):
        with corral.Pool(env, 2, backend="serial", seed=turn) as pool:
            if isinstance(wants, Rows):
                gatherer = Collector(pool, learner.policy)
            else:
                gatherer = EpisodeGatherer(pool, learner.policy, wants)
            found.append(learner.update(gatherer.collect(wants.count)))
    return found


def weights(net):
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach().clone()


# Collecting ---------------------------------------------------------------------------


def episodes_of(env, learner, backend: str, slots: int):
    with corral.Pool(env, slots, backend=backend, seed=5) as pool:
        batch = EpisodeGatherer(pool, learner.policy, Episodes(9)).collect(9)
    return [of_episode(episode, learner._observe) for episode in batch]


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize(
    ("kind", "env", "architecture"),
    [
        ("sac", Drift, "markov"),
        ("sac", Choice, "memory"),
        ("td3", Drift, "memory"),
    ],
)
def test_episodes_do_not_depend_on_where_they_run(kind, env, architecture, is_random):
    learner = made_learner(kind, env, architecture=architecture)
    learner.policy.random = is_random
    alone = episodes_of(env, learner, "serial", 1)
    assert len({len(one["reward"]) for one in alone}) > 1
    for backend, slots in (("serial", 4), ("thread", 3), ("process", 2)):
        beside = episodes_of(env, learner, backend, slots)
        for one, other in zip(alone, beside, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("env", [Drift, Choice])
def test_random_actions_fill_the_space(env):
    learner = made_learner("sac", env, random_steps=200)
    episodes = []
    with corral.Pool(env, 2, backend="serial", seed=1) as pool:
        for _ in range(8):
            gathered = EpisodeGatherer(pool, learner.policy, Episodes(9)).collect(9)
            episodes += list(gathered)
    actions = np.concatenate([episode.action for episode in episodes])
    if env is Choice:
        assert set(actions.tolist()) == {1, 2, 3}
    else:
        assert actions.min(0).max() < -1.8 and actions.max(0).min() > 0.8


def test_warm_up_lasts_for_steps_and_for_episodes():
    learner = made_learner(
        architecture="memory", random_steps=10, random_episodes=4, episodes=2
    )
    states = []
    for turn in range(4):
        states.append(learner.policy.random)
        metrics = trained(learner, Drift, 1, turn)[0]
    assert states == [True, True, False, False]
    assert metrics["updates"] > 0
    assert not learner.policy.deterministic().random


def test_a_variant_of_a_policy_that_warms_up_does_not_act_at_random():
    policy = made_learner(random_steps=10).policy
    assert policy.random
    variants = policy.deterministic(), policy.stochastic(), policy.frozen()
    assert not any(variant.random for variant in variants)


# Storing ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [True, False])
def test_a_truncated_episode_is_not_terminated(rows):
    learner = made_learner("sac", rows=40)
    with corral.Pool(Drift, 3, backend="serial", seed=2) as pool:
        if rows:
            rollout = Collector(pool, learner.policy).collect(40)
            found, ended = of_rollout(rollout, learner._observe), rollout.ended.ravel()
            last = np.concatenate([rollout.final_obs]).astype(np.float32)
            truncated = rollout.truncated.ravel()
        else:
            batch = list(
                EpisodeGatherer(pool, learner.policy, Episodes(12)).collect(12)
            )
            parts = [of_episode(one, learner._observe) for one in batch]
            found = {
                name: np.concatenate([part[name] for part in parts])
                for name in parts[0]
            }
            ended = np.zeros(len(found["reward"]), np.bool_)
            ended[np.cumsum([len(one) for one in batch]) - 1] = True
            last = np.concatenate([one.final_obs for one in batch]).astype(np.float32)
            truncated = ended & ~found["terminated"]
            assert truncated.sum() == sum(one.truncated for one in batch)
    assert truncated.any() and found["terminated"].any()
    assert np.array_equal(found["terminated"], ended & ~truncated)
    assert np.array_equal(found["next_obs"][ended], last)


def test_updates_are_counted_or_a_share_of_the_steps():
    learner = made_learner(updates=0.25, rows=5)
    counted = made_learner(updates=3, rows=5)
    shares = [one["updates"] for one in trained(learner, Drift, 4)]
    counts = [one["updates"] for one in trained(counted, Drift, 2)]
    assert shares == [2, 5, 7, 10] and counts == [3, 6]


@pytest.mark.parametrize("architecture", ["memory", "memory_markov"])
def test_sequences_may_be_longer_than_episodes(architecture):
    learner = made_learner(
        "td3", architecture=architecture, sequence_length=50, episodes=3, updates=2
    )
    metrics = trained(learner, Drift, 2)[-1]
    assert metrics["updates"] == 4 and np.isfinite(metrics["critic_loss"])
    batch = learner.replay.sample(64, np.random.default_rng(0))
    assert len(batch["mask"]) <= 9
    with pytest.raises(ValidationError, match="sequence_length is 50, longer than"):
        made_learner(sequence_length=50, replay_size=20)


# Overlap and saving -------------------------------------------------------------------


def test_overlap_acts_with_the_weights_of_one_collection_before():
    with corral.Pool(Drift, 2, backend="serial", seed=0) as pool:
        rollouts = []
        acting = made_learner()
        for turn in range(4):
            collector = Collector(pool, acting.policy)
            collector.end_episodes(turn)
            rollouts.append(collector.collect(8))
    turns, overlapping = made_learner(), made_learner(overlap=1)
    before, reported = weights(turns.agent.actor), {}
    for rollout in rollouts:
        earlier, reported = reported, turns.update(rollout)
        assert overlapping.update(rollout) == earlier
        assert torch.equal(weights(overlapping.policy.actor), before)
        before = weights(turns.agent.actor)
    overlapping.state_dict()  # waits
    assert torch.equal(weights(overlapping.agent.actor), before)


def test_overlap_is_deterministic():
    found = []
    for _ in range(2):
        learner = made_learner(overlap=1, architecture="memory", episodes=2)
        found.append(trained(learner, Drift, 4))
    assert found[0] == found[1] and found[0][0] == {}


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sac", {"architecture": "memory", "memory": "lstm", "episodes": 2}),
        ("sac", {"rows": 6, "updates": 0.3, "random_steps": 20}),
        ("td3", {"architecture": "memory_markov", "episodes": 2, "policy_delay": 2}),
    ],
)
def test_a_saved_learner_continues_exactly(kind, settings, overlap):
    settings = {"updates": 3, **settings, "overlap": overlap}
    one, other = made_learner(kind, **settings), made_learner(kind, seed=9, **settings)
    trained(one, Drift, 3)
    state = copy.deepcopy(one.state_dict())
    rows = one.replay.rows(0, one.replay.total)
    went_on = trained(one, Drift, 3, first=3)
    other.load_state_dict(state)
    other.replay.restore(0, rows)
    assert trained(other, Drift, 3, first=3) == went_on
    ends = one.state_dict(), other.state_dict()
    for name in ("actor", "critic", "target_critic"):
        nets = [end["agent"]["nets"][name] for end in ends]
        assert all(torch.equal(nets[0][key], nets[1][key]) for key in nets[0])


def test_a_saved_state_does_not_change_with_the_learner():
    learner = made_learner(rows=6)
    trained(learner, Drift, 2)
    state = learner.state_dict()
    kept = copy.deepcopy(state)
    trained(learner, Drift, 2, first=2)
    assert_same(state, kept)


def assert_same(one, other) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, (torch.Tensor, np.ndarray)):
        assert np.array_equal(np.asarray(one), np.asarray(other))
    else:
        assert one == other


def test_a_policy_is_taken_over_without_the_replay():
    one, other = made_learner(rows=6), made_learner(rows=6, seed=4)
    trained(one, Drift, 2)
    other.load_policy(one.state_dict())
    assert torch.equal(weights(one.policy.actor), weights(other.policy.actor))
    assert torch.equal(one.agent.log_alpha, other.agent.log_alpha)
    assert len(other.replay) == 0


# Bad input ----------------------------------------------------------------------------


def test_nets_of_another_size_are_refused():
    narrow, wide = made_learner(hidden=(8,)), made_learner(hidden=(9,))
    with pytest.raises(CheckpointError, match="not those of this learner"):
        wide.load_policy(narrow.state_dict())


def spaces_of(observation=None, action=None):
    return SimpleNamespace(
        observation_space=observation or Drift.observation_space,
        action_space=action or Drift.action_space,
    )


@pytest.mark.parametrize(
    ("kind", "env", "words"),
    [
        ("td3", spaces_of(action=spaces.Discrete(3)), "Discrete.*TD3 takes Box of"),
        ("sac", spaces_of(action=spaces.MultiDiscrete([2, 3])), "SAC takes Box of"),
        ("sac", spaces_of(action=spaces.Box(0, 9, (2,), np.int64)), "SAC takes Box of"),
        ("td3", spaces_of(action=spaces.Box(-np.inf, 1.0, (2,))), "need finite bounds"),
        (
            "sac",
            spaces_of(spaces.Dict({"eye": spaces.Box(0, 255, (64, 64, 3), np.uint8)})),
            r"observation\['eye'\] is .* an image",
        ),
        ("sac", spaces_of(spaces.Text(5)), "observation is Text"),
    ],
)
def test_spaces_that_a_learner_cannot_take_are_named(kind, env, words):
    with pytest.raises(SpaceMismatch, match=words):
        made_learner(kind, env)


@pytest.mark.parametrize("name", ["normalise_obs", "normalise_reward"])
def test_normalisers_are_refused(name):
    settings = SACLearner.Config(**SMALL)
    with pytest.raises(OptionError, match=f"{name} is True; SAC keeps rows"):
        SACLearner(LearnerSetup(spaces_of(), settings, **{name: True}))


@pytest.mark.parametrize("what", ["reward", "obs"])
@pytest.mark.parametrize("architecture", ["markov", "memory"])
def test_numbers_that_are_not_finite_are_not_stored(architecture, what):
    learner = made_learner(architecture=architecture, rows=20)
    name = "reward nan" if what == "reward" else r"observation .*inf"
    factory = functools.partial(Broken, what)
    with pytest.raises(TrainingDiverged, match=f"returned the {name}"):
        trained(learner, factory, 1)
    assert len(learner.replay) == 0


@pytest.mark.parametrize("overlap", [0, 1])
def test_losses_that_diverge_are_reported(overlap):
    learner = made_learner(rows=4, overlap=overlap)
    with torch.no_grad():
        for weight in learner.agent.critic.parameters():
            weight.fill_(1e38)
    with pytest.raises(TrainingDiverged, match=r"critic_loss is .* after"):
        trained(learner, Drift, 2)


# Learning -----------------------------------------------------------------------------


def mean_return(learner, env) -> float:
    with corral.Pool(env, 8, backend="serial", seed=77) as pool:
        return corral.evaluate(learner.policy.deterministic(), pool, 64, 77).mean


LEARNS = {"lr": 3e-3, "hidden": (32,), "memory_size": 16, "batch_size": 64, "tau": 0.05}


@pytest.mark.parametrize("kind", ["sac", "td3"])
def test_an_actor_learns_where_to_aim(kind):
    """No aim at all misses by 0.25."""
    more = {"alpha": 0.01} if kind == "sac" else {}
    settings = LEARNS | {"rows": 16, "random_steps": 100} | more
    learner = made_learner(kind, Aim, **settings)
    trained(learner, Aim, 16)
    assert mean_return(learner, Aim) > -0.06


@pytest.mark.parametrize(("architecture", "remembers"), [("memory", 1), ("markov", 0)])
def test_only_an_actor_with_a_memory_recalls(architecture, remembers):
    settings = {"architecture": architecture, "episodes": 32, "random_steps": 64}
    learner = made_learner("sac", Recall, **LEARNS, **settings, updates=60, alpha=0.02)
    trained(learner, Recall, 6)
    found = mean_return(learner, Recall)
    assert (found > 0.95) if remembers else (found < 0.75)
