"""The truth, slowly: one environment per slot, alone, in a loop written by hand.

What the guides promise about seeds, resets, tasks and faults is written down here a
second time, as plainly as possible; nothing is shared with the code that it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.core import NO_TASK
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.tools.testing.values import stored
from tests.soak.programs.alone import ProcessState
from tests.soak.programs.env import Doomed, build
from tests.soak.programs.kinds import Kind

RESTART_SEED_DOMAIN = 3
"""What sets the seeds of restarted episodes apart."""
Sampler = Callable[[int, int, np.random.Generator], Any]


@dataclass(slots=True)
class ExpectedRow:
    """All that there is to know of one slot after one command."""

    obs: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    started: bool = True
    valid: bool = True
    final_obs: Any = None
    """None where no episode ended."""
    episode_return: float = 0.0
    episode_length: int = 0
    seed: int = -1
    info: dict[str, Any] = field(default_factory=dict)
    final_info: dict[str, Any] | None = None
    fault: str = ""
    """What broke; under "raise" there is no row, and all else means nothing."""

    @property
    def ended(self) -> bool:
        """Whether an episode ended."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class SlotRules:
    """How slots are treated."""

    root: int = 0
    seeded: bool = True
    """Whether every episode has a seed of its own, or only those that are given one."""
    restarts: bool = False
    isolate_rng: bool = False
    sample_task: Sampler | None = None


class SlotModel:
    """One environment, reset and stepped as the guides say.

    Args:
        kind: of the environment.
        slot: its number.
        rules: how it is treated.
        process: what its process has besides; one of its own if None.
    """

    def __init__(
        self,
        kind: Kind,
        slot: int,
        rules: SlotRules,
        process: ProcessState | None = None,
    ) -> None:
        self._kind, self._slot, self._rules = kind, slot, rules
        seed = episode_seed(rules.root, slot) if rules.isolate_rng else None
        self._process = process or ProcessState(seed)
        self.root = rules.root
        self.number, self._restarts, self._broken = -1, 0, False
        self._seed: int | None = None
        self._task: Any = NO_TASK
        self.next_task: Any = NO_TASK
        self.over = False
        """Whether the episode has ended and the next has not begun."""
        self.failed = False
        """(raise) Whether it wants a reset after a fault."""
        self._row = ExpectedRow(None)
        self._build()

    def _build(self) -> None:
        with self._process:
            self.env = build(self._kind, modelled=True)
        self._space = self.env.observation_space

    # Commands -------------------------------------------------------------------------

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        task: Any = NO_TASK,
    ) -> ExpectedRow:
        """The caller begins an episode."""
        self._broken = False
        if task is not NO_TASK:
            self.next_task = task
        try:
            obs, info = self._begin(seed, options)
        except Doomed as doom:
            return self._lost(doom)
        self._row = ExpectedRow(obs, seed=self._word, info=info)
        return self._row

    def step(self, action: Any, mode: str) -> ExpectedRow:
        """The caller steps, under an autoreset mode."""
        try:
            self._row = self._filler() if self.over else self._stepped(action, mode)
        except Doomed as doom:
            self._row = self._lost(doom, mode)
        return self._row

    def _filler(self) -> ExpectedRow:
        obs, info = self._begin(None, None)
        return ExpectedRow(obs, valid=False, seed=self._word, info=info)

    def _stepped(self, action: Any, mode: str) -> ExpectedRow:
        before = self._row
        with self._process:
            outcome = self.env.step(deepcopy(action))
            obs, reward, terminated, truncated, info = deepcopy(outcome)
        fresh = before.ended or before.started
        row = ExpectedRow(
            obs=stored(self._space, obs),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            started=False,
            episode_return=float(reward) + (0.0 if fresh else before.episode_return),
            episode_length=1 + (0 if fresh else before.episode_length),
            seed=self._word,
            info=info,
        )
        return self._ended(row, mode) if row.ended else row

    def _ended(self, row: ExpectedRow, mode: str) -> ExpectedRow:
        row.final_obs = row.obs
        if mode == "same_step":
            row.final_info = row.info
            row.obs, row.info = self._begin(None, None)
            row.seed, row.started = self._word, True
        else:
            self.over = True
        return row

    # Episodes -------------------------------------------------------------------------

    @property
    def _word(self) -> int:
        return -1 if self._seed is None else self._seed

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Reset the environment for the next episode, or the same once more."""
        if self._broken:
            self._restarts += 1
        else:
            self.number, self._restarts = self.number + 1, 0
        self._task = self._next_task()
        self._broken = False
        self._seed = self._next_seed(seed)
        given = options
        if self._task is not NO_TASK:
            given = {**(options or {}), "task": self._task}
        with self._process:
            if self._rules.isolate_rng and self._seed is not None:
                seed_globals(episode_seed(self._seed))
            obs, info = deepcopy(self.env.reset(seed=self._seed, options=given))
        self.over = self.failed = False
        return stored(self._space, obs), info

    def _next_seed(self, seed: int | None) -> int | None:
        if seed is not None:
            return seed
        if self._restarts:
            parts = self._slot, self.number, RESTART_SEED_DOMAIN, self._restarts
            return episode_seed(self.root, *parts)
        if self._rules.seeded:
            return episode_seed(self.root, self._slot, self.number)
        return None

    def _next_task(self) -> Any:
        task, self.next_task = self.next_task, NO_TASK
        if task is not NO_TASK:
            return task
        if self._restarts and self._task is not NO_TASK:
            return self._task
        sample = self._rules.sample_task
        if sample is None:
            return NO_TASK
        draw = episode_seed(self.root, self._slot, self.number, 1)
        return sample(self._slot, self.number, np.random.default_rng(draw))

    # Faults ---------------------------------------------------------------------------

    def _lost(self, doom: Doomed, mode: str = "") -> ExpectedRow:
        """The environment failed: an error, or an episode that is cut short."""
        fault = str(doom)
        if not self._rules.restarts:
            self.failed = True
            return ExpectedRow(None, fault=fault)
        before = self._row
        self._build()
        self._broken = True
        fresh = before.ended or before.started
        row = ExpectedRow(
            obs=before.obs,
            truncated=True,
            started=False,
            valid=False,
            final_obs=before.obs,
            episode_return=0.0 if fresh else before.episode_return,
            episode_length=0 if fresh else before.episode_length,
            seed=before.seed,
            fault=fault,
        )
        if mode == "same_step":
            row.obs, row.info = self._begin(None, None)
            row.seed, row.started = self._word, True
        else:
            self.over = True
        return row

    def new_root(self, root: int) -> None:
        """Episodes are counted from the start again, from another root."""
        self.root = root
        self.number = -1

    def ask(self, what: Callable[[Any], Any]) -> Any:
        """Something else is done to the environment."""
        with self._process:
            return deepcopy(what(self.env))

    def close(self) -> None:
        """Close the environment, which may have a fault in that as well."""
        with self._process:
            try:
                self.env.close()
            except Doomed:
                pass


def kept(choice: str | tuple[str, ...], row: ExpectedRow) -> ExpectedRow:
    """The row with what is left of its infos under `infos=choice`."""
    if choice == "all":
        return row
    info, final = row.info, row.final_info
    if choice == "none":
        row.info, row.final_info = {}, None
    elif choice == "final":
        at_the_end = row.ended and final is None and row.valid
        row.info = info if at_the_end else {}
    else:
        row.info = {key: info[key] for key in choice if key in info}
        if final is not None:
            row.final_info = {key: final[key] for key in choice if key in final}
    return row
