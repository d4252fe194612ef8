"""Somebody who sends signals to workers from outside, at any moment.

Runs in a thread of its own, so a signal arrives while the pool waits, sends, or puts a
new worker in place; also to workers that are only just starting. Linux: a process is
held by a descriptor, so that no other that got its number is ever hit.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

WORKER_COMMAND_MARK = b"corral.engine.worker.main"
"""In the command line of a worker."""
KILL, PAUSE, STOP = "kill -9", "stop, continue", "stop for good"


class Saboteur:
    """Attacks the workers that are children of this process.

    Args:
        seed: of what is done when and to whom, as far as that can be said.
        pause: mean seconds between attacks.
        most: attacks in all.
        kinds: of attacks, with their weights.
    """

    def __init__(
        self, seed: int, pause: float, most: int, kinds: dict[str, float]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.attacked: set[int] = set()
        """Process ids that were killed, or stopped for good."""
        self._random = random.Random(seed)
        self._pause, self._most, self._kinds = pause, most, kinds
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="corral-saboteur")

    def __enter__(self) -> Saboteur:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    @property
    def finished(self) -> bool:
        """Whether there will be no more attacks."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while sum(self.counts.values()) < self._most:
            if self._enough.wait(self._random.expovariate(1 / self._pause)):
                return
            (kind,) = self._random.choices(*zip(*self._kinds.items(), strict=True))
            workers = sorted(workers_of(os.getpid()))
            if workers and self._attack(kind, self._random.choice(workers)):
                self.counts[kind] += 1

    def _attack(self, kind: str, pid: int) -> bool:
        try:
            held = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if pid not in workers_of(os.getpid()):  # it was another's when we held it
                return False
            if kind != PAUSE:
                self.attacked.add(pid)
            number = signal.SIGKILL if kind == KILL else signal.SIGSTOP
            signal.pidfd_send_signal(held, number)
            if kind == PAUSE:
                self._enough.wait(self._random.uniform(0.0, 0.2))
                signal.pidfd_send_signal(held, signal.SIGCONT)
        except ProcessLookupError:
            return kind == PAUSE and pid in self.attacked
        finally:
            os.close(held)
        return True


def workers_of(pid: int) -> set[int]:
    """The worker processes that this process has started and not buried."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                if WORKER_COMMAND_MARK in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.add(int(child))
    return found
