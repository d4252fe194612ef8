"""An env that plays by itself: whichever kind it is, with actions of its own.

    player = player_for(env, seed, slot)
    for _ in range(steps):
        moment = player.advance()      # a reset where an episode is to start

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
from corral.tools.doctor.env_response import Game, Moment

SMALL_SEEDS = 0x7FFFFFFF
"""Some envs take no larger ones; the API check looks at those."""


def game_for(env: Any, seed: int) -> Game:
    """The driver for this kind of env; raises OptionError if there is none."""
    # Each in its turn, so that nobody needs what the others import.
    if is_pettingzoo(env):
        from corral.tools.doctor.aec_driver import AecGame
        from corral.tools.doctor.parallel_driver import ParallelGame

        turns = any(base.__name__ == "AECEnv" for base in type(env).__mro__)
        return AecGame(env, seed) if turns else ParallelGame(env, seed)
    from corral.tools.doctor.gymnasium_driver import GymnasiumGame

    adapt(env)  # for its reason why not
    assert isinstance(env, gymnasium.Env)
    return GymnasiumGame(env, seed)


class Player:
    """A game, played episode after episode.

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
        self.game = game_for(env, episode_seed(seed, slot) & SMALL_SEEDS)
        self.env = self.game.env
        self._episode = self._steps = 0
        self._over = True

    def advance(self) -> Moment:
        """The next reset or step."""
        if self._over:
            seed = episode_seed(self._seed, self._slot, self._episode) & SMALL_SEEDS
            with self._around():
                moment = self.game.reset(seed, f"reset {self._episode}")
            self._episode += 1
        else:
            drawn = self.game.draw()
            self._steps += 1
            with self._around():
                moment = self.game.step(drawn, f"step {self._steps}")
        self._over = moment.over
        return moment

    def start_over(self) -> None:
        """Forget what was played: the same is played again, with the same env."""
        self._episode = self._steps = 0
        self._over = True
        self.game = game_for(
            self.env, episode_seed(self._seed, self._slot) & SMALL_SEEDS
        )

    def play(self, moments: int) -> Iterator[Moment]:
        """So many resets and steps."""
        for _ in range(moments):
            yield self.advance()

    def close(self) -> None:
        """Close the env."""
        with self._around():
            self.env.close()
