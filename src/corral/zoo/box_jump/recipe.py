"""Boxes build a tower together, with TAAC.

    corral train box_jump --num-processes 8
    corral train box_jump --set boxes=[4,5,6,7]           teams of several sizes
    corral train box_jump --render                        watch env 0 while it learns

How many boxes play is drawn for every episode; evaluations take all numbers in turn.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, PositiveInt

from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.rollouts.evaluation import Evaluation
from corral.train.recipes.config import RunConfig
from corral.train.run import parts as plain
from corral.train.sinks.window import check_display
from corral.zoo.box_jump.drawn_boxes import DrawnBoxes


class Config(RunConfig):
    """The settings of the recipe."""

    changeable: ClassVar[tuple[str, ...]] = (*RunConfig.changeable, "render")

    boxes: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = 4
    """number of boxes that play, or a list from which every episode draws one"""
    render: bool = False
    """a window that shows env 0; all envs then run in this process"""

    @property
    def choices(self) -> tuple[int, ...]:
        """The numbers of boxes that may play."""
        return (self.boxes,) if isinstance(self.boxes, int) else self.boxes


@dataclass(slots=True, kw_only=True)
class BoxJumpParts(plain.Parts):
    """A run of the recipe."""

    config: Config

    def open_pool(self, backend: str, workers: int | None) -> Pool:
        """For evaluations, which are not shown."""
        return open_pool(self.config, backend, workers)

    def tasks(self, purpose: str, count: int) -> list[Any]:
        """All numbers of boxes in turn."""
        choices = self.config.choices
        return [choices[place % len(choices)] for place in range(count)]

    def measured(self, result: Evaluation) -> dict[str, float]:
        """The best heights, which all boxes of an episode have in common."""
        heights = [next(iter(info.values()))["best_height"] for info in result.infos]
        if not heights:
            return {}
        return {"height": float(np.mean(heights)), "height_max": max(heights)}

    def remark(self) -> str:
        """Why the envs are in this process, if they are for the window's sake."""
        if not self.config.render:
            return ""
        return "render: true shows env 0, so all envs run in this process"


def open_pool(
    config: Config, backend: str, workers: int | None, shown: bool = False
) -> Pool:
    """Open a pool of teams; `shown` opens a window for the first."""
    options = plain.pool_options(
        config,
        backend="serial" if shown else backend,
        workers=None if shown else workers,
        sample_task=DrawnBoxes(config.choices),
    )
    make = plain.env_factory(config)
    if not shown:
        return Pool.with_options(make, config.num_envs, options)
    first = plain.env_factory(config, render_mode="human")
    return Pool.with_options([first, *[make] * (config.num_envs - 1)], None, options)


def build(config: Config) -> BoxJumpParts:
    """Open the pool and make the learner."""
    if "num_boxes" in config.env_kwargs:
        raise OptionError(
            f"env_kwargs.num_boxes is {config.env_kwargs['num_boxes']!r}; set boxes "
            "instead, which also takes a list: boxes: [4, 5, 6]"
        )
    if config.render:
        check_display("render: true")
    kwargs = {**config.env_kwargs, "num_boxes": max(config.choices)}
    config = config.model_copy(update={"env_kwargs": kwargs})
    opener = functools.partial(open_pool, shown=config.render)
    built = plain.build(config, opener)
    common = {one.name: getattr(built, one.name) for one in fields(built)}
    return BoxJumpParts(**{**common, "config": config})
