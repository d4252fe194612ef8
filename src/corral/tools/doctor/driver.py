"""An env that plays by itself: whichever kind it is, with actions of its own.

    driver = EpisodeDriver(factory, seed, slot)
    for _ in range(steps):
        response = driver.advance()    # a reset where an episode is to start

What it does depends on seed and slot alone, so two runs can be compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium

from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.worker.seeds import episode_seed
from corral.tools.doctor.env_response import EnvDriver, EnvResponse

SMALL_SEED_RANGE = 0x7FFFFFFF
"""Some envs take no larger ones; the API check looks at those."""


def driver_for(env: Any, seed: int) -> EnvDriver:
    """The driver for this kind of env; raises OptionError if there is none."""
    # Each in its turn, so that nobody needs what the others import.
    if is_pettingzoo(env):
        from corral.tools.doctor.aec_driver import AecDriver
        from corral.tools.doctor.parallel_driver import ParallelDriver

        turns = any(base.__name__ == "AECEnv" for base in type(env).__mro__)
        return AecDriver(env, seed) if turns else ParallelDriver(env, seed)
    from corral.tools.doctor.gymnasium_driver import GymnasiumDriver

    adapt(env)  # for its reason why not
    assert isinstance(env, gymnasium.Env)
    return GymnasiumDriver(env, seed)


class EpisodeDriver:
    """Steps one env, episode after episode.

    Args:
        factory: makes the env; called in `around`, as everything else is.
        seed: of episodes and actions.
        slot: which one of several; each plays something else.
        around: entered around each call of the env.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        seed: int = 0,
        slot: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._seed, self._slot, self._around = seed, slot, around
        with around():
            env = factory()
        self.env_driver = driver_for(env, episode_seed(seed, slot) & SMALL_SEED_RANGE)
        self.env = self.env_driver.env
        self._episode = self._steps = 0
        self._over = True

    def advance(self) -> EnvResponse:
        """The next reset or step."""
        if self._over:
            seed = (
                episode_seed(self._seed, self._slot, self._episode) & SMALL_SEED_RANGE
            )
            with self._around():
                moment = self.env_driver.reset(seed, f"reset {self._episode}")
            self._episode += 1
        else:
            drawn = self.env_driver.draw()
            self._steps += 1
            with self._around():
                moment = self.env_driver.step(drawn, f"step {self._steps}")
        self._over = moment.over
        return moment

    def start_over(self) -> None:
        """Forget what was played: the same is played again, with the same env."""
        self._episode = self._steps = 0
        self._over = True
        self.env_driver = driver_for(
            self.env, episode_seed(self._seed, self._slot) & SMALL_SEED_RANGE
        )

    def play(self, moments: int) -> Iterator[EnvResponse]:
        """So many resets and steps."""
        for _ in range(moments):
            yield self.advance()

    def close(self) -> None:
        """Close the env."""
        with self._around():
            self.env.close()
