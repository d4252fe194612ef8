"""Whether envs may share a process: what they do together, compared with alone.

    alone      first ─ ─ ─ ─ ─ ─ ─ ─        recorded: resets, steps, episode ends
    together   first ─ ─ ─ ─ ─ ─ ─ ─        built again, stepped by turns, the second
               second    ─ ─ ─ ─ ─ ─ ─ ─    some turns behind the first, and still at
                                            it when the first is closed
               later               ─ ─ ─    (the doctor) and another one is built

Each env gets the seeds and actions of its recording and has to return the same:
observation, reward, flags and infos. A recording has two episode ends. Where none comes
soon, the probe shortens the env's TimeLimit, or resets the env early.

Pools ask before they place their slots, and so does `corral doctor`. In a replay of a
fault, envs take turns in the same way.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.engine.worker.probed_env import ProbedEnv

RECORDED_ENDS = 2
"""Episode ends in a recording; the next episode is begun as well."""
MAX_RECORDED_STEPS = 200
"""Of an episode that is waited for to end by itself."""
CUT_EPISODE_STEPS = 8
"""Steps of an episode that has to be ended."""
RECORDING_SECONDS = (0.06, 0.03, 0.02)
"""Seconds for each episode of a recording; every episode has one step at least."""
TURN_LAG = 5
"""Turns that one env is behind the other."""
LATER_ROUNDS = 2
"""Turns that the others take between a close and the next constructor."""
MAX_KEPT_BYTES = 1024
"""Of an array that is stored as it is; of a larger one, a digest."""
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
    """Whether a trial found it; else the env declares it, or a saved verdict."""
    step_time: float = 0.0
    """Seconds per step, if any was taken."""
    computing: float = 1.0
    """The fraction of it that needs a core."""
    forks: bool = False
    """Whether an env forked this process: copies of the caller would continue."""
    sources: dict[str, str] = field(default_factory=dict)
    """Path -> digest of the source text that the answer is true for."""
    difference: str = ""
    """Which env did something else than alone, if one did."""


Turn = tuple[str, Any]
"""A method of a `ProbedEnv` and its argument: "reset", "step" or "cut"."""
Response = dict[str, Any]
"""What it returned: place -> value, shortened."""


@dataclass(slots=True)
class Recording:
    """The turns of one env, and what it returned."""

    turns: list[Turn] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    def take(self, guest: ProbedEnv, turn: Turn) -> Any:
        """Have the env take a turn, and record it."""
        outcome, response = take_turn(guest, turn)
        self.turns.append(turn)
        self.responses.append(response)
        return outcome


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

    def repeats(self, then: Sequence[Response], now: Sequence[Response]) -> bool:
        """Whether the env did the same twice, in one of these places at least."""
        first, second = then[self.turn], now[self.turn]
        return any(first.get(place) == second.get(place) for place in self.places)


class OutOfTime(BaseException):
    """The time for an answer has passed; it passes by handlers of an env's errors."""


class GuestFailed(Exception):
    """An env failed beside another: which one, and in what; its error is the cause."""


# Alone --------------------------------------------------------------------------------


def record(guest: ProbedEnv, seeded: bool = False, patience: float = 1.0) -> Recording:
    """Run one env across the ends of two episodes, and a little further.

    Args:
        guest: the env.
        seeded: whether every episode gets a seed, or the first one alone.
        patience: how many times as long as usual an episode may take to end.
    """
    found, early = Recording(), False
    seeds = range(RECORDED_ENDS + 1) if seeded else [0, *[None] * RECORDED_ENDS]
    with guest.undisturbed():
        for episode, seed in enumerate(seeds):
            found.take(guest, ("reset", seed))
            last = episode == RECORDED_ENDS
            most = CUT_EPISODE_STEPS if last or early else MAX_RECORDED_STEPS
            seconds = patience * RECORDING_SECONDS[episode]
            if not (_ends(guest, found, most, seconds) or last):
                cut = found.take(guest, ("cut", None))
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
    _, _, terminated, truncated, _ = found.take(guest, ("step", next(guest.actions)))
    return bool(terminated) or bool(truncated)


# Together -----------------------------------------------------------------------------


def rounds(
    recordings: Sequence[Recording], later: bool = False
) -> Iterator[tuple[str, int, int]]:
    """The order in which envs are built, closed, and take the turns of a recording.

    Args:
        recordings: what each env did alone.
        later: whether the first is built once more when it was closed.

    Yields:
        ("build" | "close" | "turn", the env's place, its turn)
    """
    count = len(recordings)
    starts = [TURN_LAG * place for place in range(count)]
    lengths = [len(one.turns) for one in recordings]
    closing = max(lengths) + starts[-1] - TURN_LAG
    if later:
        starts.append(closing + LATER_ROUNDS)
        lengths.append(lengths[0])
    yield from (("build", place, 0) for place in range(count))
    for number in range(max(closing + TURN_LAG, starts[-1] + lengths[-1])):
        if number == closing:
            yield "close", 0, 0
        if later and number == starts[-1]:
            yield "build", count, 0
        for place, turn in turns_of(number, lengths, starts):
            yield "turn", place, turn


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


def guest_name(place: int, count: int) -> str:
    """What messages call one of these envs."""
    if place == count:
        return "an env built later"
    names = ("the first env", "the second env")
    return names[place] if place < len(names) else f"env {place + 1}"


def differences(
    guest: ProbedEnv, place: int, name: str, recording: Recording, turn: int
) -> list[Difference]:
    """Have an env take a turn again; where it did something else, if it did."""
    command, then = recording.turns[turn], recording.responses[turn]
    _, now = take_turn(guest, command)
    places = tuple(
        place
        for place in ({**now, **then} if now != then else ())
        if place not in TIME_ENTRIES and now.get(place) != then.get(place)
    )
    if not places:
        return []
    kind, first = command[0], places[0]
    count = sum(one[0] == kind for one in recording.turns[:turn]) + (kind == "step")
    values = both_values(first, now.get(first), then.get(first))
    return [Difference(place, turn, places, f"{name}, {kind} {count}: {values}")]


# What an env returned, in short -------------------------------------------------------

RESULT_PARTS = {
    "reset": ("obs", "info"),
    "step": ("obs", "reward", "terminated", "truncated", "info"),
    "cut": (),
}


def take_turn(guest: ProbedEnv, turn: Turn) -> tuple[Any, Response]:
    """Have an env take a turn; returns its result, as it is and in short."""
    outcome = getattr(guest, turn[0])(turn[1])
    found: Response = {}
    parts = RESULT_PARTS[turn[0]]
    for name, value in zip(parts, outcome if parts else (), strict=True):
        _flatten(name, value, found)
    return outcome, found


def _flatten(place: str, value: Any, found: Response) -> None:
    is_dict = isinstance(value, dict)
    if is_dict or (isinstance(value, (list, tuple)) and len(value) <= 64):
        found[place] = len(value)
        for key, part in value.items() if is_dict else enumerate(value):
            _flatten(f"{place}[{key!r}]", part, found)
    else:
        found[place] = _short(value)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.generic)):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        kept = value.shape, value.dtype.str, value.tobytes()
        short = value.nbytes <= MAX_KEPT_BYTES
        return kept if short else _digest(repr(kept[:2]).encode() + kept[2])
    try:
        return _digest(pickle.dumps(value))
    except Exception:
        return type(value).__qualname__  # as much of it as can be compared


def both_values(place: str, together: Any, alone: Any) -> str:
    """A place where two answers differ, with both values if they were stored."""
    both = (together, alone)
    kept = [one for one in both if isinstance(one, tuple)]
    arrays = [np.frombuffer(data, dtype).reshape(shape) for shape, dtype, data in kept]
    if len(arrays) == 2 and arrays[0].shape == arrays[1].shape:
        pairs = zip(arrays[0].flat, arrays[1].flat, strict=True)
        apart = [one.tobytes() != other.tobytes() for one, other in pairs]
        at = np.unravel_index(int(np.argmax(apart)), arrays[0].shape)
        place += f"[{', '.join(str(int(index)) for index in at)}]" if at else ""
        together, alone = (array[at].item() for array in arrays)
    if isinstance(together, (bytes, tuple)) or isinstance(alone, (bytes, tuple)):
        return f"{place} differs"
    return f"{place} is {together!s:.60} together and {alone!s:.60} alone"


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=12).digest()
