"""Which episode each slot of a shard is in, and what its next one will be.

The number, seed, options and task of an episode are decided before its env is reset.
Its words in the block are written first: if the user's code then crashes the process,
the parent still knows which episode it was.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import OptionError

# EPISODE_NUMBER to FIRST_BEGIN_TICKET, in the order of `layout.plan`.
_WORDS = struct.Struct("5q")


@dataclass(slots=True)
class SlotEpisode:
    """The episode that a slot is in, and what was asked of its next one.

    Attributes:
        restarts: How often this episode was begun again, after a fault.
        began: The ticket of the command that it began in.
        first_began: The same of the first time, if it was begun again.
        broken: Whether the next one is this one again.
        asked: What was asked of the next one, by name: seed, options, task.
    """

    number: int = -1
    restarts: int = 0
    began: int = 0
    first_began: int = 0
    broken: bool = False
    options: dict[str, Any] | None = None
    seed: int | None = None
    task: Any = NO_TASK
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def seed_word(self) -> int:
        """The seed as the block has it: -1 for none."""
        return -1 if self.seed is None or self.seed >> 63 else self.seed


class EpisodePlan:
    """The episodes of a shard's slots.

    Args:
        slots: the shard's.
        options: the root seed, and how tasks are drawn.
        self_resetting: the name of an env that is the whole shard and begins its
            episodes by itself; "" for other envs.
    """

    def __init__(
        self, slots: range, options: ShardOptions, self_resetting: str = ""
    ) -> None:
        self.slots = slots
        self.options = options
        # Whether an env that begins episodes by itself is being reset as a whole.
        self.resets_all = False
        self._self_resetting = self_resetting
        self.episodes = [SlotEpisode() for _ in slots]
        # Whether any episode was begun here.
        self.has_begun = False

    def bind(self, words: NDArray[np.int64]) -> None:
        """Take the shard's part of the block: [shard, 8]; see `layout.plan`."""
        self._words: list[Any] = [one.data for one in words]

    def begin(self, index: int, ticket: int) -> SlotEpisode:
        """Count to the slot's next episode, which begins in this command."""
        episode, slot = self.episodes[index], self.slots[index]
        asked, episode.asked = episode.asked, {}
        if episode.broken:  # it keeps its number
            episode.restarts += 1
        else:
            episode.number, episode.restarts = episode.number + 1, 0
        if not episode.broken or "task" in asked:
            episode.first_began = ticket
        episode.began, episode.broken = ticket, False
        episode.seed = self._seed(slot, episode, asked.get("seed"))
        # Before any code of the user's is run: it may end this process.
        words, number, restarts = self._words[index], episode.number, episode.restarts
        seed, first = episode.seed_word, episode.first_began
        _WORDS.pack_into(words, 0, number, restarts, seed, ticket, first)
        episode.options = asked.get("options")
        episode.task = self._task(slot, episode, asked.get("task", NO_TASK))
        self.has_begun = True
        return episode

    def _seed(self, slot: int, episode: SlotEpisode, asked: int | None) -> int | None:
        if self._self_resetting and not (self.resets_all and slot == self.slots.start):
            return None  # it is given one seed, when it is reset as a whole
        root, number = self.options.root_seed, episode.number
        place = self.options.first_slot + slot
        if self.options.repeat > 1 and asked is None:
            # Begun again, it still is the episode of its group.
            again = episode.seed if episode.restarts else None
            drawn = episode_seed(root, self.options.group(slot), number)
            return drawn if again is None else again
        if asked is None and episode.restarts:
            # Also where resets are bare: an env that is new was never given a seed.
            return episode_seed(
                root, place, number, SeedDomain.RESTARTS, episode.restarts
            )
        if asked is None and self.options.seeded:
            return episode_seed(root, place, number)
        return asked

    def _task(self, slot: int, episode: SlotEpisode, task: Any) -> Any:
        if task is NO_TASK and episode.restarts:
            task = episode.task
        if task is NO_TASK and self.options.sample_task is not None:
            task = sampled_task(self.options, slot, episode.number)
        if self._self_resetting and task is not NO_TASK:
            raise OptionError(
                f"{self._self_resetting} restarts its episodes by itself and cannot be "
                "given a task for one"
            )
        return task

    # What is asked of the next episode ------------------------------------------------

    def request(
        self,
        index: int,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        task: Any = NO_TASK,
    ) -> None:
        """Take what was asked of a slot's next episode; the rest stays as it was."""
        given = (
            ("seed", seed, None),
            ("options", options, None),
            ("task", task, NO_TASK),
        )
        self.episodes[index].asked.update(
            {name: value for name, value, none in given if value is not none}
        )

    def reset(self, index: int, seed: int | None) -> None:
        """The caller begins another episode, also after one that broke off."""
        self.episodes[index].broken = False
        self.request(index, seed)

    def break_off(self, index: int, repeated: bool = False) -> None:
        """The next episode is this one again; `repeated` with all that was asked."""
        episode = self.episodes[index]
        episode.broken = True
        if repeated:
            self.request(index, episode.seed, episode.options, episode.task)

    def restart_count(self, root: int) -> None:
        """Count episodes from the start again, with seeds from another root."""
        self.options.root_seed = root
        for episode in self.episodes:
            episode.number, episode.restarts, episode.broken = -1, 0, False

    def take_over(self, tasks: Sequence[Any], broken: Sequence[bool]) -> None:
        """Continue where the worker before was, as far as the block tells."""
        for index, episode in enumerate(self.episodes):
            words = _WORDS.unpack_from(self._words[index])
            episode.number, episode.restarts, seed, *tickets = words
            episode.began, episode.first_began = tickets
            episode.seed = None if seed < 0 else seed
            episode.task, episode.broken = tasks[index], broken[index]


def sampled_task(options: ShardOptions, slot: int, number: int) -> Any:
    """The task of an episode that was given none."""
    if options.sample_task is None:
        return NO_TASK
    place = options.group(slot)
    seed = episode_seed(options.root_seed, place, number, SeedDomain.TASKS)
    return options.sample_task(place, number, np.random.default_rng(seed))
