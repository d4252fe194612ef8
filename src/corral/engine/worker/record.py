"""The recorder steps slots and writes their results, as long as these are plain.

Plain: a five-tuple, an array of the leaf's dtype and shape, a number for a reward, no
info or the one that is expected, and an episode that continues. The recorder reports
everything else, and the shard takes care of it. This is the loop that runs once per env
step, so it has a C twin under the same name: in Python its stores cost 1 µs, a sixth of
a CartPole step; in C 0.1 µs. Only the C twin writes infos. Beside simulators that leave
nothing of our code in the caches, taking care of one costs 8 µs: a thirtieth of an Ant
step.

Guarantees: a record is complete when `record` returns with neither OBS_UNWRITTEN nor
REWARD_UNWRITTEN set. A slot that `run` passed is recorded and published; the one it
stopped at is not published, and recorded only as far as the flags say.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.durations import bucket_of
from corral.engine.layout.plan import BUSY_SINCE, CURRENT_SLOT, NO_SLOT
from corral.engine.worker.forked_copies import C_PART, Guard, no_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The episode is over.
EPISODE_ENDED = 1
# The observation was not written: not a plain array of the leaf's dtype and shape.
OBS_UNWRITTEN = 2
# The reward was not written: not a plain number.
REWARD_UNWRITTEN = 4
# Nothing was written: the env did not return a tuple of five.
NOTHING_WRITTEN = 8

# (care) The slot's episode has ended.
EPISODE_OVER = 1
# (care) The slot has written infos: its columns are cleared when infos stop.
HAS_INFOS = 2
# (care) The slot's episode ended with the worker that ran it.
EPISODE_LOST = 4
# (care) The transition is in the block; the next episode has not begun.
NEXT_EPISODE_DUE = 8
# (care) The shard decides what a step means now.
NEEDS_CARE = EPISODE_OVER | EPISODE_LOST | NEXT_EPISODE_DUE


class PythonRecorder:
    """Writes records; slots are counted from the shard's first."""

    def __init__(
        self,
        records: NDArray[np.void],
        obs: NDArray[np.generic] | None,
        done: memoryview,
        ring: Callable[[], object] | None,
        times: NDArray[np.void] | None = None,
        vitals: NDArray[np.float64] | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Take the shard's part of the block.

        Args:
            records: [2, shard] of RECORD_DTYPE.
            obs: [2, shard, ...], if the space is one plain leaf.
            done: [shard] of uint32, where finished tickets go.
            ring: called once per finished slot; None where no thread waits (serial).
            times: [shard] of DURATIONS_DTYPE, where durations are counted.
            vitals: the worker's line of `vitals`, where the parent can see since when
                it is at the present step.
            guard: called where an env's code came back; see `worker.forked_copies`.
        """
        self.at = 0
        self._done = done
        self._ring = ring
        self._guard = guard or no_guard
        self._obs = obs
        self._dtype = obs.dtype if obs is not None else None
        self._shape = obs.shape[2:] if obs is not None else ()
        # A memoryview stores a scalar in 30 ns, an array of a record's field in 130 ns.
        self._rows: list[dict[str, Any]] = [
            {name: records[name][row].data for name in records.dtype.names or ()}
            for row in (0, 1)
        ]
        self._times = times
        self._vitals: Any = (
            np.zeros(CURRENT_SLOT + 1) if vitals is None else vitals
        ).data
        self.mark()

    def expect(self, *_: Any) -> bool:
        """Whether infos like this are written by `run` from now on; here: no.

        The C twin takes a plan's keys, types and targets, the columns that stand for
        it, what is written where, the shard's first slot, and the number of slots.
        """
        return False

    def mark(self) -> None:
        """Start the clock of the next slot's step time."""
        self._vitals[BUSY_SINCE] = time.perf_counter()

    def run(
        self,
        row: int,
        slot: int,
        stride: int,
        steppers: list[Any],
        actions: Iterator[Any],
        care: bytearray,
        ticket: int,
    ) -> tuple[int, Any] | None:
        """Step slots from `slot` on until one needs care, or none is left.

        Args:
            row: where to write.
            slot: the first to step.
            stride: 1 for upwards, -1 for downwards.
            steppers: one per slot of the shard. `stepper.step` is looked up for every
                step: an env or other code may exchange it.
            actions: in the order of stepping.
            care: one byte per slot; see above.
            ticket: what `done` gets.

        Returns:
            None at the end. Else, for the slot in `at`: the flags that `record` gave,
            and what the env returned; (0, None) if a flag of NEEDS_CARE stopped it.
        """
        self.mark()
        for self.at in range(slot, len(steppers) if stride > 0 else -1, stride):
            self._vitals[CURRENT_SLOT] = self.at
            action = next(actions)
            if care[self.at] & NEEDS_CARE:
                return 0, None
            result = steppers[self.at].step(action)
            self._guard()
            if type(result) is not tuple or len(result) != 5:
                return NOTHING_WRITTEN, result
            left = self.record(row, self.at, *result[:4])
            if left or care[self.at] or type(result[4]) is not dict or result[4]:
                return left, result
            self._guard()
            self._vitals[CURRENT_SLOT] = NO_SLOT
            self._done[self.at] = ticket
            if self._ring is not None:
                self._ring()
        return None

    def start(self, row: int, slot: int, seed: int, valid: bool) -> None:
        """Store a record with no transition behind it: a reset, or a filler row."""
        nothing = dict.fromkeys(("reward", "episode_return", "step_time"), 0.0)
        ended = {"terminated": False, "truncated": False, "episode_length": 0}
        begun = {"seed": seed, "started": True, "valid": valid}
        for name, value in {**nothing, **ended, **begun}.items():
            self._rows[row][name][slot] = value

    def reset_took(self, slot: int, seconds: float) -> None:
        """Count how long a reset took, and start the clock of the next step."""
        self._count("reset", slot, seconds)
        self.mark()

    def _count(self, kind: str, slot: int, seconds: float) -> None:
        if self._times is not None:
            times = self._times[slot]
            times[kind][bucket_of(seconds)] += 1
            times[f"{kind}_seconds"] += seconds

    def record(
        self,
        row: int,
        slot: int,
        obs: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
    ) -> int:
        """Store one transition; returns what is left to do, as flags."""
        left = 0
        if (
            type(obs) is np.ndarray
            and obs.dtype is self._dtype
            and obs.shape == self._shape
        ):
            self._obs[row, slot] = obs  # type: ignore[index]
        else:
            left = OBS_UNWRITTEN
        new, old = self._rows[row], self._rows[1 - row]
        fresh = old["terminated"][slot] or old["truncated"][slot]
        total = 0.0 if fresh else old["episode_return"][slot]
        if isinstance(reward, (float, int)):
            new["reward"][slot] = reward = float(reward)
            total += reward
        else:
            left |= REWARD_UNWRITTEN
        new["episode_return"][slot] = total
        new["episode_length"][slot] = 1 if fresh else old["episode_length"][slot] + 1
        new["seed"][slot] = old["seed"][slot]
        new["terminated"][slot] = terminated = bool(terminated)
        new["truncated"][slot] = truncated = bool(truncated)
        new["started"][slot] = False
        new["valid"][slot] = True
        now = time.perf_counter()
        new["step_time"][slot] = seconds = now - self._vitals[BUSY_SINCE]
        self._count("step", slot, seconds)
        self._vitals[BUSY_SINCE] = now
        return left | EPISODE_ENDED if terminated or truncated else left


Recorder: Callable[..., Any] = getattr(C_PART, "Recorder", PythonRecorder)
KIND = "python" if C_PART is None else "c"
