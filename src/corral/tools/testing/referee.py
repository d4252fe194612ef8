"""Checks every row that a pool of KnownAnswers returns, and forgets none.

A referee records what was sent and checks what came back. Each slot has an episode here
as well, worked out from the seed in the block and the actions sent; a row that is valid
has to equal it to the last bit, and a row that is not has to say why::

    referee.sent(slots, actions, "same_step")
    pool.send(actions, slots)
    referee.check(pool.recv())

Every episode has its number and, after faults, its restarts; both only grow, so that an
episode delivered twice, or out of order, is seen. After a mistake a slot is not checked
any more, since every later row would be one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from corral.core import Step
from corral.engine.worker.compared_values import difference
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import Fault
from corral.tools.testing.answers import FORMS, MEAN_LENGTH, Answer, KnownEpisode
from corral.tools.testing.values import part_of

# Of one episode, that a seed is looked for among.
MAX_RESTARTS = 40
# Episodes that may begin and break off again before one is delivered.
MAX_SKIPPED_EPISODES = 3
FIGURES = (
    *("reward", "terminated", "truncated", "started", "valid", "seed"),
    *("episode_return", "episode_length"),
)
# All that a Step says of one slot.
Row = dict[str, Any]


@dataclass(slots=True)
class _Command:
    """What a slot was sent and has not answered."""

    reset: bool
    action: int = 0
    mode: str = ""
    seed: int | None = None


@dataclass(slots=True)
class _SlotRecord:
    """What is known of one slot.

    Attributes:
        shaken: Whether a fault may have begun its episode again, since the last one
            started.
        unsure: How many episodes may have begun without a row.
        over: Whether the next step is a reset.
        task: What was assigned for its next episode.
        again: What an episode was about that was cut short, and is to be begun again.
        lost: Whether a mistake was made, so that nothing is known any more.
    """

    index: int
    number: int = -1
    restarts: int = 0
    shaken: bool = False
    unsure: int = 0
    episode: KnownEpisode | None = None
    obs: Any = None
    over: bool = True
    task: Any = None
    again: Any = None
    command: _Command | None = None
    lost: bool = False


class Wrong(AssertionError):
    """A row is not what it has to be."""


class Referee:
    """Knows what every slot of a pool has to return.

    Args:
        slots: how many.
        root: the pool's root seed.
        form: as of the env.
        mean_length: as of the env.
    """

    def __init__(
        self, slots: int, root: int, form: str = "plain", mean_length: int = MEAN_LENGTH
    ) -> None:
        self.mistakes: list[str] = []
        # By what they were: reset, valid, cut or filler.
        self.rows: Counter[str] = Counter()
        self.episodes = 0
        self._root, self._form, self._mean_length = root, form, mean_length
        self._slots = [_SlotRecord(index) for index in range(slots)]

    # What was sent --------------------------------------------------------------------

    def sent_reset(
        self,
        slots: Iterable[int],
        root: int | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """These slots are being reset; with a new root seed, or seeds of their own."""
        if root is not None:
            self._root = root
            for each in self._slots:
                each.number, each.restarts, each.unsure = -1, 0, 0
        for position, slot in enumerate(slots):
            seed = None if seeds is None else seeds[position]
            self._command(slot, _Command(reset=True, seed=seed))

    def sent(self, slots: Iterable[int], actions: Iterable[Any], mode: str) -> None:
        """These slots are being stepped."""
        for slot, action in zip(slots, actions, strict=True):
            self._command(slot, _Command(False, int(action), mode))

    def _command(self, slot: int, command: _Command) -> None:
        assert self._slots[slot].command is None, f"slot {slot} has a command already"
        self._slots[slot].command = command

    def assigned(self, slot: int, task: Any) -> None:
        """The slot's next episode has this task."""
        self._slots[slot].task = task

    def shaken(self, slots: Iterable[int]) -> None:
        """Something happened to the worker of these slots."""
        for slot in slots:
            self._slots[slot].shaken = True

    # What came back -------------------------------------------------------------------

    @property
    def idle(self) -> list[int]:
        """The slots without a command."""
        return [slot.index for slot in self._slots if slot.command is None]

    @property
    def over(self) -> list[int]:
        """The slots whose episode has ended, or not begun, or is not known."""
        return [slot.index for slot in self._slots if slot.over or slot.lost]

    def check(self, step: Step) -> list[tuple[int, Fault]]:
        """Compare every row; returns the faults in them, by slot."""
        faults = []
        for position, index in enumerate(step.slots.tolist()):
            row = self._row(step, position)
            slot, fault = self._slots[index], row["info"].pop("fault", None)
            if fault is not None:
                faults.append((index, fault))
            try:
                self._check(slot, row, fault)
            except Wrong as wrong:
                shown = ", ".join(f"{name}={row[name]!r:.120}" for name in row)
                self.mistakes.append(f"slot {index}: {wrong}; the row is {shown}")
                slot.lost = True
        return faults

    def _row(self, step: Step, position: int) -> Row:
        space = FORMS[self._form].space
        return {
            "obs": part_of(space, step.obs, position),
            "final_obs": part_of(space, step.final_obs, position),
            **{name: getattr(step, name)[position].item() for name in FIGURES},
            "info": dict(step.infos.of(position)),
            "final_info": step.final_infos.get(position),
        }

    def _check(self, slot: _SlotRecord, row: Row, fault: Fault | None) -> None:
        command, slot.command = slot.command, None
        if slot.lost:
            return
        if command is None:
            raise Wrong("a row without a command")
        slot.shaken |= fault is not None
        if command.reset or slot.over:
            self.rows["reset" if command.reset else "filler"] += 1
            if command.reset:
                slot.again = None
            elif slot.episode is None:
                raise Wrong("a row of an episode that never began")
            self._started(slot, row, command.seed)
            _compare(row, valid=command.reset, reward=0.0, terminated=False)
            _compare(row, truncated=False, episode_return=0.0, episode_length=0)
        else:
            self.rows["valid" if row["valid"] else "cut"] += 1
            assert slot.episode is not None
            self._stepped(slot, slot.episode, row, command, fault)
        slot.obs = row["obs"]

    def _started(self, slot: _SlotRecord, row: Row, seed: int | None = None) -> None:
        """A row that shows the first observation of an episode."""
        _compare(row, started=True)
        again = seed is None and self._place(slot, row["seed"])
        if seed is not None:
            _compare(row, seed=seed)
            slot.number, slot.restarts = slot.number + 1, 0
            slot.unsure += slot.shaken  # or the one after: its seed does not tell
        task = slot.again if again and slot.task is None else slot.task
        self.episodes += 1
        slot.episode = KnownEpisode(row["seed"], task, self._form, self._mean_length)
        slot.task = slot.again = None
        slot.over = slot.shaken = False
        first = slot.episode.first()
        _compare(row, obs=first.obs, info=first.info)

    def _place(self, slot: _SlotRecord, seed: int) -> bool:
        """Find the episode of a seed: the next one, unless faults are known of.

        Returns:
            True if it is an earlier one, begun again.
        """
        before = slot.number, slot.restarts
        number = slot.number + 1
        if seed == episode_seed(self._root, slot.index, number):
            slot.number, slot.restarts = number, 0
            return False
        if not (slot.shaken or slot.unsure):
            raise Wrong(f"the seed is not that of episode {number}")
        end = slot.number + slot.unsure + MAX_SKIPPED_EPISODES
        for number, restarts in product(range(slot.number, end), range(MAX_RESTARTS)):
            if (number, restarts) <= before or number < 0:
                continue
            parts = (number, SeedDomain.RESTARTS, restarts) if restarts else (number,)
            if seed == episode_seed(self._root, slot.index, *parts):
                slot.number, slot.restarts, slot.unsure = number, restarts, 0
                return number == before[0]
        raise Wrong(f"the seed is of no episode after {before}")

    def _stepped(
        self,
        slot: _SlotRecord,
        episode: KnownEpisode,
        row: Row,
        command: _Command,
        fault: Fault | None,
    ) -> None:
        """A row with a transition in it, or one for an episode that broke off."""
        if row["valid"]:
            answer = episode.step(command.action)
        elif fault is None:
            raise Wrong("the row is not valid and no fault says why")
        else:  # truncated, and nothing was earned
            answer = Answer(slot.obs, 0.0, False, True, {})
            slot.again = episode.task
        _compare(row, reward=answer.reward, terminated=answer.terminated)
        _compare(row, truncated=answer.truncated, episode_return=episode.total)
        _compare(row, episode_length=episode.length)
        if answer.ended:
            _compare(row, final_obs=answer.obs)
        if answer.ended and command.mode == "same_step":
            if row["valid"]:
                _compare(row, final_info=answer.info)
            self._started(slot, row)
        else:
            slot.over = answer.ended
            _compare(row, started=False, obs=answer.obs, info=answer.info)


def _compare(row: Row, **expected: Any) -> None:
    """These values of a row have to be so, to the last bit."""
    for name, value in expected.items():
        if difference(name, row[name], value):
            raise Wrong(f"{name} is {row[name]!r:.200} instead of {value!r:.200}")
