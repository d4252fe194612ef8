"""PPO: what one update computes, what it is not taught by, and how it goes on."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learner_envs import Match, Recall
from made_rollouts import BOX, Draws, made_rollout, with_filler
from slow_ppo import slow_update

from corral.engine.pool import Pool
from corral.errors import CheckpointError, OptionError, SpaceMismatch, TrainingDiverged
from corral.learners.minibatches import even_parts, shuffled
from corral.learners.nets.numpy_forward import numpy_forward_of
from corral.learners.ppo import PPO, PPOConfig
from corral.rollouts.collector import Collector

ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary(3),
    "box": spaces.Box(-0.5, 0.5, (2,), np.float32),
}
SHORT = {"n_steps": 16, "batch_size": 32, "n_epochs": 3, "lr": 1e-2}


def learner(
    action=ACTIONS["discrete"], space=BOX, seed=0, total=None, **options
) -> PPO:
    config = PPOConfig(**{**SHORT, **options})
    return PPO(space, action, config, seed=seed, total_steps=total)


def weights_of(ppo: PPO) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in ppo.net.state_dict().items()}


def assert_close(ours, others) -> None:
    assert ours.keys() == others.keys()
    for name, value in ours.items():
        torch.testing.assert_close(
            value, others[name], rtol=1e-4, atol=2e-6, msg=lambda text, n=name: n + text
        )


def assert_same(ours, others) -> None:
    assert all(torch.equal(value, others[name]) for name, value in ours.items())


def assert_differ(ours, others) -> None:
    assert any(not torch.equal(value, others[name]) for name, value in ours.items())


def orders_of(ppo: PPO, rollout) -> list[list[tuple[int, int]]]:
    """The minibatches of an update without a memory, as pairs of row and slot."""
    generator = torch.Generator()
    generator.set_state(ppo.state_dict()["generator"])
    batches = []
    for _ in range(ppo.config.n_epochs):
        index = shuffled(np.flatnonzero(rollout.valid), generator)
        parts = even_parts(len(index), ppo.config.batch_size)
        slots = rollout.valid.shape[1]
        batches += [[divmod(int(i), slots) for i in index[part]] for part in parts]
    return batches


# What an update computes --------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(
    "options",
    [{}, {"ent_coef": 0.1, "clip_range_vf": 0.05, "normalise_advantage": False}],
    ids=["defaults", "options"],
)
def test_an_update_equals_the_slow_reference(kind, options):
    ppo = learner(ACTIONS[kind], **options)
    rollout = made_rollout(ppo, BOX)
    expected = slow_update(ppo, rollout, orders_of(ppo, rollout))
    ppo.update(rollout)
    assert_close(weights_of(ppo), expected)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_an_update_with_memory_equals_stepping_row_by_row(memory):
    ppo = learner(memory=memory, memory_size=8, batch_size=1000, n_epochs=2)
    rollout = made_rollout(ppo, BOX, rows=20, end=0.15)
    assert rollout.started[1:].any(), "an episode starts inside the rollout"
    assert not rollout.started[0].all(), "a slot goes on from before"
    every = [(row, slot) for row in range(20) for slot in range(4)]
    expected = slow_update(ppo, rollout, [every] * 2)
    ppo.update(rollout)
    assert_close(weights_of(ppo), expected)


def test_an_update_with_memory_learns_from_some_slots_at_a_time():
    ppo = learner(memory="gru", memory_size=8, batch_size=32, n_epochs=2)
    rollout = made_rollout(ppo, BOX, rows=16, slots=6)
    assert ppo.update(rollout)["minibatches"] == 6


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_an_update_equals_that_of_stable_baselines3(kind):
    sb3 = pytest.importorskip("stable_baselines3")
    space = ACTIONS[kind] if kind == "box" else spaces.Discrete(3)
    rows, slots = 16, 4
    theirs = sb3.PPO(
        "MlpPolicy",
        sb3.common.vec_env.DummyVecEnv([lambda: Blank(space)] * slots),
        n_steps=rows,
        batch_size=rows * slots,
        seed=0,
        device="cpu",
    )
    ppo = learner(space, batch_size=rows * slots, n_epochs=10, lr=3e-4)
    ppo.net.load_state_dict(from_sb3(theirs.policy))
    rollout = made_rollout(ppo, BOX, rows, slots)
    fill_sb3(theirs, rollout)
    theirs._logger = sb3.common.logger.configure(format_strings=[])
    theirs.train()
    ppo.update(rollout)
    assert_close(weights_of(ppo), from_sb3(theirs.policy))


class Blank(Match):
    """An env of the spaces asked for; it is never stepped."""

    def __init__(self, action_space) -> None:
        self.observation_space = BOX
        self.action_space = action_space


def from_sb3(policy) -> dict[str, torch.Tensor]:
    """Weights of SB3's policy under our names."""
    saved = policy.state_dict()
    ours = {}
    for tower, net in (("actor", "policy_net"), ("critic", "value_net")):
        for ordinal, layer in enumerate((0, 2)):
            for part in ("weight", "bias"):
                found = saved[f"mlp_extractor.{net}.{layer}.{part}"]
                ours[f"{tower}.layers.{ordinal}.{part}"] = found.clone()
    for part in ("weight", "bias"):
        ours[f"head.layer.{part}"] = saved[f"action_net.{part}"].clone()
        ours[f"value.{part}"] = saved[f"value_net.{part}"].clone()
    if "log_std" in saved:
        ours["head.log_std"] = saved["log_std"].clone()
    return ours


def fill_sb3(theirs, rollout) -> None:
    """Put a rollout into SB3's buffer; it has truncations bootstrapped by reward."""
    buffer = theirs.rollout_buffer
    buffer.reset()
    reward = rollout.reward + theirs.gamma * rollout.bootstrap
    actions = rollout.extras.get("chosen", rollout.action)
    for row in range(len(reward)):
        buffer.add(
            rollout.obs[row],
            actions[row],
            reward[row],
            rollout.started[row],
            torch.as_tensor(rollout.extras["value"][row]),
            torch.as_tensor(rollout.extras["log_prob"][row]),
        )
    last = (rollout.terminated | rollout.truncated)[-1]
    value = torch.as_tensor(rollout.next_value.astype(np.float32))
    buffer.compute_returns_and_advantage(value, last)


def test_new_weights_are_as_large_as_those_of_stable_baselines3():
    net = learner(ACTIONS["box"], log_std_init=-0.5).net
    for name, gain in (
        ("actor.layers.1", 2**0.5),
        ("value", 1.0),
        ("head.layer", 0.01),
    ):
        weight = net.state_dict()[f"{name}.weight"]
        square = weight @ weight.T if len(weight) <= 64 else weight.T @ weight
        torch.testing.assert_close(square, gain**2 * torch.eye(len(square)))
        assert not net.state_dict()[f"{name}.bias"].any()
    assert net.head.log_std.tolist() == [-0.5, -0.5]


# What it is not taught by -------------------------------------------------------------


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_nothing_is_learnt_from_filler(memory):
    results = []
    for garbage in (np.nan, 1e6):
        ppo = learner(ACTIONS["box"], memory=memory, memory_size=8)
        rollout = made_rollout(ppo, BOX)
        # As under next_step: the last row before a start, with the end before it.
        valid = np.ones_like(rollout.valid)
        valid[:-1] = ~rollout.started[1:]
        flags = {"terminated": False, "truncated": False}
        rollout = with_filler(rollout, valid, obs=garbage, reward=garbage, **flags)
        for name in ("log_prob", "chosen"):
            rollout.extras[name][~valid] = garbage
        ppo.update(rollout)
        results.append(weights_of(ppo))
    assert_same(*results)
    assert_differ(
        results[0], weights_of(learner(ACTIONS["box"], memory=memory, memory_size=8))
    )


def test_a_rollout_of_filler_alone_changes_nothing():
    ppo = learner()
    rollout = made_rollout(ppo, BOX)
    before = weights_of(ppo)
    metrics = ppo.update(replace(rollout, valid=np.zeros_like(rollout.valid)))
    assert metrics["minibatches"] == 0
    assert_same(weights_of(ppo), before)


def test_a_truncated_row_is_worth_what_its_bootstrap_says():
    advantages = []
    for bootstrap in (0.0, 5.0):
        ppo = learner(gae_lambda=0.0)
        rollout = made_rollout(ppo, BOX, end=0.0)
        rollout.truncated[3, 1] = True
        rollout.bootstrap[3, 1] = bootstrap
        advantages.append(ppo._rows(rollout).advantage.reshape(16, 4))
    apart = advantages[1] - advantages[0]
    assert apart[3, 1] == pytest.approx(0.99 * 5.0)
    apart[3, 1] = 0.0
    assert not apart.any()


# Schedules and stops ------------------------------------------------------------------


def test_schedules_follow_the_steps_that_are_done():
    ppo = learner(lr_schedule="linear", clip_schedule="cosine", total=256)
    told = [ppo.update(made_rollout(ppo, BOX)) for _ in range(4)]
    assert [one["lr"] for one in told] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert told[0]["clip_range"] == pytest.approx(0.2)
    assert told[2]["clip_range"] == pytest.approx(0.1)
    assert told[3]["clip_range"] == pytest.approx(0.2 * (1 - math.sqrt(0.5)) / 2)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("total", [256, 200])
def test_the_last_update_learns_something(schedule, total):
    """Also where it goes past the length of the run."""
    ppo = learner(lr_schedule=schedule, clip_schedule=schedule, total=total)
    for _ in range(3):
        ppo.update(made_rollout(ppo, BOX))
    before = weights_of(ppo)
    last = ppo.update(made_rollout(ppo, BOX))
    assert ppo.steps >= total
    assert last["lr"] > 0 and last["clip_range"] > 0
    assert any(bool((before[name] != w).any()) for name, w in weights_of(ppo).items())


def test_a_schedule_needs_the_length_of_the_run():
    with pytest.raises(OptionError, match="total_steps"):
        learner(lr_schedule="linear")


def test_an_update_ends_when_the_policy_has_moved_far_enough():
    ppo = learner(lr=0.1, n_epochs=20, target_kl=0.01)
    metrics = ppo.update(made_rollout(ppo, BOX))
    assert metrics["stopped_early"] == 1
    assert 0 < metrics["minibatches"] < 40
    free = learner(lr=0.1, n_epochs=20)
    assert free.update(made_rollout(free, BOX))["minibatches"] == 40


def test_entropy_keeps_a_policy_undecided():
    kept = []
    for weight in (0.0, 1.0):
        ppo = learner(ent_coef=weight, n_epochs=30)
        rollout = made_rollout(ppo, BOX)
        ppo.update(rollout)
        kept.append(ppo.update(made_rollout(ppo, BOX))["entropy"])
    assert kept[0] < kept[1]


# What is not finite -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [("obs", "an observation is nan"), ("reward", "an advantage.* is nan")],
)
def test_a_quantity_that_is_not_finite_is_named_and_the_weights_stay(name, said):
    ppo = learner(batch_size=1000)
    rollout = made_rollout(ppo, BOX)
    getattr(rollout, name)[3, 1] = np.nan
    before = ppo.state_dict()
    with pytest.raises(TrainingDiverged, match=said):
        ppo.update(rollout)
    assert_same(weights_of(ppo), before["net"])
    ppo.update(made_rollout(ppo, BOX))
    assert all(value.isfinite().all() for value in weights_of(ppo).values())


def test_the_minibatches_before_a_bad_one_count():
    ppo = learner(batch_size=8, n_epochs=1)
    rollout = made_rollout(ppo, BOX)
    *_, last = orders_of(ppo, rollout)
    good = [pairs for pairs in orders_of(ppo, rollout) if pairs is not last][:-1]
    rollout.obs[last[0]] = np.inf
    expected = slow_update(ppo, rollout, good)
    with pytest.raises(TrainingDiverged, match="an observation is"):
        ppo.update(rollout)
    assert_close(weights_of(ppo), expected)


# Going on -----------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_a_saved_learner_goes_on_bit_for_bit(memory):
    options = {"lr_schedule": "cosine", "total": 512, "memory": memory}
    ppo = learner(ACTIONS["box"], **options)
    ppo.update(made_rollout(ppo, BOX))
    file = io.BytesIO()
    torch.save(ppo.state_dict(), file)
    file.seek(0)
    other = learner(ACTIONS["box"], seed=7, **options)
    other.load_state_dict(torch.load(file, weights_only=True))
    for seed in range(3):
        rollouts = [made_rollout(one, BOX, seed=seed) for one in (ppo, other)]
        metrics = [
            one.update(two) for one, two in zip((ppo, other), rollouts, strict=True)
        ]
        assert metrics[0] == metrics[1]
    assert_same(weights_of(ppo), weights_of(other))


def test_a_saved_state_does_not_change_with_what_is_learnt_later():
    ppo = learner()
    ppo.update(made_rollout(ppo, BOX))
    state = ppo.state_dict()
    kept = {name: value.clone() for name, value in state["net"].items()}
    moments = state["optimiser"]["exp_avg"].clone()
    ppo.update(made_rollout(ppo, BOX))
    assert_same(state["net"], kept)
    assert torch.equal(state["optimiser"]["exp_avg"], moments)


def test_the_same_seed_learns_the_same_and_another_one_something_else():
    results = []
    for seed in (0, 0, 1):
        ppo = learner(seed=seed)
        ppo.update(made_rollout(ppo, BOX))
        results.append(weights_of(ppo))
    assert_same(results[0], results[1])
    assert_differ(results[0], results[2])


def test_global_generators_are_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    for memory in ("none", "gru"):
        ppo = learner(memory=memory)
        ppo.update(made_rollout(ppo, BOX))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


def test_a_learner_starts_from_the_nets_of_another():
    teacher, pupil = learner(ACTIONS["box"]), learner(ACTIONS["box"], seed=1)
    teacher.update(made_rollout(teacher, BOX))
    pupil.load_policy(teacher.state_dict(), log_std=-2.0)
    assert pupil.steps == 0
    assert pupil.net.head.log_std.tolist() == [-2.0, -2.0]
    ours, others = weights_of(pupil), weights_of(teacher)
    del ours["head.log_std"], others["head.log_std"]
    assert_same(ours, others)
    pupil.update(made_rollout(pupil, BOX))
    assert_differ(weights_of(pupil), others)


def test_nets_of_another_shape_are_refused():
    small = learner(hidden=(8,))
    with pytest.raises(CheckpointError, match="not those of this learner"):
        learner().load_state_dict(small.state_dict())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_a_gpu_learns_what_a_cpu_learns(kind, memory):
    config = PPOConfig(**{**SHORT, "lr": 1e-3}, memory=memory, ent_coef=0.01)
    ours, theirs = (
        PPO(BOX, ACTIONS[kind], config, seed=0, device=device)
        for device in ("cpu", "cuda")
    )
    rollout = made_rollout(ours, BOX)
    # As exact as the CPU: by default, cuDNN's memories have 10 bits of mantissa.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        metrics = [one.update(rollout) for one in (ours, theirs)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)
    on_cpu = {name: value.cpu() for name, value in weights_of(theirs).items()}
    for name, value in weights_of(ours).items():
        torch.testing.assert_close(value, on_cpu[name], rtol=1e-3, atol=2e-5)
    again = PPO(BOX, ACTIONS[kind], config, device="cuda")
    again.load_state_dict(theirs.state_dict())
    assert_same(weights_of(again), weights_of(theirs))
    again.update(made_rollout(again, BOX))


# What it refuses ----------------------------------------------------------------------


def test_a_rollout_of_another_policy_is_refused():
    ppo = learner()
    rollout = replace(made_rollout(ppo, BOX), extras={})
    with pytest.raises(OptionError, match="collect it with this learner's"):
        ppo.update(rollout)


@pytest.mark.parametrize(
    ("space", "action", "said"),
    [
        (BOX, spaces.Box(0, 9, (2,), np.int64), "heads for"),
        (BOX, spaces.Dict({"a": spaces.Discrete(2)}), "heads for"),
        (
            spaces.Dict({"a": spaces.Sequence(BOX)}),
            spaces.Discrete(2),
            r"observation\['a'\]",
        ),
    ],
)
def test_spaces_without_a_net_are_refused(space, action, said):
    with pytest.raises(SpaceMismatch, match=said):
        PPO(space, action)


def test_every_setting_is_explained_and_others_are_refused():
    assert all(field.description for field in PPOConfig.model_fields.values())
    with pytest.raises(ValueError, match="Extra inputs"):
        PPOConfig(learning_rate=1.0)


# Policies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "net",
    [
        {},
        {"hidden": (160, 160)},
        {"hidden": (400, 400)},
        {"memory": "gru"},
        {"memory": "lstm"},
    ],
    ids=str,
)
@pytest.mark.parametrize("activation", ["tanh", "elu"])
def test_rows_of_an_exact_policy_do_not_depend_on_their_batch(net, activation):
    ppo = learner(ACTIONS["box"], activation=activation, **net)
    policy = ppo.policy.deterministic()
    obs = np.random.default_rng(0).normal(size=(37, 3)).astype(np.float32)
    whole = decided(policy, obs)
    for rows in ([5], [36, 2], list(range(3, 30)), list(range(36, -1, -1))):
        part = decided(policy, obs[rows])
        for name in whole:
            assert np.array_equal(part[name], whole[name][rows]), name


def decided(policy, obs) -> dict:
    step = type("Step", (), {"obs": obs})
    decision = policy.act(step, policy.initial_carry(len(obs)), Draws(len(obs)))
    return {"action": decision.action, **decision.extras}


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_are_drawn_as_often_as_they_are_likely(kind):
    ppo = learner(ACTIONS[kind])
    with torch.no_grad():
        ppo.net.head.layer.bias.copy_(
            torch.linspace(-0.4, 0.4, len(ppo.net.head.layer.bias))
        )
        ppo.net.head.layer.weight.zero_()
    count = 20_000
    found = decided(ppo.policy, np.zeros((count, 3), np.float32))
    assert all(ACTIONS[kind].contains(action) for action in found["action"][:100])
    chosen = found.get("chosen", found["action"]).reshape(count, -1)
    if kind == "box":
        assert chosen.mean(0) == pytest.approx([-0.4, 0.4], abs=0.03)
        assert chosen.std(0) == pytest.approx([1.0, 1.0], abs=0.03)
        return
    kinds, counts = np.unique(chosen, axis=0, return_counts=True)
    likely = {
        tuple(row): np.exp(found["log_prob"][(chosen == row).all(1)][0])
        for row in kinds
    }
    assert sum(likely.values()) == pytest.approx(1.0, abs=1e-5)
    assert counts / count == pytest.approx(list(likely.values()), abs=0.02)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_a_mirror_shows_what_its_net_computes_also_after_learning(kind, activation):
    ppo = learner(ACTIONS[kind], activation=activation)
    mirror = numpy_forward_of(ppo.net)
    obs = np.random.default_rng(0).normal(size=(8, 3))
    for _ in range(2):
        ppo.update(made_rollout(ppo, BOX))
        outputs, values = mirror.judged(obs)
        with torch.no_grad():
            features = ppo.net.unroll([torch.from_numpy(obs)], None, None)
            theirs = ppo.net.outputs(features), ppo.net.values(features)
        np.testing.assert_allclose(outputs, theirs[0].numpy(), atol=2e-6)
        np.testing.assert_allclose(values, theirs[1].numpy(), atol=2e-6)


def test_rows_too_many_for_the_mirror_are_judged_by_torch():
    ppo = learner(ACTIONS["box"])
    obs = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    policy = ppo.policy
    assert len(obs) > policy._numpy_forward.most_rows
    few = np.concatenate([policy.value(obs[i : i + 8], None) for i in range(0, 200, 8)])
    np.testing.assert_allclose(policy.value(obs, None), few, atol=1e-6)


def test_a_decision_takes_no_gradient_along():
    ppo = learner(memory="lstm")
    policy = ppo.policy
    step = type("Step", (), {"obs": np.zeros((2, 3), np.float32)})
    decision = policy.act(step, policy.initial_carry(2), Draws(2))
    assert all(isinstance(part, np.ndarray) for part in decision.carry)
    assert policy.value(step.obs, decision.carry).shape == (2,)


# Learning -----------------------------------------------------------------------------


def trained(factory, updates: int, **options) -> float:
    """Mean return of the last episodes, after so many updates."""
    chosen = {"n_steps": 32, "batch_size": 64, "n_epochs": 4, "lr": 3e-3, "gamma": 0.9}
    with Pool(factory, 8, backend="serial", seed=0) as pool:
        spec = pool.spec
        config = PPOConfig(**{**chosen, **options})
        ppo = PPO(spec.observation_space, spec.action_space, config)
        collector = Collector(pool, ppo.policy)
        for _ in range(updates):
            rollout = collector.collect(config.n_steps)
            ppo.update(rollout)
    return float(np.mean([one.return_ for one in rollout.episodes]))


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_a_policy_is_judged_as_it_was_when_it_was_collected(memory, autoreset):
    with Pool(Recall, 3, backend="serial", seed=0, autoreset=autoreset) as pool:
        ppo = learner(pool.spec.action_space, Recall.observation_space, memory=memory)
        collector = Collector(pool, ppo.policy)
        for _ in range(3):
            rollout = collector.collect(10)
            rows = ppo._rows(rollout)
            for batch in ppo._minibatches(rows, rollout):
                features = ppo.net.unroll(
                    batch.rows.leaves, batch.batch_sizes, batch.carry
                )
                value = ppo.net.values(features).detach()
                torch.testing.assert_close(value, batch.rows.value)
            ppo.update(rollout)


@pytest.mark.parametrize("answered", ACTIONS)
def test_every_kind_of_action_is_learnt(answered):
    assert trained(lambda: Match("box", answered), 25) > 0.85 * 8


@pytest.mark.parametrize(
    "seen", ["double", "discrete", "multidiscrete", "multibinary", "dict"]
)
def test_every_kind_of_observation_is_learnt_from(seen):
    assert trained(lambda: Match(seen, "discrete"), 12) > 0.85 * 8


def test_images_are_learnt_from():
    assert trained(lambda: Match("image", "discrete"), 5, lr=1e-3) > 0.85 * 8


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_memory_recalls_what_nothing_else_can(memory):
    options = {"hidden": (16,), "lr": 1e-2, "gamma": 0.95, "batch_size": 128}
    assert trained(Recall, 25, memory=memory, memory_size=16, **options) > 0.9
    assert trained(Recall, 25, **options) < 0.7
