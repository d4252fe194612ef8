"""What a slot did until it failed, done again: beside another slot, and without.

    apart     both slots, a process each    three times   the slot has to work
    beside    both slots, one process       once          it has to fail, as before

and all of that three times, each time in new processes; the second time the other slot
has taken a step before it begins. Only then do the two break each other. What fails at
random would have to do so four times at the same step beside the other, and in nine
runs not once without; what fails in some processes and not in others, by the hash of a
word, say, in four processes of that kind and in none of three others. What draws
unlucky numbers does so on both sides, or on neither: seeds, slots and the global
generators are the same. And envs whose module has one generator for them all draw other
numbers as soon as one of them has drawn before.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from corral.core import Autoreset
from corral.engine.executors.contract import Assignment
from corral.engine.pool.options import ApiOptions
from corral.engine.pool.slot_history import SlotHistory
from corral.errors import Fault, FaultError

MAX_RERUN_SECONDS = 10.0
"""For all of it; what would take longer is not tried, or given up."""
RERUN_ROUNDS = 3
RERUNS_PER_ROUND = 3
"""In each round, alone in a process."""


class RerunPool(Protocol):
    """What a FaultRerun needs of `pool.Pool`, which makes it; not imported here."""

    @property
    def shards(self) -> Sequence[range]: ...

    def reset(self, slots: Any = None, **episodes: Any) -> Any: ...

    def send_raw(self, actions: Any, slots: Any = None) -> None: ...

    def recv(self) -> Any: ...

    def __enter__(self) -> RerunPool: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


OpenPool = Callable[..., RerunPool]
"""As `Pool` is called: factories, then options by name."""


@dataclass(frozen=True, slots=True)
class FaultRerun:
    """Two slots that shared a process, of which one failed.

    Args:
        assignment: what their envs are built with.
        fault: what went wrong.
        pair: the slot of the fault, and another one.
        scripts: one for each, as long as each other.
        autoreset: what happens at the end of an episode.
        open_pool: how a pool is made.
    """

    assignment: Assignment
    fault: Fault
    pair: range
    histories: Sequence[SlotHistory]
    autoreset: Autoreset
    open_pool: OpenPool

    def fails_alone(self) -> bool | None:
        """Whether the other slot makes no difference; None if that cannot be told."""
        runs = RERUN_ROUNDS * (RERUNS_PER_ROUND + 2)
        if (
            runs * sum(history.seconds for history in self.histories)
            >= MAX_RERUN_SECONDS / 2
        ):
            return None
        ending = time.monotonic() + MAX_RERUN_SECONDS
        try:
            for number in range(RERUN_ROUNDS):
                if self._fails_apart(ending):
                    return True
                if not self._fails_beside(ending, number % 2):
                    return None
        except Exception:
            # It hung, died, failed in some other way, or cannot be sent. What is told
            # is the error that it is about, in any case.
            return None
        return False

    def _fails_apart(self, ending: float) -> bool:
        with self._pool("slot", ending) as pool:
            return any(self._fails(pool, ending) for _ in range(RERUNS_PER_ROUND))

    def _fails_beside(self, ending: float, earlier: int) -> bool:
        with self._pool("shared", ending) as pool:
            return self._fails(pool, ending, earlier)

    @property
    def _place(self) -> int:
        return self.pair.index(self.fault.slot or 0)

    def _fails(self, pool: RerunPool, ending: float, earlier: int = 0) -> bool:
        """Whether the slot fails again; whatever else goes wrong is raised."""
        try:
            self._run(pool, ending, earlier)
        except FaultError as error:
            alone = len(pool.shards) > 1
            if any(self._is_like(one, alone) for one in error.faults or [error.fault]):
                return True
            raise
        return False

    def _is_like(self, again: Fault, alone: bool) -> bool:
        """Whether this is what had gone wrong; alone, at whichever step."""
        if (again.slot, again.kind) != (self._place, "raised"):
            return False
        ours, same = self.fault, again.error_type == self.fault.error_type
        at = again.command == ours.command and (again.step or 0) == (ours.step or 0)
        return same and (alone or at)

    def _run(self, pool: RerunPool, ending: float, earlier: int) -> None:
        """All turns of both; the other one's first so many once more, before."""
        ours, other = self._place, 1 - self._place
        turns = list(
            zip(*(one.before or one.actions for one in self.histories), strict=True)
        )
        self._reset(pool, [0, 1])
        for turn in turns[:earlier]:
            pool.send_raw([turn[other]], [other])
            pool.recv()
            self._reset(pool, [other])
        for turn in turns:
            if time.monotonic() > ending:
                raise TimeoutError
            pool.send_raw(turn)
            pool.recv()
        if self.histories[ours].before:
            self._reset(pool, [ours])

    def _reset(self, pool: RerunPool, places: Sequence[int]) -> None:
        chosen = [self.histories[place] for place in places]
        pool.reset(
            places,
            # Any seed, but the same beside the other and without.
            seeds=[0 if one.seed is None else one.seed for one in chosen],
            options=[one.options for one in chosen],
            tasks=[one.task for one in chosen],
        )

    def _pool(self, isolation: str, ending: float) -> RerunPool:
        """The two slots, built as they were."""
        assignment, left = self.assignment, max(0.1, ending - time.monotonic())
        return self.open_pool(
            [assignment.factories[slot] for slot in self.pair],
            backend="process",
            workers=1 if isolation == "shared" else None,
            isolation=isolation,
            # Nobody is there to reset those that end, if that was left to the caller.
            autoreset="same_step" if self.autoreset == "off" else self.autoreset,
            infos="none",
            # Whoever draws from global generators is disturbed by others there, for
            # which there is another remedy.
            isolate_rng=True,
            seed=assignment.options.root_seed,
            worker_init=partial(_silently, assignment.worker_init),
            per_worker=assignment.per_worker,
            shared=assignment.shared,
            threads_per_worker=assignment.threads_per_worker,
            devices=assignment.devices[:1],
            start_timeout=left,
            reset_timeout=left,
            step_timeout=left,
            close_timeout=1.0,
            _api=ApiOptions(tries_alone=False),
        )


def _silently(worker_init: Callable[[], Any] | None) -> None:
    """What these envs say is no news: it was said when they failed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    logging.disable()
    if worker_init is not None:
        worker_init()
