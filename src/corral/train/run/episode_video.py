"""The video of one episode.

    VideoScene.of(parts, seed) ──► the policy and its scales, copied as they are now
              .record() ──► a worker: the env, and its frames ──► a GIF

What is learnt after `of` is not seen in it, so others may go on learning meanwhile.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

from corral.core import Decision, Factory, Generators, Step
from corral.engine.pool import Pool, PoolOptions
from corral.errors import OptionError
from corral.rollouts.evaluation import evaluate
from corral.rollouts.normalise import ObsNorm
from corral.train.run.parts import Parts, env_factory
from corral.train.run.video_frames import (
    VideoFrames,
    capture_frame,
    encode_gif,
    lower_priority,
)


@dataclass(frozen=True, slots=True)
class VideoScene:
    """All that a video needs."""

    factory: Factory
    policy: Any
    obs_norm: ObsNorm | None
    seed: int
    length: int
    """Steps after which the episode is cut."""

    @classmethod
    def of(cls, parts: Parts, seed: int) -> VideoScene:
        """What was learnt so far, in an env that draws; OptionError if it does not."""
        import corral.train.sinks.video  # noqa: F401  says so if Pillow is missing

        if not renders(parts):
            raise OptionError("the env does not render to rgb_array")
        more = {} if parts.pool.spec.render_mode else {"render_mode": "rgb_array"}
        return cls(
            factory=env_factory(parts.config, **more),
            policy=parts.learner.policy.frozen(),
            obs_norm=copy.deepcopy(parts.obs_norm),
            seed=seed,
            length=parts.config.evaluate_length,
        )

    def record(self) -> bytes:
        """The GIF; the env has a process of its own, as drivers may take it down."""
        options = PoolOptions(
            backend="process", worker_init=lower_priority, per_worker=VideoFrames
        )
        with Pool.with_options(self.factory, 1, options) as pool:
            evaluate(
                RecordingPolicy(self.policy, pool),
                pool,
                episodes=1,
                seed=self.seed,
                max_length=self.length,
                obs_norm=self.obs_norm,
            )
            speed = float(pool.spec.metadata.get("render_fps") or 30)
            (video,) = pool.apply(encode_gif, speed)
        return bytes(video)


class RecordingPolicy:
    """A policy that has a picture of slot 0 taken before its decisions."""

    def __init__(self, policy: Any, pool: Pool) -> None:
        self._policy = policy
        self._pool = pool
        self._stride = 1
        self._steps = 0

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Decide as the other policy does."""
        if self._steps % self._stride == 0:
            (self._stride,) = self._pool.apply(capture_frame, slots=[0])
        self._steps += 1
        decision: Decision = self._policy.act(step, carry, rng)
        return decision

    def initial_carry(self, rows: int) -> Any:
        """As the other policy's."""
        return self._policy.initial_carry(rows)


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
