"""Whether envs may share a process: what they do together, held against alone.

    alone      first ─ ─ ─ ─ ─ ─ ─ ─        recorded: resets, steps, episode ends
    together   first ─ ─ ─ ─ ─ ─ ─ ─        built again, stepped by turns, the second
               second    ─ ─ ─ ─ ─ ─ ─ ─    some turns behind the first, and still at
                                            it when the first is closed
               later               ─ ─ ─    (the doctor) and another one is built

Each of them gets the seeds and actions of its recording, and has to return the same:
observation, reward, flags and infos. A recording has two episode ends. Where none comes
in little time, a TimeLimit is told to end the episode, or the env is reset early.

What is done here never raises for an env's sake: it comes to a `SharingAnswer`. Pools
ask before they place their slots, and so does `corral doctor`. In a replay of a fault
envs take turns in the same way.
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
LATER_ROUNDS = 2
"""Turns that the others take between a close and the next constructor."""
MAX_KEPT_BYTES = 1024
"""Of an array that is kept as it is; of a larger one, a digest."""
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
    difference: str = ""
    """Which env did what else than alone, where that was seen."""


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
    text: str = ""
    """Which env, which of its resets and steps, and both values."""

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


class GuestFailed(Exception):
    """An env failed beside another: which one, and in what; its error is the cause."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"{name} fails in {call}()")
        self.at_once = (name, call) == ("the second env", "reset")


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


def record(
    guest: RecordedEnv, seeded: bool = False, patience: float = 1.0
) -> Recording:
    """Run one env across the ends of two episodes, and a little further.

    Args:
        guest: the env.
        seeded: whether every episode gets a seed, or the first one alone.
        patience: how many times as long as usual an episode may take to end.
    """
    found, began, own = Recording(), time.perf_counter(), own_time()
    seeds = range(RECORDED_ENDS + 1) if seeded else [0, *[None] * RECORDED_ENDS]
    for episode, seed in enumerate(seeds):
        turn = ("reset", seed)
        found.turns.append(turn)
        found.responses.append(response_to(turn, guest.reset(seed)))
        last = episode == RECORDED_ENDS
        most = CUT_EPISODE_STEPS if last or found.early else MAX_RECORDED_STEPS
        over = _episode(guest, found, most, patience * RECORDING_SECONDS[episode])
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
    later: bool = False,
) -> list[Difference]:
    """Build the envs and run their recordings by turns; where they did something else.

    It ends at the first difference that is not in infos alone.

    Args:
        build: makes one of them.
        close: closes one of them.
        recordings: what each did alone.
        watch: when it has to be given up.
        look: called once, while all of them are there.
        later: whether the first is built once more when it was closed.
    """
    count = len(recordings)
    guests = [build(number) for number in range(count)]
    starts = [TURN_LAG * place for place in range(count)]
    lengths = [len(one.turns) for one in recordings]
    closing = max(lengths) + starts[-1] - TURN_LAG
    rounds = closing + TURN_LAG
    building = closing + LATER_ROUNDS if later else -1
    if later:
        recordings = [*recordings, recordings[0]]
        starts, lengths = [*starts, building], [*lengths, lengths[0]]
        rounds = max(rounds, building + lengths[0])
    found: list[Difference] = []
    for number in range(rounds):
        if number == closing:
            look()
            close(0)
        if number == building:
            guests.append(build(0))
        for place, turn in turns_of(number, lengths, starts):
            watch.check()
            name = _guest_name(place, count)
            try:
                places, text = _difference_in(guests[place], recordings[place], turn)
            except Exception as error:
                kind, _ = recordings[place].turns[turn]
                raise GuestFailed(name, kind) from error
            if places:
                text = f"{name}, {text}"
                found.append(Difference(place % count, turn, places, text))
                if not found[-1].in_infos_alone:
                    return found
    return found


def turns_of(
    number: int, lengths: Sequence[int], starts: Sequence[int]
) -> list[tuple[int, int]]:
    """Which envs take which of their turns in a round: (env, turn).

    Args:
        number: of the round.
        lengths: how many turns each env takes.
        starts: the round in which it takes its first.
    """
    return [
        (place, number - start)
        for place, (count, start) in enumerate(zip(lengths, starts, strict=True))
        if 0 <= number - start < count
    ]


def _guest_name(place: int, count: int) -> str:
    if place == count:
        return "an env built later"
    names = ("the first env", "the second env")
    return names[place] if place < len(names) else f"env {place + 1}"


def _difference_in(
    guest: RecordedEnv, recording: Recording, turn: int
) -> tuple[tuple[str, ...], str]:
    """The places in which it did something else, and the first of them in words."""
    command = recording.turns[turn]
    now = response_to(command, _take_turn(guest, command))
    then = recording.responses[turn]
    if now == then:
        return (), ""
    places = tuple(
        place
        for place in {**now, **then}
        if place not in TIME_ENTRIES and now.get(place) != then.get(place)
    )
    if not places:
        return (), ""
    kind = command[0]
    count = sum(one[0] == kind for one in recording.turns[:turn])
    told = both_values(places[0], now.get(places[0]), then.get(places[0]))
    return places, f"{kind} {count + (kind == 'step')}: {told}"


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
        places, text = _difference_in(guest, recording, turn)
        if places:
            text = f"{_guest_name(place, place + 1)}, {text}"
            found.append(Difference(place, turn, places, text))
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
        kept = value.shape, value.dtype.str, value.tobytes()
        if value.nbytes <= MAX_KEPT_BYTES:
            return kept
        return _digest(repr(kept[:2]).encode(), kept[2])
    try:
        return _digest(pickle.dumps(value))
    except Exception:
        return type(value).__qualname__  # as much of it as can be compared


def both_values(place: str, together: Any, alone: Any) -> str:
    """A place where two answers differ, with both values if they were kept."""
    arrays = [
        np.frombuffer(kept[2], kept[1]).reshape(kept[0])
        for kept in (together, alone)
        if isinstance(kept, tuple)
    ]
    if len(arrays) == 2 and arrays[0].shape == arrays[1].shape:
        pairs = zip(arrays[0].flat, arrays[1].flat, strict=True)
        apart = [one.tobytes() != other.tobytes() for one, other in pairs]
        at = np.unravel_index(int(np.argmax(apart)), arrays[0].shape)
        place += f"[{', '.join(str(int(index)) for index in at)}]" if at else ""
        together, alone = (array[at].item() for array in arrays)
    if isinstance(together, (bytes, tuple)) or isinstance(alone, (bytes, tuple)):
        return f"{place} differs"
    return f"{place} is {together!s:.60} together and {alone!s:.60} alone"


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part)
    return digest.digest()
