"""What a step of an env costs, and whether several may share a process.

    first             built, recorded alone, timed, closed
    second, third     built together, and run by turns: see `isolation_probe`

    envs that wait    second and third at once, in a thread each; so are envs that
                      declare "corral.threads", also where sharing is not in question

The wall time of a step says how long a loop takes, its CPU time how many workers a core
can serve, and the two threads how long a step holds the GIL.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from corral.engine.adapters.isolation import isolation_of
from corral.engine.faults.process_usage import own_time
from corral.engine.transport.child_processes import listed_children
from corral.engine.worker import shared_state
from corral.engine.worker.commands import Job, ProbeRequest
from corral.engine.worker.context import here
from corral.engine.worker.forked_copies import counted_forks
from corral.engine.worker.isolation_probe import (
    Difference,
    GuestFailed,
    OutOfTime,
    ProbedEnv,
    RandomStreams,
    Recording,
    Response,
    SharingAnswer,
    StepTimes,
    differences,
    guest_name,
    lives_of,
    record,
    rounds,
    take_turn,
    timed_imports,
    unequal,
)
from corral.engine.worker.serialization import dumps, opened
from corral.engine.worker.shared_state import Snapshot
from corral.engine.worker.worker import Worker

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

TIMING_ROUNDS = 3
# Of one env that has the worker to itself; enough, where a step takes microseconds.
MAX_TIMED_STEPS = 1000
# How many times as long as the second env's steps the first one's may be.
MAX_COLD_RATIO = 2.0
# Envs that compute for less of a step than this leave their core to others.
WAITING_CPU_SHARE = 0.5
# Seconds of a step from which on that is made use of, where it is not declared.
MIN_WAITING_STEP_SECONDS = 1e-3
# How many times as long as usual an episode may take for the doctor.
THOROUGH_PATIENCE = 10.0
# Seconds after which another thread may have the GIL: races show sooner.
RACE_SWITCH_SECONDS = 1e-5
FAILED_ONCE_REASON = "an env failed once beside another"
UNREAD_REASON = "what all envs of a process share cannot be compared"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Envs did something else together than alone; another process has to say why.

    Attributes:
        reason: What to say if an env repeats itself when it is alone.
        in_infos_alone: Whether all that a learner sees was equal.
        packed: The recordings and the differences; the parent may not know their types.
    """

    reason: str
    in_infos_alone: bool
    packed: bytes


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a probe found out.

    Attributes:
        step_time: Seconds per step, the resets of ended episodes included; 0 if none
            was taken.
        computing: The fraction of it that needs a core; the rest is waiting.
        threads: Whether the env declares, or was seen, to release the GIL while it
            waits.
        thread_gain: How many times as much two threads do as one; measured where that
            is so.
        declared: Whether the env declares it.
        sharing: Whether such envs may share a process; None if that was not asked.
        doubt: What another process has to repeat before that is known.
        kept: Whether the worker still has its first env, as new, and builds slot 0 with
            it.
        forks: Whether an env forked its process.
        left: Whether closed envs have left processes behind, which end with the worker.
    """

    step_time: float
    computing: float = 1.0
    threads: bool = False
    thread_gain: float = 1.0
    declared: bool = True
    sharing: SharingAnswer | None = None
    doubt: Doubt | None = None
    kept: bool = False
    forks: bool = False
    left: bool = False

    @classmethod
    def of(cls, *times: StepTimes) -> Measurement:
        """The mean of all these steps."""
        steps, stepping, computing = (
            sum(getattr(one, name) for one in times)
            for name in ("steps", "stepping", "computing")
        )
        if not steps:
            return cls(0.0)
        return cls(stepping / steps, min(1.0, computing / max(1e-9, stepping)))


class SameEnvTwice(Exception):
    """A factory has returned an env that it had returned before."""


@dataclass
class Probe:
    """One look at the envs of a worker that has not built its own yet.

    Args:
        worker: with its resources, and no envs.
        job: its factories are those of the envs to be tried, two or more.
        question: what to find out.
        reached: called when the first env is "built", and was run "alone".

    Attributes:
        kept: The first env as its factory made it, if it was neither reset nor stepped.
    """

    worker: Worker
    job: Job
    question: ProbeRequest
    reached: Callable[[str], Any] = lambda stage: None
    kept: Any = None
    # How many envs were built, without the one that is kept.
    _extra: int = 0
    _trials: list[ProbedEnv] = field(default_factory=list)
    _sources: dict[str, str] = field(default_factory=dict)
    _gain: float = 1.0
    _before: Snapshot | None = None
    _after: Snapshot | None = None

    def __post_init__(self) -> None:
        self.worker.context.slots = self.job.slots
        self._factories: list[Any] = opened(self.job.factories)
        made_by = [id(factory) for factory in self._factories]
        # By env, the first with the same factory: what they do has to be the same.
        self._slots = [made_by.index(one) for one in made_by]

    def run(self) -> Measurement:
        """Find out; every env that is not kept is closed."""
        self._streams = RandomStreams(self.worker.context)
        forked = counted_forks()
        # Errors of broken envs that are garbage-collected are of no interest.
        sys.unraisablehook = lambda unraisable: None
        try:
            measured = self._run()
        finally:
            self._clear()
            self._streams.restore()
        sharing, forks = measured.sharing, bool(forked)
        kept = self.kept is not None
        if sharing is None or (sharing.safe and measured.doubt is None) or kept:
            sys.unraisablehook = sys.__unraisablehook__  # it continues as a worker
        if sharing is None:
            return replace(measured, forks=forks)
        sharing = replace(
            sharing,
            extra=self._extra,
            forks=forks,
            sources=self._sources,
            step_time=measured.step_time,
            computing=measured.computing,
            thread_gain=measured.thread_gain,
        )
        left = not kept and bool(listed_children("self"))
        return replace(measured, sharing=sharing, forks=forks, kept=kept, left=left)

    def _run(self) -> Measurement:
        first, asked = self._new(0), self.question
        with timed_imports() as imports:
            began = own_time()
            first.build()
            building = own_time() - began - sum(imports)
        self.reached("built")
        if asked.thorough:
            return self._compare_sharing(first)
        minds = asked.judges or self.job.options.checks_sharing
        known = _known_sharing(first, self.job) if minds else None
        threads = first.declares_threads
        if known is None and threads and asked.judges:
            text = 'metadata["corral.threads"] is True'
            known = SharingAnswer(True, text, seen=False)
        times_threads = threads and asked.seconds
        if (times_threads or not asked.judges) and (known is None or known.safe):
            sharing = known if asked.judges else None
            return replace(self._in_turn(first), sharing=sharing)
        if known is None and building > asked.long_to_build:
            text = f"an env takes {building:.1f} s to build, too long to build others"
            known = SharingAnswer(None, text)
        if known is None:
            return self._compare_sharing(first)
        if asked.seconds:
            return replace(Measurement.of(self._timed(first)), sharing=known)
        if not self.job.options.isolate_rng:  # else it has drawn from its own streams
            self._trials.remove(first)
            self.kept = first.made
            self._extra -= 1
        return Measurement(0.0, sharing=known)

    # Trials ---------------------------------------------------------------------------

    def _new(self, guest: int) -> ProbedEnv:
        made_by, guard = self._factories[guest], self.worker.shard.guard
        self._trials.append(ProbedEnv(self.job, self._slots[guest], made_by, guard))
        self._extra += 1
        return self._trials[-1]

    def _by_factory(self, work: Callable[[int], T]) -> list[T]:
        """The results for all envs; those of one factory do the same."""
        found = {slot: work(slot) for slot in dict.fromkeys(self._slots)}
        return [found[slot] for slot in self._slots]

    def _clear(self) -> None:
        while self._trials:
            self._trials.pop(0).close()

    # Timing ---------------------------------------------------------------------------

    def _timed(self, probed_env: ProbedEnv) -> StepTimes:
        until = time.perf_counter() + self.question.seconds / 2
        return probed_env.run(until, MAX_TIMED_STEPS)

    def _in_turn(self, first: ProbedEnv) -> Measurement:
        """Time one env, then another, or both at once."""
        times, declared = self._timed(first), first.declares_threads
        measured = Measurement.of(times)
        if not (declared or self._may_use_threads(first, measured)):
            return self._with_another(times, self._new(1).build())
        found = self._at_once([] if declared else self._alone(first))
        threads = self._declared if declared else not found
        return replace(
            measured, threads=threads, thread_gain=self._gain, declared=declared
        )

    def _with_another(self, times: StepTimes, second: ProbedEnv) -> Measurement:
        measured, others = Measurement.of(times), self._timed(second)
        # The first step in a process may compile or load; the other env found it done.
        cold = measured.step_time > MAX_COLD_RATIO * Measurement.of(others).step_time
        return Measurement.of(others) if cold else Measurement.of(times, others)

    # Sharing --------------------------------------------------------------------------

    def _compare_sharing(self, first: ProbedEnv) -> Measurement:
        """Run alone, then together; errors of an env become part of the answer."""
        measured, self._began = Measurement(0.0), (time.perf_counter(), own_time())
        try:
            states, times = self._streams.states(), None
            recordings = self._alone(first)
            self._sources = shared_state.sources(
                [one.env for one in self._trials], self._factories
            )
            drawn = self._streams.drawn_since(states)
            measured = Measurement.of(first.times)
            at_once = self.question.threads or self._may_use_threads(first, measured)
            if self.question.seconds and not at_once:
                times = self._timed(first)
                measured = Measurement.of(times)
                self._began = time.perf_counter(), own_time()
            if drawn:
                return replace(measured, sharing=_draws(drawn, "in reset or step"))
            self.reached("alone")
            sharing, doubt = self._tried(recordings, at_once)
            if at_once:
                measured = replace(
                    measured,
                    threads=doubt is None,
                    thread_gain=self._gain,
                    declared=False,
                )
            elif times is not None and sharing.safe and doubt is None:
                measured = self._with_another(times, self._trials[-1])
            return replace(measured, sharing=sharing, doubt=doubt)
        except OutOfTime:
            text = f"it cannot be found out in {self.question.limit:g} s"
        except BaseException as error:  # SystemExit too
            text = f"an env failed in a trial run ({_error_text(error)})"
        return replace(measured, sharing=SharingAnswer(None, text), doubt=None)

    def _alone(self, first: ProbedEnv) -> list[Recording]:
        """Record what each env does by itself."""
        patience = THOROUGH_PATIENCE if self.question.thorough else 1.0

        def alone(guest: int) -> Recording:
            probed_env = self._new(guest).build() if guest else first
            return record(probed_env, self.question.seeded, patience)

        return self._by_factory(alone)

    def _may_use_threads(self, first: ProbedEnv, measured: Measurement) -> bool:
        """Whether it may pay to have a thread for each, since they wait."""
        long = measured.step_time >= MIN_WAITING_STEP_SECONDS
        waits = long and measured.computing < WAITING_CPU_SHARE
        # With generators of their own, threads take turns.
        alone = self.job.options.isolate_rng or first.refuses_threads
        return bool(self.question.seconds) and waits and not alone

    def _tried(
        self, recordings: list[Recording], at_once: bool
    ) -> tuple[SharingAnswer, Doubt | None]:
        self._before = self._snapshot()
        self._clear()
        self._check_time()
        try:
            found = (self._at_once if at_once else self._together)(recordings)
        except SameEnvTwice:
            return SharingAnswer(None, "the factory returns the same env again"), None
        except Exception as error:
            return self._tried_again(recordings, error)
        assert self._after is not None
        changed = shared_state.first_change(self._before, self._after)
        seen = next((one.text for one in found if not one.in_infos_alone), "")
        if changed:
            text = f"an env changes state that all envs of a process share: {changed}"
            return SharingAnswer(False, text, difference=seen), None
        if self._drawn:
            return _draws(self._drawn, "in its constructor"), None
        text = "two of them in one process did the same as alone"
        unread = self._before.unread or self._after.unread
        if unread:
            text = f"{UNREAD_REASON}: {unread}"
        doubt = None
        if found:
            differs = "an env behaves differently when another env runs in its process"
            mild = all(one.in_infos_alone for one in found)
            doubt = Doubt(differs, mild, dumps((recordings, found)))
        return SharingAnswer(None if unread else True, text, difference=seen), doubt

    def _check_time(self) -> None:
        """Raises OutOfTime when the limit has passed, for this thread alone."""
        limit, (began, own) = self.question.limit, self._began
        # What others took can only shorten it: mostly there is no need to ask.
        if time.perf_counter() - began > limit and own_time() - own > limit:
            raise OutOfTime

    def _together(self, recordings: list[Recording]) -> list[Difference]:
        """Run the recordings by turns, until what a learner sees differs."""
        self._streams.restore()
        self._drawn: list[str] = []
        self._after = None
        found: list[Difference] = []
        guests: list[ProbedEnv] = []
        count = len(recordings)
        try:
            lives = lives_of(recordings, self.question.thorough)
            for place, (event, turn) in rounds(lives):
                if event == "build":
                    guests.append(self._beside(place % count, guests))
                elif event == "close":
                    self._after = self._snapshot(self._before)
                    guests[0].close()
                else:
                    self._check_time()
                    try:
                        found += differences(guests[place], place, recordings, turn)
                    except Exception as error:
                        (call, _), _ = recordings[place % count][turn]
                        what = f"{guest_name(place, count)} fails in {call}()"
                        raise GuestFailed(what) from error
                    if found and not found[-1].in_infos_alone:
                        break
            return found
        finally:
            self._after = self._after or self._snapshot(self._before)

    def _beside(self, guest: int, others: list[ProbedEnv]) -> ProbedEnv:
        """Build an env in the process of others."""
        before = self._streams.states()
        probed_env = self._new(guest).build()
        if any(probed_env.made is other.made for other in others):
            raise SameEnvTwice
        self._drawn += self._streams.drawn_since(before)
        return probed_env

    def _at_once(self, recordings: list[Recording]) -> list[Difference]:
        """Run each recording in its own thread, the second a turn behind the first."""
        # Here, since it takes 5 ms and most workers never need it.
        from concurrent.futures import ThreadPoolExecutor

        self._streams.restore()
        self._clear()
        begun = threading.Event()

        def life(guest: int) -> list[Difference]:
            if guest:
                begun.wait(self.question.limit)
            found: list[Difference] = []
            for turn in range(len(recordings[guest])):
                found += differences(pairs[guest][1], guest, recordings, turn)
                begun.set()
            return found

        # Threads that belong to the worker: `this_worker` answers in them too.
        enter = setattr, (here, "context", self.worker.context)
        pairs = [
            (ThreadPoolExecutor(1, "corral-probe", *enter), self._new(guest))
            for guest in range(len(self._factories))
        ]
        try:
            before = self._streams.states()
            built = [thread.submit(env.build).result() for thread, env in pairs]
            self._declared = all(env.declares_threads for env in built)
            self._drawn = self._streams.drawn_since(before)
            usual = sys.getswitchinterval()
            sys.setswitchinterval(RACE_SWITCH_SECONDS)
            try:
                guests = range(len(recordings))
                lives = [pairs[guest][0].submit(life, guest) for guest in guests]
                found = [difference for one in lives for difference in one.result()]
            finally:
                sys.setswitchinterval(usual)
            if self._before is not None:
                self._after = self._snapshot(self._before)
            self._gain = self._gain_of(pairs)
            return found
        finally:
            for thread, env in pairs:
                thread.submit(env.close).result()  # in the thread that built it
                thread.shutdown()

    def _gain_of(self, pairs: list[tuple[ThreadPoolExecutor, ProbedEnv]]) -> float:
        """How much more all do at once than each alone; in rounds: machines vary."""
        turn = self.question.seconds / (3 * TIMING_ROUNDS)
        ending = time.perf_counter() + 0.75 * self.question.seconds
        gains: list[float] = []
        # Steps that are longer than a turn get one round.
        while not gains or (
            len(gains) < TIMING_ROUNDS and time.perf_counter() < ending
        ):
            alone = [
                thread.submit(env.run, time.perf_counter() + turn).result()
                for thread, env in pairs
            ]
            until = time.perf_counter() + turn
            pending = [thread.submit(env.run, until) for thread, env in pairs]
            paces = zip((one.result().pace for one in pending), alone, strict=True)
            gains.append(sum(pace / one.pace for pace, one in paces))
        # The lowest: a round that was disturbed must not recommend threads.
        return min(gains)

    def _tried_again(
        self, recordings: list[Recording], failure: Exception
    ) -> tuple[SharingAnswer, Doubt | None]:
        """One failed beside another: once more, since it may also do so by chance."""
        self._clear()
        try:
            self._together(recordings)
        except Exception as error:
            failed = isinstance(error, GuestFailed)
            what = error if failed else "the second env cannot be built"
            text = f"side by side in one process {what}: {_error_text(error)}"
            return SharingAnswer(None, text), Doubt(
                text, False, dumps((recordings, []))
            )
        text = f"{FAILED_ONCE_REASON}, and then not ({_error_text(failure)})"
        return SharingAnswer(None, text), None

    def _snapshot(self, before: Snapshot | None = None) -> Snapshot:
        envs = [one.env for one in self._trials if one.envs.adapters]
        return shared_state.snapshot(envs, self._factories, before)

    # Once more ------------------------------------------------------------------------

    def repeats(self, packed: bytes) -> bool:
        """Whether envs that are alone in this process repeat what was recorded.

        Only the first of them is really alone; the others come after it.
        """
        recordings, found = pickle.loads(packed)

        def again(guest: int) -> list[Response]:
            try:
                probed_env = self._new(guest).build()
                return [take_turn(probed_env, turn)[1] for turn, _ in recordings[guest]]
            finally:
                self._clear()

        try:
            now = self._by_factory(again)
        except Exception:
            return False

        def is_repeated(one: Difference) -> bool:
            """Whether it did as alone at one of the places where it did not beside."""
            alone = recordings[one.guest][one.turn][1], now[one.guest][one.turn]
            random = tuple(other.place for other in unequal(*alone))
            return not all(place.startswith(random) for place in one.places)

        # Without a difference, one failed beside the other, and did not now.
        return not found or any(map(is_repeated, found))


def _known_sharing(first: ProbedEnv, job: Job) -> SharingAnswer | None:
    """What the env declares, or what was saved about it."""
    verdict = isolation_of(first.env)
    if verdict is None:
        return None
    shared, reason = verdict.isolation == "shared", verdict.reason
    if shared and verdict.isolate_rng and not job.options.isolate_rng:
        shared = False
        reason = (
            "it draws from global generators, which all envs of a process share; with "
            f"isolate_rng=True it may share a process ({reason})"
        )
    return SharingAnswer(shared, reason, seen=False)


def _draws(names: list[str], where: str) -> SharingAnswer:
    used = ", ".join(dict.fromkeys(names))
    text = (
        f"an env draws from or seeds {used} ({where}), which all envs of a process "
        "share; isolate_rng=True gives each slot its own"
    )
    return SharingAnswer(False, text)


def _error_text(error: BaseException) -> str:
    if isinstance(error, GuestFailed) and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error!s:.120}"
