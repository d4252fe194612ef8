"""Whether envs may share a process: what they do together, compared with alone.

    alone      first ─ ─ ─ ─ ─ ─ ─ ─        recorded: resets, steps, episode ends
    together   first ─ ─ ─ ─ ─ ─ ─ ─        built again, stepped by turns, the second
               second    ─ ─ ─ ─ ─ ─ ─ ─    some turns behind the first, and still at
                                            it when the first is closed
               later               ─ ─ ─    (the doctor) and another one is built

Each env gets the seeds and actions of its recording and has to return the same:
observation, reward, flags and infos. A recording has two episode ends. Where none comes
soon, the probe shortens the env's TimeLimit, or resets the env early.

Pools ask before they place their slots, and so does `corral doctor`. In the replay of a
fault the envs repeat their saved actions by the same `rounds`, until one fails.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, zip_longest
from typing import Any, TypeVar

import numpy as np

from corral.engine.faults.process_usage import own_time
from corral.engine.worker.commands import Job
from corral.engine.worker.compared_values import Apart, differing, kept
from corral.engine.worker.context import WorkerContext
from corral.engine.worker.episode_plan import sampled_task
from corral.engine.worker.forked_copies import Guard, guarded, no_guard
from corral.engine.worker.shard_envs import ShardEnvs
from corral.engine.worker.shared_state import advanced_generators, generator_states

T = TypeVar("T")

# The key of an env's metadata that declares that its steps release the GIL.
THREADS_KEY = "corral.threads"
SAMPLED_ACTIONS = 64
# Episode ends in a recording; the next episode is begun as well.
RECORDED_ENDS = 2
# Of an episode that is waited for to end by itself.
MAX_RECORDED_STEPS = 200
# Steps of an episode that has to be ended.
CUT_EPISODE_STEPS = 8
# Seconds for each episode of a recording; every episode has one step at least.
RECORDING_SECONDS = (0.06, 0.03, 0.02)
# Turns that one env is behind the other.
TURN_LAG = 5
# Turns that the others take between a close and the next constructor.
LATER_ROUNDS = 2
# Entries that tell the time by their nature: Gymnasium's, Stable-Baselines3's.
TIME_ENTRIES = ("info['episode']['t']",)


@dataclass(frozen=True, slots=True)
class SharingAnswer:
    """Whether envs of a kind may share a process.

    Attributes:
        safe: None: not known.
        extra: How many envs were built to find out.
        seen: Whether a trial found it; else the env declares it, or a saved verdict.
        step_time: Seconds per step, if any was taken.
        computing: The fraction of it that needs a core.
        thread_gain: How many times as much two threads do as one, if that was measured.
        forks: Whether an env forked this process: copies of the caller would continue.
        sources: Path -> digest of the source text that the answer is true for.
        difference: Which env did something else than alone, if one did.
    """

    safe: bool | None
    reason: str
    extra: int = 0
    seen: bool = True
    step_time: float = 0.0
    computing: float = 1.0
    thread_gain: float = 1.0
    forks: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    difference: str = ""


# A method of a `ProbedEnv` and its argument: "reset", "step" or "cut".
Turn = tuple[str, Any]
# What an env does in the rounds of a trial: "build", "close" or "turn", and which turn.
Life = list[tuple[str, int] | None]
# What is kept of its result, by the names of its parts: obs, reward, ...
Response = dict[str, Any]
# The turns of one env, and what it returned.
Recording = list[tuple[Turn, Response]]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an env did something else than in its recording.

    Attributes:
        text: Which env, which of its resets and steps, and both values.
    """

    guest: int
    turn: int
    places: tuple[str, ...]
    text: str = ""

    @property
    def in_infos_alone(self) -> bool:
        """Whether what the learner sees was equal."""
        return all(place.startswith("info") for place in self.places)


class OutOfTime(BaseException):
    """The time for an answer has passed; it passes by handlers of an env's errors."""


class GuestFailed(Exception):
    """An env failed beside another: which one, and in what; its error is the cause."""


# One env ------------------------------------------------------------------------------


@dataclass(slots=True)
class StepTimes:
    """What the steps of an env took.

    Attributes:
        stepping: Seconds, without those in which other programs had the cores.
        computing: CPU time, of all threads: libraries have their own.
        pace: Steps per second of a run, with what comes between them.
    """

    steps: int = 0
    stepping: float = 0.0
    computing: float = 0.0
    pace: float = 0.0


class ProbedEnv:
    """One env.

    Args:
        job: of its worker.
        slot: whose seeds and tasks it gets.
        factory: makes it.
        guard: ends a forked copy of this worker; see `forked_copies`.
    """

    actions: Iterator[Any]

    def __init__(
        self, job: Job, slot: int, factory: Callable[[], Any], guard: Guard = no_guard
    ) -> None:
        self.slot = slot
        self.times = StepTimes()
        self._options = replace(job.options, checks_sharing=False)
        slots = range(slot, slot + 1)
        alone = replace(job, slots=slots, options=self._options, owns_process=False)
        self.envs = ShardEnvs(alone, guard)
        self._guard = guard
        self._factory = factory
        self._episode = 0

    def build(self) -> ProbedEnv:
        (spec,) = self.envs.build([self._make])
        self._adapter: Any = self.envs.adapters[0]
        self.env = self._adapter.env
        # A copy: the env's own space, which others may share, stays as it is. Drawn
        # beforehand: with two threads each draw would be in the other's way.
        space = copy.deepcopy(spec.action_space)
        space.seed(0)
        self.actions = cycle([space.sample() for _ in range(SAMPLED_ACTIONS)])
        self.refuses_threads = spec.metadata.get(THREADS_KEY) is False
        # Whether it declares that its steps release the GIL.
        self.declares_threads = bool(spec.metadata.get(THREADS_KEY))
        return self

    def _make(self) -> Any:
        self.made = self._factory()
        return self.made

    def reset(self, seed: int | None, timed: bool = False) -> Any:
        """Begin an episode; what the env draws is its own, where that was asked for."""
        task = sampled_task(self._options, self.slot, self._episode)
        self._episode += 1
        return self._call(self._adapter.reset, seed, None, task, timed=timed)

    def step(self, action: Any) -> Any:
        """One step, likewise."""
        if hasattr(self._adapter, "permitted"):
            action = self._adapter.permitted(action)
        self.times.steps += 1
        return self._call(self._adapter.step, action, timed=True)

    def _call(self, method: Callable[..., Any], *arguments: Any, timed: bool) -> Any:
        worked, began = time.process_time(), time.perf_counter()
        with guarded(self._guard), self.envs.randomness_of(self.slot):
            result = method(*arguments)
        if timed:
            self.times.stepping += time.perf_counter() - began
            self.times.computing += time.process_time() - worked
        return result

    def cut(self, _: None = None) -> bool:
        """Have the env's TimeLimit end the episode with the next step."""
        layer = self.env
        while layer is not None:
            inside = getattr(layer, "__dict__", {})
            passed = inside.get("_elapsed_steps")
            if isinstance(passed, int) and "_max_episode_steps" in inside:
                layer._max_episode_steps = passed + 1
                return True
            layer = inside.get("env")
        return False

    def run(self, until: float, most_steps: int | None = None) -> StepTimes:
        """Step until then, once at least; from a reset on, if it had none."""
        if not self._episode:
            self.reset(0)
        self.times, own = StepTimes(), own_time()
        with self.undisturbed():
            for action in self.actions:
                _, _, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    self.reset(None, timed=True)
                if time.perf_counter() >= until or self.times.steps == most_steps:
                    break
        # Not of the time in steps: a thread can wait for the GIL between them.
        self.times.pace = self.times.steps / max(1e-9, own_time() - own)
        return self.times

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Leave out of `times` what other programs take from this thread meanwhile."""
        before, began, own = self.times.stepping, time.perf_counter(), own_time()
        yield
        share = (own_time() - own) / (time.perf_counter() - began)
        self.times.stepping = before + (self.times.stepping - before) * max(0.01, share)

    def close(self) -> None:
        """Close it; errors are ignored, since another env may have broken it."""
        while self.envs.adapters:
            with suppress(Exception):
                self._call(self.envs.adapters.pop().close, timed=False)


class RandomStreams:
    """Every stream of random numbers that belongs to a worker, as it is now."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._own = context.rng.bit_generator.state

    def restore(self) -> None:
        """Undo all draws since this object was made."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        self._context.rng.bit_generator.state = self._own

    def states(self) -> dict[str, Any]:
        """Where they are by now, by name."""
        return generator_states() | {
            "this_worker().rng": repr(self._context.rng.bit_generator.state)
        }

    def drawn_since(self, before: dict[str, Any]) -> list[str]:
        """The streams that have moved."""
        return advanced_generators(before, self.states())


@contextmanager
def timed_imports() -> Iterator[list[float]]:
    """Yields the seconds of all imports inside, which the next env is spared."""
    seconds: list[float] = []
    is_importing = False

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal is_importing
            if is_importing:
                return function(*arguments, **named)
            is_importing = True  # before the clock is read: that may import too
            began = own_time()
            try:
                return function(*arguments, **named)
            finally:
                seconds.append(own_time() - began)
                is_importing = False

        return call

    before = builtins.__import__, importlib.import_module
    builtins.__import__ = timed(builtins.__import__)
    importlib.import_module = timed(importlib.import_module)
    try:
        yield seconds
    finally:
        builtins.__import__, importlib.import_module = before


# Alone --------------------------------------------------------------------------------


def record(guest: ProbedEnv, seeded: bool = False, patience: float = 1.0) -> Recording:
    """Run one env across the ends of two episodes, and a little further.

    Args:
        guest: the env.
        seeded: whether every episode gets a seed, or the first one alone.
        patience: how many times as long as usual an episode may take to end.
    """
    found: Recording = []
    early = False
    seeds = range(RECORDED_ENDS + 1) if seeded else [0, *[None] * RECORDED_ENDS]
    with guest.undisturbed():
        for episode, seed in enumerate(seeds):
            _recorded(guest, found, ("reset", seed))
            last = episode == RECORDED_ENDS
            most = CUT_EPISODE_STEPS if last or early else MAX_RECORDED_STEPS
            seconds = patience * RECORDING_SECONDS[episode]
            if not (_ends(guest, found, most, seconds) or last):
                cut = _recorded(guest, found, ("cut", None))
                early |= not (cut and _is_last_step(guest, found))
    return found


def _ends(guest: ProbedEnv, found: Recording, most: int, seconds: float) -> bool:
    """Step until it ends by itself; False if it takes too many steps or too long."""
    until = time.perf_counter() + seconds
    for _ in range(most):
        if _is_last_step(guest, found):
            return True
        if time.perf_counter() > until:
            break
    return False


def _is_last_step(guest: ProbedEnv, found: Recording) -> bool:
    outcome = _recorded(guest, found, ("step", next(guest.actions)))
    return any(map(bool, outcome[2:4]))


def _recorded(guest: ProbedEnv, found: Recording, turn: Turn) -> Any:
    """Have the env take a turn, and record it."""
    outcome, response = take_turn(guest, turn)
    found.append((turn, response))
    return outcome


# Together -----------------------------------------------------------------------------


def rounds(lives: Iterable[Iterable[T | None]]) -> Iterator[tuple[int, T]]:
    """The place of an env and what it does, round by round; None: it waits."""
    for done in zip_longest(*lives):
        for place, one in enumerate(done):
            if one is not None:
                yield place, one


def lives_of(recordings: Sequence[Recording], later: bool) -> list[Life]:
    """What envs do in a trial; `later`: the first is built again once it was closed."""
    lives: list[Life] = []
    for place, recording in enumerate(recordings):
        turns = [("turn", turn) for turn in range(len(recording))]
        lives.append([("build", 0), *[None] * TURN_LAG * place, *turns])
    # Before the last turns of the env that began last.
    closing = max(map(len, recordings)) + TURN_LAG * (len(recordings) - 2) + 1
    again = lives[0][:]
    lives[0] += [*[None] * (closing - len(again)), ("close", 0)]
    if later:
        lives.append([*[None] * (closing + LATER_ROUNDS - 1), *again])
    return lives


def guest_name(place: int, count: int) -> str:
    """What messages call one of these envs."""
    if place == count:
        return "an env built later"
    names = ("the first env", "the second env")
    return names[place] if place < len(names) else f"env {place + 1}"


def differences(
    guest: ProbedEnv, place: int, recordings: list[Recording], turn: int
) -> list[Difference]:
    """Have an env take a turn again; where it did something else, if it did."""
    number, name = place % len(recordings), guest_name(place, len(recordings))
    recording = recordings[number]
    command, then = recording[turn]
    apart = unequal(take_turn(guest, command)[1], then)
    if not apart:
        return []
    kind, (where, what, together, alone) = command[0], apart[0]
    count = sum(one[0] == kind for one, _ in recording[:turn]) + (kind == "step")
    how = f"{what} {together} together and {alone} alone" if together else what
    places = tuple(one.place for one in apart)
    return [Difference(number, turn, places, f"{name}, {kind} {count}: {where} {how}")]


def unequal(now: Response, then: Response) -> list[Apart]:
    """Where an env returned something else than then, but for the time."""
    return [
        one
        for name in then
        for one in differing(name, now[name], then[name])
        if not one.place.startswith(TIME_ENTRIES)
    ]


RESULT_PARTS = {
    "reset": ("obs", "info"),
    "step": ("obs", "reward", "terminated", "truncated", "info"),
    "cut": (),
}


def take_turn(guest: ProbedEnv, turn: Turn) -> tuple[Any, Response]:
    """Have an env take a turn; returns its result, and what is kept of it."""
    outcome = getattr(guest, turn[0])(turn[1])
    parts = RESULT_PARTS[turn[0]]
    results = zip(parts, outcome if parts else (), strict=True)
    return outcome, {name: kept(value) for name, value in results}
