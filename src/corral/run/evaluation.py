"""Exactly N episodes with what was learnt so far, beside the training.

The envs are others than those that collect, the actions the most likely ones, and the
episodes the same in every evaluation of a run, so that two of them can be compared.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Factory, Generators, Step
from corral.errors import CorralError, OptionError
from corral.pool import Pool
from corral.recipes.config import Config
from corral.recipes.parts import Parts, env_factory
from corral.rollouts.evaluation import Evaluation, evaluate
from corral.workers.seeds import episode_seed

VALIDATION, FINAL, VIDEO = 1, 2, 3
"""What seeds of evaluations are made for; the envs that collect have others."""


CUT, FAILED = "cut", "failed"
"""How many episodes of an evaluation were, if any were."""
LATER = ("episode/return", "episode/length")
"""Metrics that there are once an episode has ended."""


class Evaluator:
    """Evaluates a learner's policy; its envs are made when first needed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._config = parts.config
        self._pool: Pool | None = None

    def validate(self) -> dict[str, float]:
        """The metrics of an evaluation while training."""
        count, seed = self._config.evaluate_episodes, self.seed(VALIDATION)
        result = self.episodes(count, seed, purpose="validation")
        more = self._parts.measured(result)
        cut = np.count_nonzero(result.lengths >= self._config.evaluate_length)
        if cut:
            more = {**more, CUT: float(cut)}
        if result.failed:
            more = {**more, FAILED: float(len(result.failed))}
        return {
            "eval/return": result.mean,
            "eval/return_std": result.std,
            "eval/length": _mean_length(result),
            **{f"eval/{name}": value for name, value in more.items()},
        }

    def episodes(
        self, count: int, seed: int, stochastic: bool = False, purpose: str = "test"
    ) -> Evaluation:
        """Exactly so many, of these seeds."""
        parts = self._parts
        policy = parts.learner.policy
        return evaluate(
            policy.stochastic() if stochastic else policy.deterministic(),
            self._opened(),
            episodes=count,
            seed=seed,
            tasks=parts.tasks(purpose, count),
            max_length=self._config.evaluate_length,
            obs_norm=parts.obs_norm,
        )

    def seed(self, purpose: int) -> int:
        """What the episodes' seeds are made from."""
        return episode_seed(self._config.seed, purpose)

    def _opened(self) -> Pool:
        if self._pool is None:
            # As the envs that collect were placed: measuring again would say the same.
            layout = self._parts.pool.layout
            workers = None if layout.backend == "serial" else layout.workers
            self._pool = self._parts.open_pool(layout.backend, workers)
        return self._pool

    def close(self) -> None:
        """Close the envs."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _mean_length(result: Evaluation) -> float:
    """Of those that did not fail."""
    known = result.lengths[result.lengths > 0]
    return float(np.mean(known)) if len(known) else math.nan


class Best:
    """Which evaluation was the best so far."""

    def __init__(self, config: Config, value: float | None = None) -> None:
        self._metric = config.best_metric
        self._sign = 1.0 if config.best_is == "max" else -1.0
        self._target = config.stop_at
        self.value = value

    def improved(self, metrics: Mapping[str, float]) -> bool:
        """Whether these are better than all before."""
        if self._metric not in metrics and self._metric in LATER:
            return False
        if self._metric not in metrics:
            near = difflib.get_close_matches(self._metric, metrics, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(
                f"best_metric is {self._metric!r}, which is not measured{meant} There "
                f"are: {', '.join(sorted(metrics))}"
            )
        value = metrics[self._metric]
        if math.isnan(value):  # nothing is known of it, as where all episodes failed
            return False
        # At least as good: of equals, the one that was trained longer.
        better = self.value is None or self._sign * (value - self.value) >= 0
        if better:
            self.value = value
        return better

    @property
    def is_enough(self) -> bool:
        """Whether the run may stop."""
        if self._target is None or self.value is None:
            return False
        return self._sign * (self.value - self._target) >= 0


# Videos -------------------------------------------------------------------------------

PICTURES = 300
"""Fewer than so many are kept at a time."""


class Filming:
    """A policy that takes a picture of slot 0 before each of its decisions.

    Of a long episode, before every second, fourth, ... one, since pictures are large.
    """

    def __init__(self, policy: Any, pool: Pool) -> None:
        self._policy = policy
        self._pool = pool
        self.frames: list[NDArray[np.uint8]] = []
        self.stride = 1
        """Steps from one picture to the next."""
        self._steps = 0

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Decide as the other policy does."""
        if self._steps % self.stride == 0:
            (frame,) = self._pool.render(slots=[0])
            self.frames.append(np.asarray(frame))
        self._steps += 1
        if len(self.frames) == PICTURES:
            self.frames = self.frames[::2]
            self.stride *= 2
        decision: Decision = self._policy.act(step, carry, rng)
        return decision

    def initial_carry(self, rows: int) -> Any:
        """As the other policy's."""
        return self._policy.initial_carry(rows)


def film(parts: Parts, seed: int) -> bytes:
    """One episode as a GIF, in a process of its own: drivers may take it down."""
    from corral.sinks.video import encode

    if not renders(parts):
        raise OptionError(f"{parts.config.env} does not render to rgb_array")
    more = {} if parts.pool.spec.render_mode else {"render_mode": "rgb_array"}
    factory = env_factory(parts.config, **more)
    with Pool(factory, 1, backend="process", worker_init=no_window) as pool:
        filming = Filming(parts.learner.policy.deterministic(), pool)
        evaluate(
            filming,
            pool,
            episodes=1,
            seed=seed,
            max_length=parts.config.evaluate_length,
            obs_norm=parts.obs_norm,
        )
        speed = float(pool.spec.metadata.get("render_fps") or 30)
    return encode(filming.frames, speed / filming.stride)


def no_window() -> None:
    """Pictures without a screen: ask drivers for none, unless told otherwise."""
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")


def renders(parts: Parts) -> bool:
    """Whether the env can be asked for pictures."""
    spec = parts.pool.spec
    if spec.render_mode is not None:
        return spec.render_mode == "rgb_array"
    if "rgb_array" not in spec.metadata.get("render_modes", ()):
        return False
    # A function of the user's need not take a render_mode.
    return spec.id is not None or _takes_render_mode(env_factory(parts.config))


def _takes_render_mode(factory: Factory) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    open_ended = (one.kind is one.VAR_KEYWORD for one in parameters)
    return any(open_ended) or any(one.name == "render_mode" for one in parameters)


def try_to_film(parts: Parts, seed: int) -> tuple[bytes | None, str]:
    """The same; without pictures, the reason."""
    if not renders(parts):
        return None, "the env does not render to rgb_array"
    try:
        return film(parts, seed), ""
    except CorralError as error:
        return None, str(error).partition("\n")[0]
