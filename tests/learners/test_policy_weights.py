"""Weights of policies: a copy that loads them acts like the original."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import corral
from corral.engine.worker.serialization import dumps
from corral.errors import OptionError
from corral.learners.off_policy.learner import SACLearner, TD3Learner
from corral.learners.policy import NetPolicy
from corral.learners.ppo import PPO, PPOConfig
from corral.learners.protocol import LearnerSetup
from corral.rollouts.policy_rng import RowGenerators, SlotGenerators


def ppo(pool: corral.Pool, **settings: Any) -> NetPolicy:
    spec = pool.spec
    config = PPOConfig(hidden=(8,), **settings)
    return PPO(spec.observation_space, spec.action_space, config).policy


def off_policy(pool: corral.Pool, learner: Any, **settings: Any) -> Any:
    given = {"hidden": (8, 8), "memory_size": 6, "random_steps": 0, **settings}
    return learner(LearnerSetup(pool.spec, learner.Config(**given))).policy


POLICIES: dict[str, Callable[[corral.Pool], Any]] = {
    "mlp": ppo,
    "memory": lambda pool: ppo(pool, memory="gru", memory_size=6),
    "sac": lambda pool: off_policy(pool, SACLearner),
    "recurrent td3": lambda pool: off_policy(pool, TD3Learner, architecture="memory"),
}


def shaken(policy: Any) -> dict[str, Any]:
    """Weights that differ from the policy's own."""
    rng = np.random.default_rng(0)
    found = {}
    for name, array in policy.weights().items():
        noise = rng.normal(size=array.shape)
        found[name] = np.asarray(array + noise, array.dtype) if array.ndim else array
    return found


def decided(policy: Any, step: corral.Step) -> tuple[Any, ...]:
    step.previous_action = np.zeros((len(step), 1), np.float32)
    carry = policy.initial_carry(len(step))
    decision = policy.act(step, carry, generators(len(step)))
    extras = [decision.extras[name].tolist() for name in sorted(decision.extras)]
    return decision.action.tolist(), extras


@pytest.mark.parametrize("kind", POLICIES)
def test_a_copy_with_the_weights_of_another_policy_acts_like_it(kind: str) -> None:
    with corral.Pool("Pendulum-v1", 4, backend="serial", seed=0) as pool:
        policy, step = POLICIES[kind](pool), pool.reset()
        other = pickle.loads(dumps(policy.on("cpu")))
        assert decided(other, step) == decided(policy, step)
        policy.load_weights(shaken(policy))
        assert decided(other, step) != decided(policy, step)
        other.load_weights(policy.weights())
        assert decided(other, step) == decided(policy, step)
        assert hashed(other) == hashed(policy)


def hashed(policy: Any) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(policy.weights().items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_on_a_device_is_a_copy_of_its_own(kind: str) -> None:
    with corral.Pool("Pendulum-v1", 4, backend="serial", seed=0) as pool:
        policy = POLICIES[kind](pool)
        before = hashed(policy)
        other = policy.on("cpu")
        other.load_weights(shaken(other))
        assert hashed(policy) == before != hashed(other)


def test_a_warm_up_is_loaded_with_the_weights() -> None:
    with corral.Pool("Pendulum-v1", 4, backend="serial", seed=0) as pool:
        policy = off_policy(pool, SACLearner)
        other = policy.on("cpu")
        policy.random = not policy.random
        other.load_weights(policy.weights())
        assert other.random == policy.random


def test_weights_are_those_of_the_module() -> None:
    with corral.Pool("CartPole-v1", 2, backend="serial", seed=0) as pool:
        policy = ppo(pool)
        named = policy.weights()
        with torch.no_grad():
            policy._net.value.bias += 1.0
        assert named["value.bias"].tolist() == policy.weights()["value.bias"].tolist()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"])
def test_in_turns_a_policy_decides_the_same_and_tells_values_later(
    name: str, exact: bool
) -> None:
    for envs, hidden in ((1, (64, 64)), (3, (50, 7)), (4, (64, 64)), (8, (33,))):
        with corral.Pool(name, envs, backend="serial", seed=0) as pool:
            spec, config = pool.spec, PPOConfig(hidden=hidden)
            policy = PPO(spec.observation_space, spec.action_space, config).policy
            policy.load_weights(shaken(policy))
            policy = policy.exact() if exact else policy
            plain, turns = (generators(envs) for _ in range(2))
            in_turns, step, seen, values = policy.in_turns(envs), pool.reset(), [], []
            for _ in range(5):
                expected = policy.act(step, None, plain)
                found = in_turns.act(step, None, turns)
                values.append(expected.extras.pop("value"))
                assert equal(found.extras, expected.extras)
                assert equal({"": found.action}, {"": expected.action})
                seen.append(step.obs)
                step = pool.step(found.action)
            late = in_turns.late_extras(np.stack(seen))
            assert equal(late, {"value": np.stack(values)})


def equal(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """To the last bit."""
    pairs = ((some[name], others[name]) for name in some.keys() | others.keys())
    return all(one.tobytes() == two.tobytes() for one, two in pairs)


def generators(rows: int) -> RowGenerators:
    slots = SlotGenerators(rows)
    slots.start(range(rows), range(rows))
    return RowGenerators(slots, np.arange(rows))


def test_a_policy_that_decides_otherwise_does_not_decide_in_turns() -> None:
    class Other(NetPolicy):
        def act(self, step: corral.Step, carry: Any, rng: Any) -> corral.Decision:
            return super().act(step, carry, rng)

    with corral.Pool("CartPole-v1", 2, backend="serial", seed=0) as pool:
        policy = ppo(pool)
        assert policy.in_turns(2) is not None
        assert policy.deterministic().in_turns(2) is None
        spaces, net = pool.spec.observation_space, policy._net
        assert Other(net, spaces, policy._device).in_turns(2) is None
        assert ppo(pool, memory="gru", memory_size=6).in_turns(2) is None


@pytest.mark.parametrize("kind", POLICIES)
def test_weights_of_another_net_are_refused_and_change_nothing(kind: str) -> None:
    with corral.Pool("Pendulum-v1", 2, backend="serial", seed=0) as pool:
        policy = POLICIES[kind](pool)
        before, given = hashed(policy), shaken(policy)
        last = max(given, key=lambda name: given[name].size)
        shape = re.escape(str(given[last].shape))
        # torch would repeat one number.
        with pytest.raises(OptionError, match=rf"{last}.* shape \(1,\); .*{shape}"):
            policy.load_weights({**given, last: np.zeros(1, np.float32)})
        with pytest.raises(OptionError, match="the net has no weight 'more'"):
            policy.load_weights({**given, "more": np.zeros(1, np.float32)})
        del given[last]
        with pytest.raises(OptionError, match=rf"{last}.* is missing; .*{shape}"):
            policy.load_weights(given)
        assert hashed(policy) == before


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_rows_of_an_exact_policy_do_not_depend_on_their_batch(memory: str) -> None:
    with corral.Pool("Pendulum-v1", 21, backend="serial", seed=0) as pool:
        made = ppo(pool, memory=memory)
        space, device = pool.spec.observation_space, torch.device("cpu")
        policy = NetPolicy(made._net, space, device, exact=True)
        obs, carry = pool.reset().obs, policy.initial_carry(21)
        whole = policy.value(obs, carry)
        for rows in (slice(0, 1), slice(3, 8), slice(4, 21)):
            count = rows.stop - rows.start
            part = policy.value(obs[rows], policy.initial_carry(count))
            assert part.tolist() == whole[rows].tolist()
