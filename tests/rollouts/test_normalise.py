"""Running means and variances are those of everything that was shown."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from contracts.envs import Countdown, Mixed
from contracts.reference import same
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import corral
from corral import Collector, Decision, ObsNorm, Pool, RewardNorm, Step, run_episodes
from corral.errors import OptionError, TrainingDiverged
from corral.rollouts.normalise import RunningNorm

FLOATS = st.floats(-1e3, 1e3, allow_nan=False, width=32)
MAKE = functools.partial(Countdown, float, 5)


@settings(deadline=None, database=None)
@given(
    batches=st.lists(
        arrays.arrays(
            np.float32, st.tuples(st.integers(0, 7), st.just(2)), elements=FLOATS
        ),
        min_size=1,
        max_size=6,
    )
)
def test_batches_merge_as_if_all_had_come_at_once(batches: list[Any]) -> None:
    norm = RunningNorm((2,))
    for batch in batches:
        norm.update(batch)
    everything = np.concatenate(batches).astype(np.float64)
    assert norm.count == len(everything)
    if len(everything):
        np.testing.assert_allclose(norm.mean, everything.mean(0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            norm.variance, everything.var(0), rtol=1e-6, atol=1e-6
        )
    else:
        assert norm.mean.tolist() == [0, 0] and norm.variance.tolist() == [1, 1]


def test_a_state_survives_saving() -> None:
    norm, other = RunningNorm((2,)), RunningNorm((2,))
    norm.update(np.array([[1.0, 2.0], [3.0, 5.0]]))
    other.load_state_dict(norm.state_dict())
    norm.update(np.ones((3, 2)))
    other.update(np.ones((3, 2)))
    assert same(norm.state_dict(), other.state_dict())
    with pytest.raises(
        OptionError, match=r"saved mean has shape \(2,\); expected \(3,"
    ):
        RunningNorm((3,)).load_state_dict(norm.state_dict())


def test_only_floating_point_leaves_are_scaled() -> None:
    norm = ObsNorm(Mixed.observation_space)
    assert sorted(norm.norms) == ["nothing", "pose.0", "pose.2.wide"]
    with Pool(Mixed, 2, backend="serial", seed=0) as pool:
        obs = pool.reset().obs
    scaled = norm(obs)
    assert list(scaled) == list(obs)
    assert same(scaled["image"], obs["image"]) and same(scaled["bits"], obs["bits"])
    assert scaled["pose"][2]["wide"].dtype == np.float32


class Ones:
    """Acts the same whatever it sees; expects the first number of it."""

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        return Decision(np.ones(len(step), int), extras={"saw": np.array(step.obs)})

    def value(self, obs: Any, carry: Any) -> Any:
        return obs[:, 0]


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("mode", ["sync", "two_groups", "first_ready"])
def test_a_rollout_is_scaled_by_what_was_seen_before_it(
    mode: str, autoreset: Any
) -> None:
    with Pool(MAKE, 4, backend="serial", autoreset=autoreset, seed=2) as pool:
        collector = Collector(pool, Ones(), mode=mode)
        raw = [collector.collect(rows) for rows in (6, 9)]
        norm = ObsNorm(pool.spec.observation_space, clip=1.5)
        collector = Collector(pool, Ones(), mode=mode, obs_norm=norm)
        first, second = collector.collect(6), collector.collect(9)
    assert same(first.obs, np.clip(raw[0].obs, -1.5, 1.5))
    shown = raw[0].obs[raw[0].valid].astype(np.float64)
    scale = 1 / np.sqrt(shown.var(0) + 1e-8)

    def scaled(obs: Any) -> Any:
        return np.clip((obs - shown.mean(0)) * scale, -1.5, 1.5)

    for name in ("obs", "final_obs", "next_obs"):
        expected = scaled(getattr(raw[1], name))
        np.testing.assert_allclose(
            getattr(second, name), expected, rtol=1e-5, atol=1e-6
        )
    assert second.obs.dtype == second.final_obs.dtype == np.float32
    assert same(second.obs, second.extras["saw"])
    np.testing.assert_allclose(second.next_value, scaled(raw[1].next_obs)[:, 0], 1e-5)
    cut = (second.truncated & second.valid)[second.ended]
    values = second.bootstrap[second.truncated & second.valid]
    assert values.tolist() == second.final_obs[cut][:, 0].tolist()
    assert norm.norms[""].count == raw[0].valid.sum() + raw[1].valid.sum()


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_rewards_are_scaled_by_the_deviation_of_discounted_returns(
    autoreset: Any,
) -> None:
    with Pool(MAKE, 3, backend="serial", autoreset=autoreset, seed=2) as pool:
        collector = Collector(pool, Ones())
        raw = [collector.collect(rows) for rows in (6, 9)]
        norm = RewardNorm(0.9, clip=2.0)
        collector = Collector(pool, Ones(), reward_norm=norm)
        got = [collector.collect(rows) for rows in (6, 9)]
    returns: list[float] = []
    running = [0.0] * 3
    for plain, scaled in zip(raw, got, strict=True):
        for row in range(len(plain)):
            for slot in range(3):
                before = 0.0 if plain.started[row, slot] else running[slot]
                running[slot] = 0.9 * before + plain.reward[row, slot]
                if plain.valid[row, slot]:
                    returns.append(running[slot])
        expected = np.clip(plain.reward / np.sqrt(np.var(returns) + 1e-8), -2, 2)
        np.testing.assert_allclose(scaled.reward, expected, rtol=1e-9)
        assert repr(scaled.episodes) == repr(plain.episodes)  # as the envs gave them


def test_a_collector_goes_on_from_what_it_saved() -> None:
    rollouts = []
    with Pool(MAKE, 3, backend="serial", seed=2) as pool:
        seed, saved = pool.seed, None
        for interrupted in (False, True):
            pool.reset(seed=seed)
            norms = {
                "obs_norm": ObsNorm(pool.spec.observation_space),
                "reward_norm": RewardNorm(),
            }
            collector = Collector(pool, Ones(), **norms)
            if not interrupted:
                collector.collect(8)
                saved = collector.state_dict()
            assert saved is not None
            collector.load_state_dict(saved)
            collector.end_episodes(1)
            rollouts.append(collector.collect(8))
        assert same(rollouts[0].obs, rollouts[1].obs)
        assert same(rollouts[0].reward, rollouts[1].reward)
        plain = Collector(pool, Ones())
        with pytest.raises(OptionError, match="saved by a collector with obs_norm"):
            plain.load_state_dict(saved)
        other = ObsNorm(spaces.Dict({"a": spaces.Box(0, 1, (2,))}))
        with pytest.raises(OptionError, match=r"the saved state has the leaves \[''\]"):
            other.load_state_dict(saved["obs_norm"])


class Breaking(Countdown):
    """Three steps on its numbers break down, and a step later its rewards."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        seen = super().reset(seed=seed)
        self._left = 5
        return seen

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        if self._left == 2:
            obs = np.full_like(obs, np.inf)
        return (obs, np.nan if self._left == 1 else reward, *rest)


@pytest.mark.parametrize(
    ("scaled", "told"),
    [
        ("obs", "slot 0 returned the observation inf in row 3 of the rollout"),
        ("reward", "slot 0 returned the reward nan in row 3 of the rollout"),
        ("both", "slot 0 returned the observation inf in row 3 of the rollout"),
    ],
)
def test_what_is_not_finite_is_told_and_not_learnt(scaled: str, told: str) -> None:
    with Pool(Breaking, 2, backend="serial", seed=2) as pool:
        obs, reward = ObsNorm(pool.spec.observation_space), RewardNorm()
        collector = Collector(
            pool,
            Ones(),
            obs_norm=None if scaled == "reward" else obs,
            reward_norm=None if scaled == "obs" else reward,
        )
        collector.collect(2)
        before = obs.state_dict(), reward.state_dict()
        collector.end_episodes(1)
        with pytest.raises(TrainingDiverged, match=told):
            collector.collect(8)
        assert same((obs.state_dict(), reward.state_dict()), before)


def test_episodes_are_seen_scaled_and_teach_nothing() -> None:
    with Pool(MAKE, 3, backend="serial", seed=2) as pool:
        norm = ObsNorm(pool.spec.observation_space)
        norm.update(
            np.array([[[0.0, 1.0, 2.0], [4.0, 3.0, 8.0]]]), np.ones((1, 2), bool)
        )
        state = norm.state_dict()
        (episode,) = run_episodes(pool, Ones(), episodes=1, obs_norm=norm)
    np.testing.assert_allclose(episode.extras["saw"], norm(episode.obs), rtol=1e-6)
    assert same(norm.state_dict(), state)


def test_options_without_a_meaning_are_refused() -> None:
    with pytest.raises(OptionError, match="clip is 0"):
        ObsNorm(MAKE().observation_space, clip=0)
    with pytest.raises(OptionError, match=r"gamma is 1\.5"):
        RewardNorm(1.5)
    with pytest.raises(OptionError, match="clip is -1"):
        RewardNorm(0.9, clip=-1)


def test_the_state_of_a_whole_team_is_not_scaled() -> None:
    from api.multi_envs import Table

    envs = corral.make_multi(Table, 2, state=True, backend="serial")
    with envs.pool as pool:
        norm = ObsNorm(pool.spec.observation_space)
        obs = pool.reset(seed=0).obs
        assert norm(obs)["state"] is obs["state"]
        assert all(name.split(".")[1] == "obs" for name in norm.norms)
