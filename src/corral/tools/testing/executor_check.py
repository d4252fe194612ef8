"""Does an executor keep its contract? The same questions for every one of them.

A short check for authors of executors; `tests/contracts/` asks the rest.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import Autoreset
from corral.engine.executors.contract import Executor
from corral.engine.pool import Pool
from corral.errors import (
    ClosedError,
    CorralError,
    EnvError,
    MissingExtra,
    OrderError,
    StartError,
    WorkerDied,
    WorkerHung,
)
from corral.tools.testing.answers import ACTIONS, FORMS, KnownAnswers
from corral.tools.testing.faulty_envs import Crashing, Hanging, OddSpaces
from corral.tools.testing.referee import Referee
from corral.tools.testing.report import Report, Skip, run_parts

SLOTS = 5
STEPS = 60
ROOT = 11
MODES: tuple[Autoreset, ...] = ("same_step", "next_step", "off")
MakePool = Callable[..., Pool]


def check_executor(
    backend: str | MakePool, *, workers: int | None = 2, raises: bool = True
) -> Report:
    """Check that pools on this executor do what pools have to.

    Args:
        backend: its name; or a function that takes the arguments of Pool, except for
            backend and workers, and makes one.
        workers: number of workers; None where the executor decides.
        raises: whether to raise CheckFailed if a part of the check failed.

    Returns:
        The report. `print` shows it; it is true if nothing failed.
    """
    make: MakePool
    if callable(backend):
        make, name = backend, getattr(backend, "__qualname__", repr(backend))
    else:
        count = None if backend == "serial" else workers
        make = functools.partial(Pool, backend=backend, workers=count)
        name = f"backend={backend!r}, workers={workers}"
    needed = ("a_pool_opens_and_is_closed_twice",)
    return run_parts(name, _ExecutorCheck(make), needed, raises=raises)


class _ExecutorCheck:
    """Pools on one executor."""

    def __init__(self, make: MakePool) -> None:
        self._make = make
        self._executor: Executor

    def _pool(self, env: Any, slots: int | None = SLOTS, **options: Any) -> Pool:
        return self._make(env, slots, seed=ROOT, **options)

    @contextmanager
    def _game(
        self, form: str = "plain", env: Any = None, **options: Any
    ) -> Iterator[_Game]:
        """Every row of a pool, checked."""
        envs = env or [functools.partial(KnownAnswers, form)] * SLOTS
        with self._pool(envs, None, **options) as pool:
            game = _Game(pool, Referee(len(envs), ROOT, form), random.Random(ROOT))
            yield game
        mistakes = game.referee.mistakes
        assert not mistakes, f"{len(mistakes)} rows are wrong: {mistakes[0]}"

    def a_pool_opens_and_is_closed_twice(self) -> None:
        pool = self._pool(KnownAnswers)
        self._executor = pool._executor
        pool.reset()
        pool.close()
        pool.close()
        with _raises(ClosedError, "closed"):
            pool.reset()

    # Exactness ------------------------------------------------------------------------

    def batches_equal_a_plain_loop(self) -> None:
        for form in FORMS:
            with self._game(form) as game:
                for mode in ("same_step", "next_step"):
                    game.reset()
                    for _ in range(STEPS):
                        game.step(mode)

    def slots_in_any_order_and_mode_equal_it_too(self) -> None:
        with self._game("nested") as game:
            game.reset()
            for _ in range(3 * STEPS):
                if idle := game.referee.idle:
                    chosen = game.random.sample(idle, game.random.randint(1, len(idle)))
                    game.send(game.random.choice(MODES), chosen)
                game.recv(min_slots=game.random.randint(1, game.pool.waiting))

    def seeds_and_tasks_reach_their_episode(self) -> None:
        with self._game() as game:
            game.reset(seeds=[7 + slot for slot in range(SLOTS)])
            for task in range(STEPS):
                slot = game.random.randrange(SLOTS)
                game.referee.assigned(slot, task)
                game.pool.assign(slot, task)
                game.step("same_step")
            game.reset(root=ROOT + 1)
            game.step("same_step")

    def odd_spaces_arrive_whole(self) -> None:
        for name in ("nested", "text", "graph", "empty"):
            with self._pool(functools.partial(OddSpaces, name), 2) as pool:
                space = pool.spec.action_space
                space.seed(0)
                pool.reset()
                for _ in range(12):  # an env of this kind refuses what it did not want
                    pool.step([space.sample(), space.sample()])

    # Questions and mistakes -----------------------------------------------------------

    def questions_are_answered_by_the_slots_asked(self) -> None:
        with self._pool(KnownAnswers) as pool:
            pool.reset()
            pool.step(np.zeros(2, int), slots=[3, 1])
            lengths = pool.call("length", slots=[4, 3, 1])
            assert lengths == (0, 1, 1), f"call gave {lengths}, not (0, 1, 1)"
            pool.set_attr("mark", [10, 20], slots=[2, 0])
            marks = pool.get_attr("mark", slots=[0, 2])
            assert marks == (20, 10), f"get_attr gave {marks}, not (20, 10)"

    def calls_out_of_order_are_refused(self) -> None:
        with self._pool(KnownAnswers) as pool:
            with _raises(OrderError, "reset"):
                pool.step(np.zeros(SLOTS, int))
            with _raises(OrderError, "nothing sent"):
                pool.recv()
            pool.send_reset()
            with _raises(OrderError, "pending"):
                pool.send_reset([2])
            pool.recv()

    def an_env_that_raises_names_its_slot(self) -> None:
        faulty = [KnownAnswers] * (SLOTS - 1) + [functools.partial(Crashing, after=2)]
        with self._pool(faulty, None) as pool:
            pool.reset()
            zeros = np.zeros(SLOTS, int)
            pool.step(zeros)
            pool.step(zeros)
            with _raises(EnvError, f"slot {SLOTS - 1}.*OnPurpose"):
                pool.step(zeros)
            pool.reset(slots=[SLOTS - 1])
            step = pool.step(zeros[:-1], slots=range(SLOTS - 1))
            assert step.valid.all(), "slots that were fine are no longer"

    def an_env_that_cannot_be_built_leaves_nothing(self) -> None:
        broken = functools.partial(Crashing, at="construct")
        with _raises(StartError, "OnPurpose"):
            self._pool([KnownAnswers, broken], None)

    # Deaths and hangs -----------------------------------------------------------------

    def a_dead_worker_is_reported_or_replaced(self) -> None:
        env = functools.partial(Crashing, "kill")
        self._fails(WorkerDied, "SIGKILL", "SIGKILL", env)

    def a_hung_worker_is_reported_or_replaced(self) -> None:
        limits = {"step_timeout": 1.0, "close_timeout": 1.0}
        self._fails(WorkerHung, "step", "hung", Hanging, **limits)

    def _fails(
        self, kind: type[CorralError], text: str, what: str, env: Any, **options: Any
    ) -> None:
        if not self._executor.survives_deaths:
            raise Skip("it declares survives_deaths=False")
        make = functools.partial(env, after=3)
        with self._pool(make, 2, **options) as pool, _raises(kind, text):
            pool.reset()
            for _ in range(6):
                pool.step(np.zeros(2, int))
        envs = [KnownAnswers, functools.partial(env, after=20)]
        with self._game("plain", envs, on_fault="restart", **options) as game:
            game.reset()
            for _ in range(30):
                game.step("same_step")
            kinds = {fault.signal_name or fault.kind for fault in game.pool.faults}
            assert kinds == {what}, f"the faults are {kinds}, not {what}"

    def nothing_is_left_behind(self) -> None:
        try:
            from corral.tools.census import added, take_census
        except MissingExtra as missing:
            raise Skip(str(missing)) from None
        for number in range(4):
            if number == 1:  # the first pool warms things up
                before = take_census()
            with self._pool(KnownAnswers) as pool:
                pool.reset()
        lost = added(before, take_census())
        assert not any(lost.values()), f"left behind: {lost}"


@dataclass(frozen=True)
class _Game:
    """A pool of KnownAnswers that a referee watches."""

    pool: Pool
    referee: Referee
    random: random.Random

    def reset(self, root: int | None = None, **options: Any) -> None:
        self.referee.sent_reset(range(self.pool.num_envs), root, **options)
        self.pool.send_reset(seed=root, **options)
        self.recv()

    def send(self, mode: Autoreset, slots: list[int] | None = None) -> None:
        """Step idle slots; where the mode is off, those that are over are reset."""
        chosen = self.referee.idle if slots is None else slots
        over = self.referee.over if mode == "off" else []
        if ended := [slot for slot in chosen if slot in over]:
            self.referee.sent_reset(ended)
            self.pool.send_reset(ended)
        if chosen := [slot for slot in chosen if slot not in over]:
            actions = [self.random.randrange(ACTIONS) for _ in chosen]
            self.referee.sent(chosen, actions, mode)
            whole = chosen == list(range(self.pool.num_envs))
            self.pool.send(actions, None if whole else chosen, autoreset=mode)

    def step(self, mode: Autoreset, slots: list[int] | None = None) -> None:
        self.send(mode, slots)
        self.recv()

    def recv(self, **which: Any) -> None:
        step = self.pool.recv(**which)
        for fault in self.pool.faults:
            if fault.worker is not None:
                self.referee.shaken(self.pool.shards[fault.worker])
        self.referee.check(step)


@contextmanager
def _raises(kind: type[BaseException], pattern: str) -> Iterator[None]:
    """What is done inside has to raise this, with such a text."""
    try:
        yield
    except kind as error:
        text = str(error)
        assert re.search(pattern, text, re.S), f"it says {text!r}, not {pattern!r}"
        return
    raise AssertionError(f"{kind.__name__} was not raised")
