"""What boxes are paid in a physics step: ten modes, named as in boxjump.

    highest            what the best height of the episode has risen by
    height_sq          each box, the square of its own height
    dense_height       all boxes, the height of the highest now
    *_stable           only boxes that may jump count, that is: not while they jump
    *_sq, *_cube       of that height, its square or cube

Every reward is divided by the number of boxes and by the physics steps of an action.
So a whole episode of `highest` adds up, over all boxes and steps, to the best height
divided by 6 (`physics_steps_per_action`), and not to the best height: each rise comes
in one physics step alone. The rises of the last step before a truncation are not paid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# No `_sq` or `_cube` pays a box more.
MOST = 1000.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The boxes in one physics step.

    Attributes:
        heights: Of each box, in boxes above the floor.
        steady: Whether each may jump.
        risen: How much the best height of the episode has risen.
        max_timestep: Length of an episode.
    """

    heights: Sequence[float]
    steady: Sequence[bool]
    risen: float
    max_timestep: int

    @property
    def top(self) -> float:
        """The height of the highest box."""
        return max(-1.0, *self.heights)

    @property
    def steady_top(self) -> float:
        """The height of the highest box that may jump; 0 without one."""
        pairs = zip(self.heights, self.steady, strict=True)
        return max(0.0, *(height if steady else 0.0 for height, steady in pairs))

    def for_all(self, reward: float) -> list[float]:
        """The same for each box."""
        return [reward] * len(self.heights)


Mode = Callable[[Moment], list[float]]


def _own_squares(moment: Moment) -> list[float]:
    return [height**2 / moment.max_timestep for height in moment.heights]


def _steady_squares(moment: Moment) -> list[float]:
    pairs = zip(_own_squares(moment), moment.steady, strict=True)
    return [50 * square if steady else 0.0 for square, steady in pairs]


def _of_top(factor: float, power: int, steady: bool) -> Mode:
    def paid(moment: Moment) -> list[float]:
        top = moment.steady_top if steady else moment.top
        count = len(moment.heights)
        share = top**power / count / moment.max_timestep * factor
        # Capped as the reward of one box.
        return moment.for_all((share if power == 1 else min(share, MOST)) * count)

    return paid


# Name -> the rewards of all boxes together, before they are divided.
MODES: dict[str, Mode] = {
    "highest": lambda moment: moment.for_all(moment.risen),
    "highest_stable": lambda moment: moment.for_all(moment.risen),
    "height_sq": _own_squares,
    "stable_sum": _steady_squares,
    "dense_height": _of_top(50.0, 1, False),
    "dense_height_stable": _of_top(50.0, 1, True),
    "dense_height_sq": _of_top(10.0, 2, False),
    "dense_height_stable_sq": _of_top(10.0, 2, True),
    "dense_height_cube": _of_top(10.0, 3, False),
    "dense_height_stable_cube": _of_top(10.0, 3, True),
}
