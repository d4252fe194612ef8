"""Whether a saved fault has to do with the other envs of its process.

    alone     its slot by itself            three processes, three times in each
    beside    its slot and the one before   three processes, once in each
    beside    its slot and the one after    the same

All nine at the same time. Only an env that never fails alone, and that fails beside a
neighbour every time, at the same step and in the same way, is disturbed by it: one that
fails at random, or in some processes and not in others, does not pass for that. In one
of the three the neighbour has taken a step before, so that envs which draw from one
generator of their module draw other numbers. Global generators are kept apart, since
`isolate_rng` takes care of those.

A neighbour repeats what it did last: its own seed, task and actions, as far as they
were kept; else those of the slot that failed. What an env did in earlier episodes, and
what both neighbours do together, is not repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from corral.engine.parallel_map import map as run_in_workers
from corral.engine.worker.isolation_probe import rounds
from corral.errors import EpisodeRecord, Fault
from corral.tools.doctor.rerun import (
    At,
    SavedEnv,
    episode_of,
    failing_of,
    inside,
    was_in_program,
    what_carries,
)
from corral.tools.output_file import write_output_to

# Processes of each kind.
RUNS = 3
FAILS_ALONE = "It fails alone too: the other envs of its process are not the reason."
CARRIED = (
    "Whether other envs are the reason is not known: its {0} is defined in a script or "
    "notebook, and was saved with what they may have left in it. Move the {0} to a "
    "module to find out."
)
# Times that the slot's resets and steps are repeated where it is alone.
REPEATS = 3


@dataclass(frozen=True, slots=True)
class NeighbourCheck:
    """How often it failed again.

    Attributes:
        alone: Of `RUNS` processes that it had to itself.
        beside: Of `RUNS` processes that it shared, by the slot beside it.
        carried: What was saved with what others may have left in it, its "class" or
            its "factory"; "" if nothing was.
        late: How many of all these processes took too long; what they would have done
            is not known.
        in_program: Whether the envs ran in the caller's process, or may have.
    """

    alone: int
    beside: dict[int, int]
    carried: str = ""
    late: int = 0
    in_program: bool = False

    @property
    def interferes(self) -> bool | None:
        """Whether a neighbour is why it failed; None: not known."""
        if self.alone:
            return None if self.carried else False
        return True if RUNS in self.beside.values() and not self.late else None

    def __str__(self) -> str:
        if self.interferes:
            other = next(slot for slot, failed in self.beside.items() if failed == RUNS)
            backend = 'backend="process", ' if self.in_program else ""
            return (
                f"It works alone in {RUNS} of {RUNS} processes, and fails beside slot "
                f"{other} in {RUNS} of {RUNS}. They interfere with each other: "
                f'{backend}isolation="slot" gives each slot its own process.'
            )
        if self.interferes is False:
            return FAILS_ALONE
        processes = RUNS * (1 + len(self.beside))
        if not self.alone and not self.late and not any(self.beside.values()):
            return (
                f"It did not fail again in any of {processes} runs, alone or beside "
                "one other env: it may fail at random, or depend on time, on something "
                "outside of it, on an earlier episode or on several envs at once."
            )
        beside = ", ".join(
            f"{failed} of {RUNS} beside slot {slot}"
            for slot, failed in self.beside.items()
        )
        late = f"{self.late} of the {processes} processes took too long; allow more "
        verdict = "Whether the other envs of its process are the reason is not known."
        if self.alone and self.carried:
            verdict = CARRIED.format(self.carried)
        return (
            f"It failed in {self.alone} of {RUNS} processes alone, {beside}. "
            f"{f'{late}with timeout=. ' if self.late else ''}{verdict}"
        )


# What an env does, turn by turn; None: it waits.
Life = list[Callable[[], None] | None]
# One run for a worker: the episode, its neighbour's, the command that failed, steps
# that the neighbour takes before, and arrays that were too big to be saved.
Task = tuple[EpisodeRecord, EpisodeRecord | None, str, int, Any]


def check_neighbours(
    fault: Fault, shared: dict[str, NDArray[Any]] | None, timeout: float
) -> NeighbourCheck:
    """Run what failed again, alone and beside each neighbour.

    Args:
        fault: of an env that shared its process.
        shared: arrays that were too big to be saved.
        timeout: seconds for the episode once; alone it is run `REPEATS` times.
    """
    episode = _repeatable(episode_of(fault))
    neighbours = [_repeatable(one) for one in _neighbours_of(episode)]
    command = failing_of(fault)[0]
    tasks: list[Task] = [
        (episode, beside, command, n % 2, shared)
        for beside in (None, *neighbours)
        for n in range(RUNS)
    ]
    answers = run_in_workers(
        _failure,
        tasks,
        workers=len(tasks),
        on_fault="restart",
        max_restarts=0,
        item_timeout=REPEATS * timeout,
    )
    like = [_is_like(one, fault, n < RUNS) for n, one in enumerate(answers)]
    alone, *beside = (sum(like[n : n + RUNS]) for n in range(0, len(like), RUNS))
    # A site numbers its slots from 0, and its faults as the cluster does.
    first = 0 if fault.slot is None else fault.slot - episode.kit.slot
    slots = [first + one.kit.slot for one in neighbours]
    return NeighbourCheck(
        alone,
        dict(zip(slots, beside, strict=True)),
        what_carries(fault),
        sum(isinstance(one, Fault) and one.kind == "hung" for one in answers),
        was_in_program(fault),
    )


def _repeatable(episode: EpisodeRecord) -> EpisodeRecord:
    """The episode with a seed, and with global generators of its own."""
    kit = replace(episode.kit, isolate_rng=True)
    return replace(episode, kit=kit, seed=episode.seed or 0)


def _neighbours_of(episode: EpisodeRecord) -> list[EpisodeRecord]:
    """What was saved of other envs; else some that do the same as this."""
    kit, beside = episode.kit, episode.beside
    actions, saved = episode.before or episode.actions, []
    while beside is not None:
        known = len(beside.actions) == len(actions)
        saved.append(beside if known else replace(beside, actions=actions))
        beside = beside.beside
    places = [slot for slot in (kit.slot - 1, kit.slot + 1) if slot in kit.shard]
    return [one for one in saved if not one.kit.missing] or [
        replace(episode, kit=replace(kit, slot=slot), actions=actions)
        for slot in places or [kit.slot + 1]
    ]


def _is_like(answer: Any, fault: Fault, alone: bool) -> bool:
    """Whether it failed as before; alone, at whichever step."""
    if isinstance(answer, Fault):
        return answer.kind == fault.kind == "died" and (
            answer.signal_name == fault.signal_name
        )
    if answer is None:
        return False
    error_type, at = answer
    return error_type == fault.error_type and (alone or at == failing_of(fault))


# In a worker --------------------------------------------------------------------------


def _failure(task: Task) -> tuple[str, At] | None:
    """The type of what the slot's env raised, and where; None if it did not."""
    episode, beside, command, head_start, shared = task
    worker = episode.kit.open(shared, None if beside is None else beside.kit)
    env = acting = SavedEnv(worker, episode)
    lives = {env: _own_turns(env, episode, head_start)}
    if beside is None:
        lives[env] *= REPEATS
    else:
        neighbour = SavedEnv(worker, beside)
        lives[neighbour] = _turns_beside(neighbour, beside, head_start)
    write_output_to(os.devnull)
    with inside(worker):
        try:
            worker.build()
            if command not in ("construct", "start"):
                envs = sorted(lives, key=lambda one: one.slot)
                for place, turn in rounds(lives[one] for one in envs):
                    acting = envs[place]
                    turn()
        except BaseException as error:
            if acting is not env:
                raise
            return type(error).__qualname__, env.at
        finally:
            worker.shard.close()
    return None


def _own_turns(env: SavedEnv, episode: EpisodeRecord, head_start: int) -> Life:
    """What the slot that failed does."""
    steps = [partial(env.step, action) for action in episode.before or episode.actions]
    last = [env.reset] if episode.before else []
    # It waits while the other env takes its head start.
    return [env.reset, *[None] * 2 * head_start, *steps, *last]


def _turns_beside(env: SavedEnv, episode: EpisodeRecord, head_start: int) -> Life:
    """What its neighbour does meanwhile."""
    steps = [partial(env.step, action) for action in episode.actions]
    early: Life = [*steps[:1], env.reset]
    return [env.reset, *early * head_start, *steps]
