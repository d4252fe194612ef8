"""Whether a saved fault has to do with the other envs of its process.

    alone     its slot by itself        three processes, three times in each
    beside    its slot and a neighbour  three processes, once in each

All six at the same time. Only an env that never fails alone, and that fails beside its
neighbour every time, at the same step and in the same way, is disturbed by it: one that
fails at random, or in some processes and not in others, does not pass for that. In one
of the three the neighbour has taken a step before, so that envs which draw from one
generator of their module draw other numbers. Global generators are kept apart, since
`isolate_rng` takes care of those.

The neighbour repeats what it did last: its own seed, task and actions, as far as they
were kept; else those of the slot that failed. What an env did in earlier episodes, and
what more than one neighbour does, is not repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from corral.engine.parallel_map import map as run_in_workers
from corral.engine.worker.isolation_probe import rounds
from corral.errors import EpisodeRecord, Fault
from corral.tools.doctor.rerun import At, SavedEnv, episode_of, failing_of, inside
from corral.tools.output_file import write_output_to

# Processes of either kind.
RUNS = 3
FAILS_ALONE = "It fails alone too: the other envs of its process are not the reason."
# Times that the slot's commands are repeated where it is alone.
REPEATS = 3


@dataclass(frozen=True, slots=True)
class NeighbourCheck:
    """How often it failed again.

    Attributes:
        alone: Of `RUNS` processes that it had to itself.
        beside: Of `RUNS` processes that it shared.
        neighbour: The slot beside it.
        carries_state: Whether its class came by value, with what others may have left
            in it.
    """

    alone: int
    beside: int
    neighbour: int
    carries_state: bool = False

    @property
    def interferes(self) -> bool | None:
        """Whether the neighbour is why it failed; None: not known."""
        if self.alone:
            return None if self.carries_state else False
        return True if self.beside == RUNS else None

    def __str__(self) -> str:
        if self.interferes:
            return (
                f"It works alone ({RUNS * REPEATS} of {RUNS * REPEATS} runs) and fails "
                f"beside slot {self.neighbour} in one process ({RUNS} of {RUNS}). They "
                'interfere with each other: isolation="slot" gives each slot its own '
                "process."
            )
        if self.interferes is False:
            return FAILS_ALONE
        return (
            f"It failed in {self.alone} of {RUNS} processes alone and in {self.beside} "
            f"of {RUNS} beside slot {self.neighbour}. Whether the other envs of its "
            "process are the reason is not known."
        )


Turn = Callable[[], None]
# One run for a worker: the episode, its neighbour's, the command that failed, steps
# that the neighbour takes before, and arrays that were too big to be saved.
Task = tuple[EpisodeRecord, EpisodeRecord | None, str, int, Any]


def check_neighbours(
    fault: Fault, shared: dict[str, NDArray[Any]] | None, timeout: float
) -> NeighbourCheck:
    """Run what failed again, alone and beside its neighbour.

    Args:
        fault: of an env that shared its process.
        shared: arrays that were too big to be saved.
        timeout: seconds for one run.
    """
    episode = _repeatable(episode_of(fault))
    neighbour = _repeatable(_neighbour_of(episode))
    command = failing_of(fault)[0]
    alone: list[Task] = [(episode, None, command, 0, shared)] * RUNS
    beside = [(episode, neighbour, command, n % 2, shared) for n in range(RUNS)]
    answers = run_in_workers(
        _failure,
        [*alone, *beside],
        workers=2 * RUNS,
        on_fault="restart",
        max_restarts=0,
        item_timeout=timeout,
    )
    return NeighbourCheck(
        sum(_is_like(answer, fault, alone=True) for answer in answers[:RUNS]),
        sum(_is_like(answer, fault, alone=False) for answer in answers[RUNS:]),
        neighbour.kit.slot,
        episode.kit.functions.has_code,
    )


def _repeatable(episode: EpisodeRecord) -> EpisodeRecord:
    """The episode with a seed, and with global generators of its own."""
    kit = replace(episode.kit, isolate_rng=True)
    return replace(episode, kit=kit, seed=episode.seed or 0)


def _neighbour_of(episode: EpisodeRecord) -> EpisodeRecord:
    """What was saved of another env; else one that does the same as this."""
    kit, beside = episode.kit, episode.beside
    actions = episode.before or episode.actions
    if beside is not None and not beside.kit.missing:
        known = len(beside.actions) == len(actions)
        return beside if known else replace(beside, actions=actions)
    slot = kit.slot - 1 if kit.slot > kit.shard.start else kit.slot + 1
    return replace(episode, kit=replace(kit, slot=slot), actions=actions)


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
                for whose, turn in _in_order(lives):
                    acting = whose
                    turn()
        except BaseException as error:
            if acting is not env:
                raise
            return type(error).__qualname__, env.at
        finally:
            worker.shard.close()
    return None


def _own_turns(env: SavedEnv, episode: EpisodeRecord, head_start: int) -> list[Turn]:
    """What the slot that failed does."""
    steps = [partial(env.step, action) for action in episode.before or episode.actions]
    last = [env.reset] if episode.before else []
    # In its first turns the other env takes its head start.
    return [env.reset, *[lambda: None] * 2 * head_start, *steps, *last]


def _turns_beside(env: SavedEnv, episode: EpisodeRecord, head_start: int) -> list[Turn]:
    """What its neighbour does meanwhile."""
    steps = [partial(env.step, action) for action in episode.actions]
    early: list[Turn] = [*steps[:1], env.reset]
    return [env.reset, *early * head_start, *steps]


def _in_order(lives: dict[SavedEnv, list[Turn]]) -> Iterator[tuple[SavedEnv, Turn]]:
    """The turns of all envs, round by round, in the order of their slots."""
    envs = sorted(lives, key=lambda env: env.slot)
    for what, place, turn in rounds([lives[env] for env in envs], lag=0):
        if what == "turn":
            yield envs[place], lives[envs[place]][turn]
