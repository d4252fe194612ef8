"""Losses, targets and gradients of SAC and TD3 against slow references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from made_agents import ARCHITECTURES, KINDS, made_agent, made_sample
from slow_agents import SlowSAC, SlowTD3

from corral.learners.off_policy.batch import batch_of
from corral.learners.off_policy.sac import squashed_sample

CPU = torch.device("cpu")
CASES = [(kind, *one) for kind in KINDS for one in ARCHITECTURES]


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    """float64 everywhere, so that a wrong term cannot hide in rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def lengths_for(architecture: str) -> list[int] | None:
    return None if architecture == "markov" else [5, 2, 1, 4]


def gradients(net):
    return {name: weight.grad.clone() for name, weight in net.named_parameters()}


def assert_close(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("kind", "architecture", "memory"), CASES)
def test_updates_are_those_of_the_slow_reference(kind, architecture, memory):
    agent = made_agent(kind, architecture, memory, gamma=0.9, tau=0.1, lr=1e-3)
    slow = (SlowTD3 if kind == "td3" else SlowSAC)(agent)
    for turn in range(2):
        sampled = made_sample(kind, lengths_for(architecture), seed=turn)
        metrics = agent.update(batch_of(sampled, CPU))
        slow.update(sampled)
        for name in ("critic_loss", "actor_loss"):
            torch.testing.assert_close(metrics[name], getattr(slow, name))
        for name in ("actor", "critic"):
            assert_close(
                gradients(agent.nets()[name]), gradients(vars(slow.nets)[name])
            )
        for name, net in agent.nets().items():
            assert_close(net.state_dict(), vars(slow.nets)[name].state_dict())
        if kind != "td3":
            torch.testing.assert_close(metrics["entropy"], slow.entropy)
            torch.testing.assert_close(agent.log_alpha, slow.log_alpha)
            slow.alpha = slow.log_alpha.detach().exp()


@pytest.mark.parametrize(("architecture", "memory"), ARCHITECTURES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_neither_losses_nor_weights(kind, architecture, memory):
    found = []
    for garbage in (0.0, 1e3):
        agent = made_agent(kind, architecture, memory)
        sampled = made_sample(kind, [5, 2, 1, 4])
        padding = sampled["mask"][..., 0] == 0
        for name, values in sampled.items():
            if name != "mask":
                values[padding] = garbage
        metrics = agent.update(batch_of(sampled, CPU))
        weights = {
            f"{part}.{name}": value.clone()
            for part, net in agent.nets().items()
            for name, value in net.state_dict().items()
        }
        found.append(metrics | weights)
    assert_close(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_termination_cuts_off_what_comes_after(kind):
    losses = {}
    for terminated in (0.0, 1.0):
        for later in (1.0, -7.0):
            agent = made_agent(kind, "markov", "gru")
            sampled = made_sample(kind, None)
            sampled["terminated"][:] = terminated
            sampled["next_obs"][:] = later
            metrics = agent.update(batch_of(sampled, CPU))
            losses[terminated, later] = float(metrics["critic_loss"])
    assert losses[1.0, 1.0] == losses[1.0, -7.0]
    assert losses[0.0, 1.0] != losses[0.0, -7.0]


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_sequence_of_one_is_a_transition_without_a_past(memory):
    """A row of a longer batch has the loss that it has alone."""
    sampled = made_sample("sac", [1, 1])
    alone = [{name: one[:, [at]] for name, one in sampled.items()} for at in (0, 1)]
    losses = []
    for each in (sampled, *alone):
        agent = made_agent("td3", "memory", memory, target_noise=0.0)
        losses.append(float(agent.update(batch_of(each, CPU))["critic_loss"]))
    assert losses[0] == pytest.approx((losses[1] + losses[2]) / 2, rel=1e-9)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_weights_of_a_memory_lie_where_cudnn_looks_for_them(memory):
    """One after the other from the start of their storage; yet parts of the vector."""
    agent = made_agent("td3", "memory", memory)
    agent.update(batch_of(made_sample("td3", [5, 2]), CPU))
    for net in agent.nets().values():
        weights = list(net.history.memory.parameters())
        start = weights[0].untyped_storage().data_ptr()
        for weight in weights:
            assert weight.data_ptr() == start
            start += weight.nbytes
    everything = torch.nn.utils.parameters_to_vector(agent.actor.parameters())
    assert torch.equal(agent.optimisers()["actor"].vector, everything)


def test_the_temperature_rises_while_the_entropy_is_too_low():
    for wanted, rises in ((100.0, True), (-100.0, False)):
        agent = made_agent("sac", "markov", "gru", target_entropy=wanted)
        before = agent.log_alpha.item()
        agent.update(batch_of(made_sample("sac", None), CPU))
        assert (agent.log_alpha.item() > before) == rises
    fixed = made_agent("sac", "markov", "gru", alpha=0.2)
    fixed.update(batch_of(made_sample("sac", None), CPU))
    assert fixed.log_alpha.exp().item() == pytest.approx(0.2)


def test_td3_moves_its_actor_at_every_policy_delay():
    agent = made_agent("td3", "markov", "gru", policy_delay=3)
    moved = []
    for turn in range(6):
        before = torch.nn.utils.parameters_to_vector(agent.actor.parameters()).clone()
        agent.update(batch_of(made_sample("td3", None, seed=turn), CPU))
        after = torch.nn.utils.parameters_to_vector(agent.actor.parameters())
        moved.append(not torch.equal(before, after))
    assert moved == [False, False, True, False, False, True]


def test_log_probabilities_do_not_cancel_near_the_bounds():
    outputs = torch.tensor([[30.0, -2.0], [-30.0, -2.0], [0.3, 0.5]])
    action, log_prob = squashed_sample(outputs, torch.Generator().manual_seed(0))
    assert torch.isfinite(log_prob).all() and (action.abs() <= 1).all()
    mean, std = 0.3, np.exp(0.5)
    before = torch.atanh(action[2])
    normal = torch.distributions.Normal(mean, std).log_prob(before)
    expected = normal - torch.log(1 - action[2] ** 2)
    torch.testing.assert_close(log_prob[2], expected)
