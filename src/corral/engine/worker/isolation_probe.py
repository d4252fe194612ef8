"""Whether envs may share a process: what they do together, held against alone.

    alone      first ─ ─ ─ ─ ─ ─ ─ ─        recorded: resets, steps, episode ends
    together   first ─ ─ ─ ─ ─ ─ ─ ─        built again, stepped by turns, the second
               second    ─ ─ ─ ─ ─ ─ ─ ─    some turns behind the first, and still at
                                            it when the first is closed

Each of them gets the seeds and actions of its recording, and has to return the same:
observation, reward, flags and infos. A recording has two episode ends. Where none comes
in little time, a TimeLimit is told to end the episode, or the env is reset early.

What is done here never raises for an env's sake: it comes to a `SharingAnswer`.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from corral.engine.faults.run_delay import own_time

RECORDED_ENDS = 2
"""Episode ends in a recording; the next episode is begun as well."""
MAX_RECORDED_STEPS = 200
"""Of an episode that is waited for to end by itself."""
CUT_EPISODE_STEPS = 8
"""Steps of an episode that has to be ended."""
RECORDING_SECONDS = (0.06, 0.03, 0.02)
"""Seconds for the episodes of a recording; one step each takes what it takes."""
TURN_LAG = 5
"""Turns that one env is behind the other."""
TIME_ENTRIES = ("info['episode']['t']",)
"""Entries that tell the time by their nature: Gymnasium's, Stable-Baselines3's."""


@dataclass(frozen=True, slots=True)
class SharingAnswer:
    """Whether envs of a kind may share a process."""

    safe: bool | None
    """None: not known."""
    reason: str
    extra: int = 0
    """How many envs were built to find out."""
    seen: bool = True
    """Whether it was found by trying; else the env or a saved verdict says so."""
    step_time: float = 0.0
    """Seconds per step, if any was taken."""
    computing: float = 1.0
    """The fraction of it that needs a core."""
    forks: bool = False
    """Whether an env forked this process: in the caller, copies of it would go on."""
    sources: dict[str, str] = field(default_factory=dict)
    """Path -> digest, of the text that it is true for."""


class RecordedEnv(Protocol):
    """One env that is tried; see `worker.probe`."""

    actions: Iterator[Any]

    def reset(self, seed: int | None) -> Any: ...

    def step(self, action: Any) -> Any: ...

    def cut(self) -> bool:
        """Have the next step be an episode's last; whether that can be done."""


TurnCommand = tuple[str, Any]
"""What an env is told: ("reset", seed), ("step", action) or ("cut", None)."""
Response = dict[str, Any]
"""What it returned: place -> value, short."""


@dataclass(slots=True)
class Recording:
    """What one env was told and what it returned."""

    turns: list[TurnCommand] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    steps: int = 0
    stepping: float = 0.0
    """Seconds of all its steps."""
    computing: float = 0.0
    """CPU time of them."""
    seconds: float = 0.0
    """Of all of it."""
    early: bool = False
    """Whether it had to be reset before an episode was over."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an env did something else than in its recording."""

    guest: int
    turn: int
    places: tuple[str, ...]

    @property
    def in_infos_alone(self) -> bool:
        """Whether what the learner sees was equal."""
        return all(place.startswith("info") for place in self.places)


@dataclass(frozen=True, slots=True)
class UnexplainedDifference:
    """Something else was done together than alone; why is not known yet."""

    trouble: str
    """What to say if the env repeats itself when it is alone."""
    recordings: list[Recording]
    differences: list[Difference]

    @property
    def in_infos_alone(self) -> bool:
        """Whether all that the learner sees was equal."""
        return bool(self.differences) and all(
            one.in_infos_alone for one in self.differences
        )

    def is_real(self, again: Sequence[Sequence[Response]]) -> bool:
        """Whether the envs do the same twice, when each is alone in a process."""
        if not self.differences:  # one failed beside the other, and did not now
            return True
        return any(
            repeats(self.recordings[one.guest].responses, again[one.guest], one)
            for one in self.differences
        )


class OutOfTime(Exception):
    """Nothing can be told in the time there is."""


class Stopwatch:
    """Seconds of this thread, without those in which others had the cores."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._began, self._own = time.perf_counter(), own_time()

    @property
    def passed(self) -> float:
        """Since it was made."""
        return own_time() - self._own

    def check(self) -> None:
        """Raises OutOfTime when the limit has passed."""
        # What others took can only shorten it: mostly there is no need to ask.
        late = time.perf_counter() - self._began > self._limit
        if late and self.passed > self._limit:
            raise OutOfTime


# Alone --------------------------------------------------------------------------------


def record(guest: RecordedEnv, seeded: bool = False) -> Recording:
    """Run one env across the ends of two episodes, and a little further.

    Args:
        guest: the env.
        seeded: whether every episode gets a seed, or the first one alone.
    """
    found, began, own = Recording(), time.perf_counter(), own_time()
    seeds = range(RECORDED_ENDS + 1) if seeded else [0, *[None] * RECORDED_ENDS]
    for episode, seed in enumerate(seeds):
        turn = ("reset", seed)
        found.turns.append(turn)
        found.responses.append(response_to(turn, guest.reset(seed)))
        last = episode == RECORDED_ENDS
        most = CUT_EPISODE_STEPS if last or found.early else MAX_RECORDED_STEPS
        over = _episode(guest, found, most, RECORDING_SECONDS[episode])
        if not (over or last):
            _end(guest, found)
    found.seconds = time.perf_counter() - began
    # An env that others keep from the cores does not wait for anything.
    found.stepping *= max(0.01, (own_time() - own) / found.seconds)
    return found


def _episode(guest: RecordedEnv, found: Recording, most: int, seconds: float) -> bool:
    """Step until it ends by itself; False if it takes too many steps or too long."""
    until = time.perf_counter() + seconds
    for _ in range(most):
        if _step(guest, found):
            return True
        if time.perf_counter() > until:
            return False
    return False


def _end(guest: RecordedEnv, found: Recording) -> None:
    """Have the episode end; if that cannot be done, it is reset as it stands."""
    if guest.cut():
        found.turns.append(("cut", None))
        found.responses.append({})
        if _step(guest, found):
            return
    found.early = True


def _step(guest: RecordedEnv, found: Recording) -> bool:
    turn = ("step", next(guest.actions))
    began, worked = time.perf_counter(), time.process_time()
    outcome = guest.step(turn[1])
    found.computing += time.process_time() - worked
    found.stepping += time.perf_counter() - began
    found.steps += 1
    found.turns.append(turn)
    found.responses.append(response_to(turn, outcome))
    return bool(outcome[2]) or bool(outcome[3])


def _take_turn(guest: RecordedEnv, turn: TurnCommand) -> Any:
    kind, value = turn
    if kind == "reset":
        return guest.reset(value)
    return guest.step(value) if kind == "step" else guest.cut()


# Together -----------------------------------------------------------------------------


def run_together(
    build: Callable[[int], RecordedEnv],
    close: Callable[[int], None],
    recordings: Sequence[Recording],
    watch: Stopwatch,
    look: Callable[[], None],
) -> list[Difference]:
    """Build the envs and run their recordings by turns; where they did something else.

    It ends at the first difference that is not in infos alone.

    Args:
        build: makes one of them.
        close: closes one of them.
        recordings: what each did alone.
        watch: when it has to be given up.
        look: called once, while all of them are there.
    """
    guests = [build(number) for number in range(len(recordings))]
    found: list[Difference] = []
    rounds = by_turns([len(one.turns) for one in recordings], TURN_LAG)
    for number, turns in enumerate(rounds):
        for place, turn in turns:
            watch.check()
            places = _difference_in(guests[place], recordings[place], turn)
            if places:
                found.append(Difference(place, turn, places))
                if not found[-1].in_infos_alone:
                    return found
        if number == len(rounds) - 1 - TURN_LAG:
            look()
            close(0)
    return found


def by_turns(lengths: Sequence[int], lag: int) -> list[list[tuple[int, int]]]:
    """Rounds in which each env that has any left takes its next turn: (env, turn).

    Args:
        lengths: how many turns each env takes.
        lag: how many rounds an env begins after the one before it.
    """
    return [
        [
            (place, number - lag * place)
            for place, count in enumerate(lengths)
            if 0 <= number - lag * place < count
        ]
        for number in range(max(lengths) + lag * (len(lengths) - 1))
    ]


def _difference_in(
    guest: RecordedEnv, recording: Recording, turn: int
) -> tuple[str, ...]:
    command = recording.turns[turn]
    now = response_to(command, _take_turn(guest, command))
    then = recording.responses[turn]
    if now == then:
        return ()
    places = {**now, **then}
    return tuple(
        place
        for place in places
        if place not in TIME_ENTRIES and now.get(place) != then.get(place)
    )


def replay_and_compare(
    guest: RecordedEnv, place: int, recording: Recording, begun: Callable[[], Any]
) -> list[Difference]:
    """Run a whole recording; where the env did something else.

    Args:
        guest: the env.
        place: which one it is.
        recording: what it did alone.
        begun: called after the first turn.
    """
    found: list[Difference] = []
    for turn in range(len(recording.turns)):
        places = _difference_in(guest, recording, turn)
        if places:
            found.append(Difference(place, turn, places))
        if turn == 0:
            begun()
    return found


def responses_to(guest: RecordedEnv, turns: Sequence[TurnCommand]) -> list[Response]:
    """What an env returns to these turns."""
    return [response_to(turn, _take_turn(guest, turn)) for turn in turns]


def repeats(
    recording: Sequence[Response], again: Sequence[Response], difference: Difference
) -> bool:
    """Whether alone it did the same a second time, in one of those places at least."""
    if difference.turn >= len(again):
        return False
    then, now = recording[difference.turn], again[difference.turn]
    return any(then.get(place) == now.get(place) for place in difference.places)


# What an env returned, in short -------------------------------------------------------

RESULT_PARTS = ("obs", "reward", "terminated", "truncated", "info")


def response_to(turn: TurnCommand, outcome: Any) -> Response:
    """Place -> value of everything in it, as it is at this moment."""
    found: Response = {}
    if turn[0] == "cut":
        return found
    names = ("obs", "info") if turn[0] == "reset" else RESULT_PARTS
    for name, value in zip(names, outcome, strict=True):
        _flatten(name, value, found)
    return found


def _flatten(place: str, value: Any, found: Response) -> None:
    if isinstance(value, dict):
        found[place] = len(value)
        for key, part in value.items():
            _flatten(f"{place}[{key!r}]", part, found)
    elif isinstance(value, (list, tuple)) and len(value) <= 64:
        found[place] = len(value)
        for position, part in enumerate(value):
            _flatten(f"{place}[{position}]", part, found)
    else:
        found[place] = _short(value)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.generic)):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _digest(repr((value.shape, value.dtype.str)).encode(), value.tobytes())
    try:
        return _digest(pickle.dumps(value))
    except Exception:
        return type(value).__qualname__  # as much of it as can be compared


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part)
    return digest.digest()
