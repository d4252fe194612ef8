"""The soak: faults of every kind, at random, against pools that go on regardless.

    python -m tests.soak.random_faults --minutes 5 --seed 0
    python -m tests.soak.random_faults --faults 1000

Round after round a pool of KnownAnswers is driven in another way while its envs raise,
exit, crash and hang as their actions order, and a saboteur kills and stops workers from
outside. A referee checks every row. When a round is over nothing may be left of it: no
process, thread, descriptor or shared memory, and no memory to speak of.

What is ordered when is the seed's; when a signal arrives is not.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from corral.engine.pool import Pool
from corral.tools.testing.referee import Referee
from tests.soak.drive import Drive, Style
from tests.soak.explanations import Explanations
from tests.soak.marked_census import Census, take_census
from tests.soak.orders import ORDERS, Obedient
from tests.soak.saboteur import KILL, PAUSE, STOP, Saboteur

DEADLINE = 1.5
"""Seconds for a step or a reset, many times what either takes."""
START_DEADLINE = 8.0
ROUND_HANG_SECONDS = 240.0
"""Seconds for a whole round, and for closing; then we say where we hang, and end."""
FAULTS_PER_ROUND = 40
"""Of a round. More would only wait longer: the back-off doubles with each of a slot's.
Another pool counts from the start."""
ATTACKS_PER_ROUND = 12
"""Those of them that come from outside."""
ATTACK_KINDS = {KILL: 6.0, PAUSE: 4.0, STOP: 2.0}
MAX_GROWTH_BYTES = 32 * 2**20
"""Bytes by which our own memory may grow."""
MEMORY_LIMIT = 160 * 2**20
GROWING = "memory growth"
USUAL_ORDERS = tuple(i for i, order in enumerate(ORDERS) if i and order.name != GROWING)


@dataclass(frozen=True, slots=True)
class Round:
    """One pool, and how it is used."""

    style: Style
    form: str = "plain"
    slots: int = 8
    workers: int | None = 3
    isolation: str | None = None
    orders: tuple[int, ...] = USUAL_ORDERS
    memory_limit: int | None = None


ROUNDS = (
    Round(Style("all", ("same_step",))),
    Round(Style("first", ("same_step", "next_step", "off")), form="nested"),
    Round(Style("all", ("next_step",), copy=False), form="nested"),
    Round(Style("named", ("same_step", "next_step", "off"))),
    Round(Style("first", ("same_step",)), form="mailed"),
    Round(Style("all", ("same_step",), copy=False), slots=5, workers=2),
    Round(Style("named", ("next_step", "same_step")), form="mailed", slots=6),
    Round(
        Style("first", ("same_step", "next_step", "off")),
        slots=3,
        workers=None,
        isolation="slot",
        orders=(*USUAL_ORDERS, *[len(ORDERS) - 1] * 12),
        memory_limit=MEMORY_LIMIT,
    ),
)
"""Taken in turn, for as long as the soak lasts."""


@dataclass(slots=True)
class Tally:
    """What came of it."""

    faults: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    episodes: int = 0
    rounds: int = 0
    seconds: float = 0.0
    grown: int = 0
    """Bytes by which our memory has grown since the first round."""
    mistakes: list[str] = field(default_factory=list)


def soak(
    seconds: float | None = None, faults: int | None = None, seed: int = 0
) -> Tally:
    """Soak for so long, or until so many faults were injected; whichever is first."""
    began = time.monotonic()
    tally = Tally()
    with _marked() as mark, tempfile.TemporaryDirectory(prefix="corral-") as folder:
        before = _warmed_up(folder, mark)
        while _goes_on(tally, began, seconds, faults):
            shape = ROUNDS[tally.rounds % len(ROUNDS)]
            # One more than a deadline allows would have to be stopped half-way.
            left = FAULTS_PER_ROUND if faults is None else faults - tally.faults.total()
            end = None if seconds is None else began + seconds
            known = len(tally.mistakes)
            _play(
                shape,
                seed + tally.rounds,
                min(left, FAULTS_PER_ROUND),
                end,
                folder,
                tally,
            )
            _look_for_leaks(before, mark, tally)
            _say(tally, shape, tally.mistakes[known:])
    tally.seconds = time.monotonic() - began
    return tally


def _goes_on(
    tally: Tally, began: float, seconds: float | None, faults: int | None
) -> bool:
    if seconds is not None and time.monotonic() - began >= seconds:
        return False
    return faults is None or tally.faults.total() < faults


@contextmanager
def _marked() -> Iterator[str]:
    """All processes that are started here can be told by their environment."""
    name, value = "CORRAL_SOAK", uuid.uuid4().hex
    os.environ[name] = value
    try:
        yield f"{name}={value}"
    finally:
        del os.environ[name]


def _warmed_up(folder: str, mark: str) -> Census:
    """What there is once everything that is made only once has been made."""
    for shape in ROUNDS[:2]:
        _play(shape, 0, 4, None, folder, Tally())
    return take_census(mark)


def _play(
    shape: Round, seed: int, faults: int, end: float | None, folder: str, tally: Tally
) -> None:
    """Open a pool, drive it through its faults, close it."""
    faulthandler.dump_traceback_later(ROUND_HANG_SECONDS, exit=True)
    attacks = min(ATTACKS_PER_ROUND, faults // 3)
    saboteur = Saboteur(seed, 0.6, attacks, ATTACK_KINDS)
    referee = Referee(shape.slots, seed, shape.form)
    with _pool(shape, seed, folder) as pool, saboteur:
        explanations = Explanations(pool.shards, saboteur.attacked)
        drive = Drive(pool, referee, explanations, shape.style, shape.orders, seed)
        try:
            drive.run(
                lambda: (
                    (end is not None and time.monotonic() > end)
                    or (
                        explanations.confirmed.total() >= faults - attacks
                        and saboteur.finished
                    )
                )
            )
        except Exception as error:
            drive.mistakes.append(f"{type(error).__name__}: {error}")
    faulthandler.cancel_dump_traceback_later()
    tally.rounds += 1
    tally.faults += explanations.confirmed + saboteur.counts
    tally.rows += referee.rows
    tally.episodes += referee.episodes
    found = [*referee.mistakes, *drive.mistakes]
    tally.mistakes += [f"round {tally.rounds}, {shape}: {one}" for one in found]


def _pool(shape: Round, seed: int, folder: str) -> Pool:
    factories = [
        functools.partial(Obedient, str(Path(folder, f"slot-{slot}")), form=shape.form)
        for slot in range(shape.slots)
    ]
    for factory in factories:
        Path(factory.args[0]).unlink(missing_ok=True)
    return Pool(
        factories,
        workers=shape.workers,
        isolation=shape.isolation,
        seed=seed,
        copy=shape.style.copy,
        on_fault="restart",
        max_restarts=10_000,
        restarts_per_minute=10_000,
        step_timeout=DEADLINE,
        reset_timeout=DEADLINE,
        start_timeout=START_DEADLINE,
        memory_limit=shape.memory_limit,
    )


def _look_for_leaks(before: Census, mark: str, tally: Tally) -> None:
    """Nothing may be there that was not; the killed have a moment to be gone."""
    deadline = time.monotonic() + 2.0
    now = take_census(mark)
    while before.lost(now) and time.monotonic() < deadline:
        time.sleep(0.02)
        now = take_census(mark)
    tally.mistakes += [f"left behind: {what}" for what in before.lost(now)]
    tally.grown = now.memory - before.memory
    if tally.grown > MAX_GROWTH_BYTES:
        tally.mistakes.append(f"our own memory has grown by {tally.grown} bytes")


# Telling ------------------------------------------------------------------------------


def _say(tally: Tally, shape: Round, new: list[str]) -> None:
    style = shape.style
    print(
        f"round {tally.rounds}: {style.name}, {'/'.join(style.modes)}, {shape.form}: "
        f"{tally.faults.total()} faults, {tally.rows['valid']} valid transitions, "
        f"{len(tally.mistakes)} mistakes",
        *new[:20],
        sep="\n  ",
        flush=True,
    )


def show(tally: Tally) -> str:
    """The tally as a table."""
    lines = [f"{'fault':32}{'injected':>9}"]
    lines += [f"{name:32}{count:9}" for name, count in sorted(tally.faults.items())]
    lines += [f"{'in all':32}{tally.faults.total():9}", ""]
    lines += [f"{name + ' rows':32}{count:9}" for name, count in tally.rows.items()]
    lines += [
        f"{'episodes':32}{tally.episodes:9}",
        f"{'pools':32}{tally.rounds:9}",
        f"{'seconds':32}{tally.seconds:9.0f}",
        f"{'MiB that our memory grew':32}{tally.grown / 2**20:9.1f}",
        f"{'mistakes':32}{len(tally.mistakes):9}",
    ]
    lines += [f"  {mistake}" for mistake in tally.mistakes[:20]]
    return "\n".join(lines)


def main() -> int:
    """Soak, show the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.random_faults")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--faults", type=int, help="how many faults, at most")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    minutes, faults = arguments.minutes, arguments.faults
    if minutes is None and faults is None:
        minutes = 5.0
    seconds = None if minutes is None else 60 * minutes
    tally = soak(seconds, faults, arguments.seed)
    print(show(tally))
    return 1 if tally.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
