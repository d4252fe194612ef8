"""Where a run's policy acts: the choice, its reason, and numbers that do not change."""

from pathlib import Path

import pytest
import torch
from small_runs import SMALL

from corral.errors import OptionError
from corral.train.run.start import begin

IN_PROCESSES = {"backend": "process", "workers": 2}


def trained(name, **settings):
    """Weights after two updates, where the policy acted, and the layout."""
    training = begin("cartpole", {**SMALL, **settings}, out=Path(name))
    with training:
        for _ in range(2):
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
        parts = training.parts
        weights = parts.learner.state_dict()["net"]
        kept = {key: value.clone() for key, value in weights.items()}
        return kept, parts.act_in, str(parts.pool.layout)


def equal(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(one[key], other[key]) for key in one
    )


def test_numbers_do_not_depend_on_the_place_nor_on_the_workers(capsys):
    weights, place, layout = trained("workers", act_in="workers", **IN_PROCESSES)
    assert place == "workers" and "policy" not in layout
    assert "in 2 processes; the policy acts in the workers" in capsys.readouterr().out
    measured, place, layout = trained("auto", act_in="auto", **IN_PROCESSES)
    assert place in ("caller", "workers")
    assert f"; the policy acts in the {place} (measured: " in capsys.readouterr().out
    assert f"the policy acts in the {place} (measured: " in layout
    assert "steps/s in the caller, " in layout
    alone, place, layout = trained("serial", act_in="auto", backend="serial")
    assert place == "caller" and "acts in the caller, where the envs are" in layout
    assert equal(weights, measured) and equal(weights, alone)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"act_in": "workers", "mode": "two_groups"}, "set mode: sync, or act_in: c"),
        ({"act_in": "workers", "learner": "sb3_ppo"}, "sb3_ppo collects by itself"),
        ({"act_in": "worker"}, "act_in"),
        ({"act_in": "auto", "devices": ["cuda:77"]}, "devices has cuda:77, but"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, words):
    if settings.get("learner") == "sb3_ppo":
        pytest.importorskip("stable_baselines3")
    with pytest.raises(OptionError, match=words):
        begin("cartpole", {**SMALL, **settings}, out=Path("refused"))
