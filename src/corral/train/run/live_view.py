"""A policy in a window, live: one env in this process.

An env with render mode "human" opens its own window. The frames of one that only has
"rgb_array" are shown in a window of ours, as fast as the env says (`render_fps`).
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from corral.core import Decision, Generators, Step
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.rollouts.actor import ForwardingPolicy
from corral.rollouts.evaluation import Evaluation, evaluate
from corral.train.run.episode_video import can_render
from corral.train.run.parts import Parts, env_factory, one_env_options
from corral.train.sinks.window import Window

MODES = ("human", "rgb_array")


class WindowClosed(Exception):
    """The user closed the window."""


class ShownPolicy(ForwardingPolicy):
    """A policy whose env is drawn in a window before each decision."""

    def __init__(self, policy: Any, pool: Pool, window: Window) -> None:
        super().__init__(policy)
        self._pool, self._window = pool, window
        self._rate = float(pool.spec.metadata.get("render_fps") or 30)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Show the env, then decide as the other policy does."""
        (frame,) = self._pool.apply(_frame)
        self._window.show(frame, self._rate)
        if self._window.closed:
            raise WindowClosed
        return super().act(step, carry, rng)


def _frame(env: Any) -> Any:
    return env.render()


def show(parts: Parts, episodes: int, seed: int, stochastic: bool) -> Evaluation | None:
    """Play episodes in a window; None if it was closed before their end."""
    mode = parts.pool.spec.render_mode or next(
        (mode for mode in MODES if can_render(parts, mode)), None
    )
    if parts.batched:
        raise OptionError("--render: batched envs are not shown")
    if mode not in MODES:
        raise OptionError(
            "--render: the env renders neither to human nor to rgb_array, or what "
            "makes it takes no render_mode"
        )
    policy = parts.learner.policy
    policy = policy.stochastic() if stochastic else policy.deterministic()
    more = {} if parts.pool.spec.render_mode else {"render_mode": mode}
    factory = env_factory(parts.config, **more)
    arguments: dict[str, Any] = {
        "episodes": episodes,
        "seed": seed,
        "tasks": parts.tasks("test", episodes),
        "max_length": parts.config.evaluate_length,
        "obs_norm": parts.obs_norm,
    }
    options = one_env_options(parts.config, backend="serial")
    with Pool.with_options(factory, 1, options) as pool:
        if mode == "human":
            return evaluate(policy, pool, **arguments)
        with closing(Window(parts.config.env)) as window:
            try:
                return evaluate(ShownPolicy(policy, pool, window), pool, **arguments)
            except WindowClosed:
                return None
