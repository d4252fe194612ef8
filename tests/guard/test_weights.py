"""Recipes learn what they learnt when the guard was recorded, with the same settings.

To the last bit with the same processor and packages, else closely.
"""

from __future__ import annotations

import pytest

from tests.guard import recorded, training

torch = pytest.importorskip("torch", reason="training needs torch")

WEIGHTS = recorded.read(recorded.WEIGHTS)
SETTINGS = recorded.read(recorded.SETTINGS)
CHOSEN = [
    pytest.param(name, marks=[pytest.mark.slow] if one.slow else [])
    for name, one in training.TRAININGS.items()
]


@pytest.fixture(autouse=True)
def threads():
    """Leave torch as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CHOSEN)
def test_three_updates_give_the_recorded_weights(name, tmp_path):
    one = training.TRAININGS[name]
    if one.missing:
        pytest.skip(f"{', '.join(one.missing)} is not installed")
    training.train(one, tmp_path / "run")
    found = training.weights(tmp_path / "run" / "checkpoints" / "last.pt")
    kept = WEIGHTS[name]
    if "official" in name:
        # A drive's noise is seeded by the path of its route, as officially: where the
        # data lies decides what an evaluation costs, and nothing that is learned.
        found, kept = without_evaluations(found), without_evaluations(kept)
    training.compare(found, kept, same=training.same_machine(WEIGHTS))
    assert training.settings(tmp_path / "run") == SETTINGS[name]


def without_evaluations(state):
    """What does not depend on how the drives of an evaluation went."""
    return {
        key: value
        for key, value in state.items()
        if key != "best" and not key.startswith("results/eval/")
    }


def test_every_recipe_is_recorded(tmp_path):
    status, said = training.corral_command("list", "--runs", str(tmp_path))
    listed = [line.split()[0] for line in said.splitlines() if line[:2] == "  "]
    assert status == 0 and listed
    assert set(listed) == {one.source for one in training.TRAININGS.values()}
    assert set(training.TRAININGS) <= WEIGHTS.keys()
