"""The page shows what a policy does in the first, second, ... episode of a trial."""

import pytest

from corral.train.reports.adaptation import add_adaptation
from corral.train.reports.page import Page

FOUND = {
    "returns": [10.0, 30.0, 40.0],
    "deviations": [2.0, 3.0, 1.0],
    "still": [0.5, 0.5, 0.5],
    "paths": [
        {"episodes": [[[0, 0], [1, 1]]] * 3, "goal": [1.0, 0.0]},
        {"episodes": [[[0, 0], [-1, 1]]] * 3, "goal": None},
    ],
    "goal_radius": 0.2,
}
OVER_TIME = [[(100, 1.0), (200, 9.0)], [(100, 1.0), (200, 28.0)], [(200, 35.0)]]


def page(found, over_time):
    built = Page("a run")
    add_adaptation(built, found, over_time)
    return built.render()


def test_returns_by_episode_and_paths_are_shown():
    shown = page(FOUND, OVER_TIME)
    assert "Best policy: mean return in the first" in shown
    assert "Dotted: the action 0" in shown and "standing still" in shown
    assert "Paths of the best policy" in shown
    assert all(f"episode {place}<" in shown for place in (1, 2, 3))
    assert shown.count("<svg") == 6  # three pictures, for wide and narrow screens


def test_before_the_end_the_latest_evaluation_is_shown():
    shown = page({}, OVER_TIME)
    assert "Latest evaluation: mean return" in shown
    assert "standing still" not in shown and "Paths" not in shown


@pytest.mark.parametrize("over_time", [[], [[(100, 1.0)]]], ids=["none", "one episode"])
def test_without_several_episodes_there_is_nothing_to_show(over_time):
    assert "Adaptation" not in page({}, over_time)
