"""TAAC equals a slow copy of itself, agent by agent, and learns in a team."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_taac import (
    advantages,
    attended,
    baseline,
    conformity,
    flattened_advantages,
    layers,
    logits,
    value,
)
from team_envs import AGENTS, PassItOn, Squad

import corral
from corral.api.pettingzoo.env import open_team_pool
from corral.errors import CheckpointError, OptionError, TrainingDiverged
from corral.learners.protocol import LearnerSetup, Rows
from corral.learners.taac import losses
from corral.learners.taac.learner import TAACLearner
from corral.learners.taac.numpy_actor import numpy_actor_of
from corral.learners.taac.settings import TAACConfig
from corral.learners.taac.team import TeamRows
from corral.rollouts.policy_rng import RowGenerators, SlotGenerators
from tests.api.multi_envs import Crowd, Table

SMALL = {"hidden": 8, "embedding": 4, "heads": 2, "n_epochs": 2, "batch_size": 64}


def squad_pool(slots: int = 2, **options: Any) -> corral.Pool:
    return open_team_pool(
        Squad, slots, backend="serial", seed=5, infos="final", env_kwargs=options
    )


def made_learner(pool: corral.Pool, seed: int = 0, **options: Any) -> TAACLearner:
    config = TAACConfig(**{**SMALL, **options})
    return TAACLearner(LearnerSetup(pool.spec, config, pool, seed=seed))


def collected(
    steps: int = 40, slots: int = 2, seed: int = 0, **env: Any
) -> tuple[TAACLearner, Any, list[Any]]:
    """A learner, a rollout of its policy, and what the envs say has happened."""
    with squad_pool(slots, **env) as pool:
        learner = made_learner(pool, seed)
        rollout = corral.Collector(pool, learner.policy).collect(steps)
        return learner, rollout, [one.log for one in pool.envs]


# Rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("continuous", [False, True])
def test_rows_are_what_happened_to_each_agent(continuous: bool) -> None:
    learner, rollout, logs = collected(120, continuous=continuous)
    rows = TeamRows.of(learner.team, rollout)
    seen = {"died": 0, "cut": 0, "left alone": 0, "absent": 0}
    for slot, log in enumerate(logs):
        assert len(log) == 120
        for row, happened in enumerate(log):
            for place, agent in enumerate(AGENTS):
                at = row, slot, place
                assert rows.alive[at] == rows.valid[at] == (agent in happened)
                if agent not in happened:
                    assert not rows.obs[at].any() and rows.reward[at] == 0
                    assert not rows.terminated[at] and not rows.truncated[at]
                    seen["absent"] += 1
                    continue
                obs, action, reward, dead, late, after = happened[agent]
                assert np.array_equal(rows.obs[at], obs.ravel())
                assert np.array_equal(rows.action[at], action)
                assert rows.reward[at] == reward
                assert rows.terminated[at] == dead
                assert rows.truncated[at] == (late and not dead)
                assert rows.staying[at] == (not dead)
                if not dead:
                    assert np.array_equal(rows.after[at], after.ravel())
                seen["died"] += dead
                seen["cut"] += late and not dead
                seen["left alone"] += (late and not dead) and not rollout.ended[at[:2]]
    assert min(seen.values()) > 5, seen


def test_episodes_that_a_collector_cuts_off_are_truncated_for_all() -> None:
    with squad_pool(1) as pool:
        learner = made_learner(pool)
        collector = corral.Collector(pool, learner.policy)
        rollout = collector.collect(30, end_episodes=1)
        rows = TeamRows.of(learner.team, rollout)
        ended = rows.terminated[-1] | rows.truncated[-1]
        assert rollout.ended[-1].all() and np.array_equal(ended, rows.alive[-1])
        last = rollout.final_obs["one+two+three"]["obs"][-1].reshape(3, 4)
        cut = rows.truncated[-1, 0]
        assert cut.any() and np.array_equal(rows.after[-1, 0][cut], last[cut])


# Nets ---------------------------------------------------------------------------------


def team_of(learner: TAACLearner, seed: int = 0, rows: int = 6) -> tuple[Any, ...]:
    """Random observations, choices, and who is there: at least one agent."""
    rng = np.random.default_rng(seed)
    alive = rng.random((rows, 3)) < 0.6
    alive[np.arange(rows), rng.integers(0, 3, rows)] = True
    obs = rng.normal(size=(rows, 3, learner.team.numbers)).astype(np.float32)
    chosen = torch.as_tensor(rng.integers(0, 3, (rows, 3, 1)))
    return torch.as_tensor(obs), torch.as_tensor(alive), chosen


def present(row: Any, alive: Any) -> list[Any]:
    return [row[place] for place in range(3) if alive[place]]


@pytest.mark.parametrize("own_embedding", [True, False])
def test_nets_are_those_of_the_agents_that_are_there(own_embedding: bool) -> None:
    with squad_pool() as pool:
        learner = made_learner(pool, own_embedding=own_embedding)
    obs, alive, chosen = team_of(learner)
    actions = learner._actions.of(chosen)
    with torch.no_grad():
        outputs, _ = learner.actor(obs, alive)
        values = learner.critic(obs, actions, alive)
        outputs = outputs.view(len(obs), 3, -1)
        for row in range(len(obs)):
            team = present(obs[row], alive[row])
            did = present(actions[row], alive[row])
            for me, place in enumerate(np.flatnonzero(alive[row]).tolist()):
                expected = logits(learner, team, me)
                torch.testing.assert_close(outputs[row, place], expected)
                judged = value(learner, team, did, me)
                assert float(values[row, place]) == pytest.approx(judged, abs=1e-5)


def test_the_baseline_is_the_mean_over_an_agents_own_actions() -> None:
    with squad_pool() as pool:
        learner = made_learner(pool)
    obs, alive, chosen = team_of(learner, seed=1)
    actions = learner._actions.of(chosen)
    found = learner.baseline(obs, alive, None, chosen)
    with torch.no_grad():
        for row in range(len(obs)):
            team = present(obs[row], alive[row])
            did = present(actions[row], alive[row])
            for me, place in enumerate(np.flatnonzero(alive[row]).tolist()):
                expected = baseline(learner, team, did, me)
                assert found[row, place] == pytest.approx(expected, abs=1e-5)


def test_the_baseline_of_a_box_is_the_mean_over_drawn_actions() -> None:
    with squad_pool(continuous=True) as pool:
        learner = made_learner(pool, baseline_samples=4000, log_std_init=-2.0)
    obs, alive, _ = team_of(learner, rows=2)
    chosen = torch.zeros(2, 3, 2)
    found = learner.baseline(obs, alive, None, chosen)
    rng = np.random.default_rng(3)
    with torch.no_grad():
        means = learner.actor(obs, alive)[0].view(2, 3, 2)
        for row, place in np.argwhere(alive.numpy()).tolist():
            noise = math.exp(-2.0) * rng.normal(size=(4000, 2)).astype(np.float32)
            each = chosen[row].repeat(4000, 1, 1)
            each[:, place] = (means[row, place] + torch.as_tensor(noise)).clamp(-1, 1)
            many = (obs[row].expand(4000, 3, -1), each, alive[row].expand(4000, 3))
            values = learner.critic(*many)[:, place]
            error = 5 * float(values.std()) / math.sqrt(2000)
            assert found[row, place] == pytest.approx(float(values.mean()), abs=error)


def test_what_absent_agents_see_or_do_changes_nothing() -> None:
    with squad_pool() as pool:
        learner = made_learner(pool)
    obs, alive, chosen = team_of(learner)
    other_obs = torch.where(alive[..., None], obs, 100.0)
    other_chosen = torch.where(alive[..., None], chosen, 2 - chosen)
    with torch.no_grad():
        ours, theirs = (learner.actor(one, alive)[0] for one in (obs, other_obs))
    there = alive.flatten()
    assert torch.equal(ours[there], theirs[there])
    ours, theirs = (
        learner.baseline(*pair)
        for pair in ((obs, alive, None, chosen), (other_obs, alive, None, other_chosen))
    )
    assert np.array_equal(ours[alive.numpy()], theirs[alive.numpy()])


# GAE ----------------------------------------------------------------------------------


def lives(rows: TeamRows, slot: int, agent: int) -> list[tuple[list[int], str]]:
    """The rows of each life of an agent, and how it ended."""
    found: list[tuple[list[int], str]] = []
    current: list[int] = []
    for row in range(len(rows.alive)):
        at = row, slot, agent
        if rows.alive[at]:
            current.append(row)
            if rows.terminated[at] or rows.truncated[at]:
                how = "terminated" if rows.terminated[at] else "truncated"
                found.append((current, how))
                current = []
    return [*found, (current, "")] if current else found


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_advantages_go_along_the_time_of_each_agent(seed: int) -> None:
    learner, rollout, _ = collected(25, seed=seed)
    rows = TeamRows.of(learner.team, rollout)
    expected = np.random.default_rng(seed).normal(size=rows.reward.shape)
    learner.baseline = AsTold(learner)  # type: ignore[assignment]
    advantage, returns = learner._advantages(rows, expected)
    config = learner.config
    for slot in range(2):
        for agent in range(3):
            for life, ends in lives(rows, slot, agent):
                at = life, slot, agent
                last = life[-1], slot, agent
                seen = rows.after[last] if ends else rows.next_obs[slot, agent]
                slow = advantages(
                    rows.reward[at],
                    expected[at],
                    ends,
                    float(seen.sum()),
                    config.gamma,
                    config.gae_lambda,
                )
                np.testing.assert_allclose(advantage[at], slow, atol=1e-5)
                np.testing.assert_allclose(
                    returns[at], np.array(slow) + expected[at], atol=1e-5
                )
    assert not advantage[~rows.valid].any()


class AsTold:
    """A baseline that is easy to know: the sum of what an agent sees."""

    def __init__(self, learner: TAACLearner) -> None:
        pass

    def __call__(self, obs: Any, alive: Any, *_: Any) -> Any:
        return obs.sum(-1).numpy().astype(np.float64)


def test_what_one_agent_gets_is_no_advantage_of_another() -> None:
    """With time and agents as one axis, as the authors' script has them, it is."""
    learner, rollout, _ = collected(25)
    rows = TeamRows.of(learner.team, rollout)
    learner.baseline = AsTold(learner)  # type: ignore[assignment]
    expected = np.zeros(rows.reward.shape)

    def ours(reward: Any) -> Any:
        changed = TeamRows(
            **{
                name: getattr(rows, name) if name != "reward" else reward
                for name in TeamRows.__slots__
            }
        )
        return learner._advantages(changed, expected)[0]

    def theirs(reward: Any) -> Any:
        over = rows.terminated | rows.truncated
        return flattened_advantages(reward[:, 0], expected[:, 0], over[:, 0], 0.9, 0.9)

    row = np.flatnonzero(rows.alive[:, 0].all(-1))[0]
    more = rows.reward.copy()
    more[row, 0, 1] += 1.0
    moved = ours(more) != ours(rows.reward)
    assert moved[row, 0, 1] and not moved[:, :, [0, 2]].any() and not moved[:, 1].any()
    assert (theirs(more) != theirs(rows.reward))[row, 0]


def test_a_truncated_episode_is_worth_what_follows_and_a_terminated_one_nothing() -> (
    None
):
    learner, rollout, _ = collected(60)
    rows = TeamRows.of(learner.team, rollout)
    learner.baseline = AsTold(learner)  # type: ignore[assignment]
    zeros = np.zeros(rows.reward.shape)
    advantage, _ = learner._advantages(rows, zeros)
    worth = advantage - rows.reward
    assert (worth[rows.terminated] == 0).all()
    expected = learner.config.gamma * rows.after.sum(-1, dtype=np.float32)
    np.testing.assert_allclose(
        worth[rows.truncated], expected[rows.truncated], atol=1e-5
    )
    assert rows.truncated.sum() > 5 and rows.terminated.sum() > 5


# Losses -------------------------------------------------------------------------------


def test_conformity_is_the_mean_likeness_of_pairs_cut_off_at_the_cap() -> None:
    rng = np.random.default_rng(0)
    seen = torch.as_tensor(rng.normal(size=(20, 3, 4)).astype(np.float32))
    alive = torch.as_tensor(rng.random((20, 3)) < 0.7)
    rows = [present(*pair) for pair in zip(seen, alive, strict=True)]
    for cap in (-1.0, 0.0, 0.3):
        found = losses.conformity(seen, alive, cap)
        assert float(found) == pytest.approx(conformity(rows, cap), abs=1e-5)
    assert float(losses.conformity(seen, torch.zeros(20, 3) > 0, 0.0)) == 0


def test_a_positive_coefficient_pushes_agents_apart() -> None:
    def after(coef: float) -> float:
        learner, rollout, _ = collected(60, slots=4)
        quiet = {"ent_coef": 0.0, "conformity_coef": coef, "conformity_cap": -1.0}
        learner.config = learner.config.model_copy(update=quiet)
        return [learner.update(rollout)["conformity"] for _ in range(4)][-1]

    assert after(5.0) < after(0.0) < after(-5.0)


def slow_loss(learner: TAACLearner, batch: Any) -> tuple[float, dict[str, float]]:
    """The loss of a minibatch, sample by sample."""
    config, terms = learner.config, dict[str, list[float]]()
    shown: list[list[Any]] = []
    for row in range(len(batch.obs)):
        alive = batch.alive[row]
        team = present(batch.obs[row], alive)
        did = present(learner._actions.of(batch.chosen[row]), alive)
        embedded = [layers(learner.actor.embedding, one) for one in team]
        attention = learner.actor.attention
        shown.append(
            [attended(attention, config.heads, embedded, me) for me in range(len(team))]
        )
        for me, place in enumerate(np.flatnonzero(alive).tolist()):
            if not batch.valid[row, place]:
                continue
            logs = logits(learner, team, me)
            log_prob = float(logs[batch.chosen[row, place, 0]])
            ratio = math.exp(log_prob - float(batch.log_prob[row, place]))
            gain = float(batch.advantage[row, place])
            bounded = min(max(ratio, 1 - config.clip_range), 1 + config.clip_range)
            away = value(learner, team, did, me) - float(batch.returns[row, place])
            terms.setdefault("policy_loss", []).append(
                -min(ratio * gain, bounded * gain)
            )
            terms.setdefault("value_loss", []).append(away**2)
            terms.setdefault("entropy", []).append(-float((logs.exp() * logs).sum()))
    means = {name: float(np.mean(values)) for name, values in terms.items()}
    means["conformity"] = conformity(shown, config.conformity_cap)
    whole = means["policy_loss"] + config.vf_coef * means["value_loss"]
    whole -= config.ent_coef * means["entropy"]
    return whole + config.conformity_coef * means["conformity"], means


def test_losses_and_their_gradient_are_those_of_single_samples() -> None:
    learner, rollout, _ = collected(12, slots=1)
    config = learner.config.model_copy(
        update={"conformity_coef": 0.3, "ent_coef": 0.2, "conformity_cap": -1.0}
    )
    learner.config = config
    samples, _ = learner._samples(rollout)
    shifted = {name: getattr(samples, name) for name in samples.__slots__}
    shifted["log_prob"] = shifted["log_prob"] + 0.3 * torch.randn(
        shifted["log_prob"].shape, generator=torch.Generator().manual_seed(0)
    )
    batch = type(samples)(**shifted)
    weight = learner.critic.body.layers[0].weight
    weights = [learner.actor.embedding.layers[0].weight, weight]
    numeric = []
    for one in weights:
        slopes = []
        for sign in (1, -1):
            with torch.no_grad():
                one[0, 0] += sign * 1e-2
                slopes.append(slow_loss(learner, batch)[0])
                one[0, 0] -= sign * 1e-2
        numeric.append((slopes[0] - slopes[1]) / 2e-2)
    with torch.no_grad():
        _, means = slow_loss(learner, batch)
    metrics = learner._learn(batch, lr=0.0)
    for name, expected in means.items():
        assert metrics[name] == pytest.approx(expected, abs=1e-4), name
    for one, slope in zip(weights, numeric, strict=True):
        assert float(one.grad[0, 0]) == pytest.approx(slope, rel=0.05, abs=2e-3)


# Learning -----------------------------------------------------------------------------


def test_every_row_is_learnt_from_also_in_a_partial_minibatch() -> None:
    learner, rollout, _ = collected(50)
    samples, _ = learner._samples(rollout)
    sizes = [len(batch.obs) for batch in learner._minibatches(samples)]
    useful = int(samples.valid.any(1).sum())
    per_pass = -(-useful // 21)  # 64 samples of 3 agents
    assert len(sizes) == 2 * per_pass
    assert sum(sizes) == 2 * useful and 0 < sizes[-1] < 21
    few, small, _ = collected(3)
    few.config = few.config.model_copy(update={"batch_size": 512})
    assert few.update(small)["gradient_norm"] > 0


def test_advantages_are_scaled_over_all_samples() -> None:
    learner, rollout, _ = collected(50)
    samples, _ = learner._samples(rollout)
    kept = samples.advantage[samples.valid]
    assert float(kept.mean()) == pytest.approx(0, abs=1e-5)
    assert float(kept.std()) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("continuous", [False, True])
def test_an_update_after_loading_is_the_update_that_would_have_been(
    continuous: bool,
) -> None:
    learner, rollout, _ = collected(continuous=continuous)
    learner.update(rollout)
    with squad_pool(continuous=continuous) as pool:
        other = made_learner(pool, seed=9)
    other.load_state_dict(learner.state_dict())
    assert learner.update(rollout) == other.update(rollout)
    for one, copy in zip(learner.net.parameters(), other.net.parameters(), strict=True):
        assert torch.equal(one, copy)
    assert (other.updates, other.steps) == (2, 160)


def test_the_learning_rate_falls_to_its_end() -> None:
    learner, rollout, _ = collected(10)
    learner.total_steps = 40
    rates = [learner.update(rollout)["lr"] for _ in range(3)]
    np.testing.assert_allclose(rates, [5e-4, 3e-4, 1e-4])
    for end in (None, 1e-2):
        learner.config = learner.config.model_copy(update={"lr_min": end})
        assert learner.update(rollout)["lr"] == 5e-4


@pytest.mark.parametrize("continuous", [False, True])
def test_a_team_learns_what_only_the_next_agent_sees(continuous: bool) -> None:
    with open_team_pool(
        PassItOn, 16, backend="serial", seed=1, env_kwargs={"continuous": continuous}
    ) as pool:
        learner = made_learner(
            pool,
            hidden=32,
            embedding=16,
            batch_size=384,
            n_epochs=6,
            ent_coef=0.0,
            gamma=0.5,
            lr=1e-2,
            lr_min=None,
            log_std_init=-0.7,
        )
        collector = corral.Collector(pool, learner.policy)
        rewards = []
        for _ in range(9):
            rollout = collector.collect(16)
            rewards.append(rollout.reward.mean() / 3)
            learner.update(rollout)
    assert rewards[0] < 0.55 and rewards[-1] > 0.9


def test_infinite_rewards_are_reported_and_leave_the_weights_alone() -> None:
    learner, rollout, _ = collected(10)
    rollout.obs["one+two+three"]["reward"][:] = np.inf
    before = {name: one.copy() for name, one in learner.policy.weights().items()}
    with pytest.raises(TrainingDiverged, match="is nan in update 1, after 20 steps"):
        learner.update(rollout)
    after = learner.policy.weights()
    assert all(np.array_equal(before[name], after[name]) for name in after)


# The policy ---------------------------------------------------------------------------


def test_a_greedy_copy_takes_the_likeliest_action_whatever_the_batch() -> None:
    with squad_pool(20) as pool:
        learner = made_learner(pool)
        step = pool.reset()
        greedy = learner.policy.deterministic()
        whole = greedy.act(step, None, None)
        obs, alive, _ = learner.team.seen(step.obs)
        with torch.no_grad():
            outputs = learner.actor(torch.as_tensor(obs), torch.as_tensor(alive))[0]
        likeliest = outputs.argmax(-1).numpy().reshape(20, 3) + 2
        assert np.array_equal(whole.action["one+two+three"], likeliest)
        some = pool.reset(slots=[3, 4], seed=pool.seed)
        alone = greedy.act(some, None, None)
        again = greedy.act(step, None, None)
        assert np.array_equal(again.extras["log_prob"], whole.extras["log_prob"])
        assert alone.action["one+two+three"].shape == (2, 3)


@pytest.mark.parametrize("continuous", [False, True])
def test_numpy_computes_what_torch_does_and_every_team_by_itself(
    continuous: bool,
) -> None:
    with squad_pool(1, continuous=continuous) as pool:
        learner = made_learner(pool, hidden=32, embedding=16)
    mirror = numpy_actor_of(learner.actor, learner.team.agents)
    assert mirror is not None
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(23, 3, learner.team.numbers)).astype(np.float32)
    present = rng.random((23, 3)) < 0.7
    options = learner.actor.head.layer.out_features
    allowed = None if continuous else rng.random((23, 3, options)) < 0.5
    whole = mirror.outputs(obs, present, allowed)
    tensors = [one if one is None else torch.tensor(one) for one in (present, allowed)]
    by_torch = learner.actor(torch.tensor(obs), *tensors)[0].detach().numpy()
    np.testing.assert_allclose(whole, by_torch, rtol=1e-4, atol=1e-5)
    for row in range(23):
        at = slice(row, row + 1)
        mask = None if allowed is None else allowed[at]
        alone = mirror.outputs(obs[at], present[at], mask)
        assert np.array_equal(alone, whole[3 * row : 3 * row + 3])


@pytest.mark.parametrize("continuous", [False, True])
def test_turn_after_turn_it_decides_as_in_single_turns(continuous: bool) -> None:
    with squad_pool(5, continuous=continuous) as pool:
        policy = made_learner(pool, hidden=32, embedding=16).policy
        turns, generators = policy.in_turns(5), [SlotGenerators(5), SlotGenerators(5)]
        step, absent = pool.reset(), 0
        for _ in range(30):
            one, other = (
                each.act(step, None, RowGenerators(drawn, np.arange(5)))
                for each, drawn in zip((policy, turns), generators, strict=True)
            )
            for name, values in one.extras.items():
                assert np.array_equal(other.extras[name], values)
            (group,) = one.action
            assert np.array_equal(other.action[group], one.action[group])
            absent += int((step.obs[group]["alive"] == 0).sum())
            step = pool.step(one.action)
    assert absent  # not only whole teams
    assert policy.deterministic().in_turns(5) is None


def test_another_copy_with_the_same_weights_does_the_same() -> None:
    with squad_pool(4, continuous=True) as pool:
        one, other = made_learner(pool, 0), made_learner(pool, 1)
        step = pool.reset()
        chosen = [
            each.policy.deterministic().act(step, None, None).extras["chosen"]
            for each in (one, other)
        ]
        assert not np.array_equal(*chosen)
        other.policy.load_weights(one.policy.weights())
        now = other.policy.deterministic().act(step, None, None).extras["chosen"]
    assert np.array_equal(now, chosen[0])


def test_a_copy_elsewhere_is_a_policy_of_its_own() -> None:
    learner, rollout, _ = collected(10)
    copy = learner.policy.on("cpu")
    before = {name: one.copy() for name, one in copy.weights().items()}
    learner.update(rollout)
    after = copy.weights()
    assert all(np.array_equal(before[name], after[name]) for name in after)
    assert not np.array_equal(
        after["head.layer.weight"], learner.policy.weights()["head.layer.weight"]
    )


@pytest.mark.parametrize("continuous", [False, True])
def test_copies_in_workers_collect_exactly_as_the_policy_does_here(
    continuous: bool,
) -> None:
    def learnt(act_in: str, **options: Any) -> tuple[Any, TAACLearner]:
        kwargs = {"continuous": continuous}
        with open_team_pool(Squad, 5, seed=5, env_kwargs=kwargs, **options) as pool:
            learner = made_learner(pool)
            policy = learner.policy.exact()
            collector = corral.Collector(pool, policy, act_in=act_in)
            for _ in range(2):
                rollout = collector.collect(20)
                learner.update(rollout)
        return rollout, learner

    here, ours = learnt("caller", backend="serial")
    for options in ({"backend": "serial"}, {"backend": "process", "workers": 2}):
        there, theirs = learnt("workers", **options)
        for part in ("reward", "obs"):
            seen = [one.obs["one+two+three"][part] for one in (here, there)]
            assert np.array_equal(*seen)
        assert np.array_equal(here.extras["log_prob"], there.extras["log_prob"])
        weights = [one.policy.weights() for one in (ours, theirs)]
        assert all(
            np.array_equal(weights[0][name], weights[1][name]) for name in weights[0]
        )


def test_forbidden_actions_are_not_taken() -> None:
    learner, rollout, _ = collected(80, masks=True)
    rows = TeamRows.of(learner.team, rollout)
    assert rows.allowed is not None
    taken = np.take_along_axis(rows.allowed, rows.action[..., None] - 2, -1)[..., 0]
    assert taken[rows.valid].all() and not rows.allowed[rows.valid].all()
    metrics = learner.update(rollout)
    assert metrics["entropy"] < math.log(2) + 1e-3
    assert all(math.isfinite(number) for number in metrics.values())


# Refusals -----------------------------------------------------------------------------


def refused(make: Any, match: str, **options: Any) -> None:
    config = TAACConfig(**SMALL)
    pool = open_team_pool(make, 1, backend="serial")
    with pool, pytest.raises(OptionError, match=match):
        TAACLearner(LearnerSetup(pool.spec, config, pool, **options))


class Bits(Squad):
    """Whose actions are several at once."""

    def action_space(self, agent: str) -> Any:
        return MANY


MANY = spaces.MultiDiscrete([2, 2])


def test_envs_that_it_cannot_learn_are_refused_with_the_reason() -> None:
    refused(Crowd, "these have different spaces")
    refused(Table, "act in turn")
    refused(Bits, "Wrap the env to take one of these")
    refused(Squad, "set normalise_obs: false", normalise_obs=True)
    refused(Squad, "set normalise_reward: false", normalise_reward=True)
    pool = corral.Pool("CartPole-v1", 1, backend="serial")
    with pool, pytest.raises(OptionError, match="this one has a single agent"):
        TAACLearner(LearnerSetup(pool.spec, TAACConfig(), pool))


def test_settings_that_do_not_fit_are_refused() -> None:
    with squad_pool() as pool:
        with pytest.raises(OptionError, match="the heads must divide the embedding"):
            made_learner(pool, embedding=6, heads=4)
        learner = made_learner(pool)
        other = made_learner(pool, hidden=9)
        with pytest.raises(CheckpointError, match="not those of this learner"):
            other.load_policy(learner.state_dict())
    assert TAACLearner.wants(TAACConfig(n_steps=7)) == Rows(7)


def test_rollouts_of_other_policies_are_refused() -> None:
    learner, rollout, _ = collected(5)
    rollout.extras.clear()
    with pytest.raises(OptionError, match="collect it with this learner's `policy`"):
        learner.update(rollout)
