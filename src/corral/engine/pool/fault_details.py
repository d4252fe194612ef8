"""What the parent knows of a fault: the episode, its actions, the worker's output.

The worker of an env that raised has described most of it. Of a worker that was killed,
the block and the caller's requests are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from corral.core import NO_TASK
from corral.engine.executors.assign import worker_and_index
from corral.engine.executors.contract import Assignment, Executor
from corral.engine.layout.plan import (
    BEGIN_TICKET,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    EPISODE_SEED,
    FIRST_BEGIN_TICKET,
    TICKET_MASK,
    DataViews,
)
from corral.engine.pool.actions import Actions
from corral.engine.pool.state import PoolState
from corral.engine.worker.episode_plan import sampled_task
from corral.engine.worker.letters import Unsendable
from corral.engine.worker.rebuild_spec import RebuildSpec
from corral.errors import EpisodeRecord, Fault, SpaceMismatch, UsageError

MAX_SHOWN_ACTIONS = 8
"""Actions that a fault shows; its episode has them all."""
MAX_OUTPUT_CHARACTERS = 4096
"""Characters of output that are kept with an exception."""
QUESTION_COMMANDS = ("call", "render", "get_attr", "set_attr", "apply")
REPLAYABLE_COMMANDS = ("construct", "reset", "step", *QUESTION_COMMANDS)
"""Commands that can be repeated with an env that is built again."""
STEPS_BEFORE_RESET = 16
"""Steps before a failed reset that are kept, since they may be the cause."""
CRASH_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
"""Signals that end native code; another env in the process may be the cause."""


@dataclass(frozen=True, slots=True)
class FaultDetails:
    """Completes faults."""

    assignment: Assignment
    executor: Executor
    state: PoolState
    actions: Actions
    views: DataViews

    def of_exception(self, fault: Fault, asked: tuple[str, Any] | None = None) -> Fault:
        """The fault of an env that raised; `asked`: the question, if it was one."""
        if fault.worker is not None and not fault.output:
            output = self.executor.output(fault.worker)[-MAX_OUTPUT_CHARACTERS:]
            fault = replace(fault, output=output)
        if fault.slot is None or fault.kind != "raised":
            return fault
        ticket = self.state.tickets.of(fault.slot)
        if fault.command in QUESTION_COMMANDS:  # another step may have been sent since
            began = int(self.executor.episode[fault.slot, BEGIN_TICKET])
            ticket = began + (fault.step or 0)
        return self._with_episode(self._with_company(fault), ticket, asked)

    def of_dead_worker(
        self, fault: Fault, worker: int, asked: tuple[str, Any] | None = None
    ) -> Fault:
        """The fault of a worker that ended: of the slot that it was running, if any.

        Args:
            fault: what its executor knows.
            worker: which.
            asked: the question that its slot was asked, if any.
        """
        building = fault.command in ("start", "construct") and fault.slot is None
        if fault.kind == "start" or building:
            return with_rebuild_spec(
                fault, self.assignment, self.executor.shards, self._one_process
            )
        if fault.command in QUESTION_COMMANDS and fault.slot is not None:
            return self.of_lost_slot(fault, fault.slot, asked)
        # The slot that it was running, if that is not done; else the first such slot.
        late = self.state.unfinished(self.executor.shards[worker])
        if not late:
            return replace(fault, slot=None)
        return self.of_lost_slot(fault, fault.slot if fault.slot in late else late[0])

    def of_lost_slot(
        self, fault: Fault, slot: int, asked: tuple[str, Any] | None = None
    ) -> Fault:
        """The fault of a slot whose worker ended, from what the block has of it."""
        words = self.executor.episode[slot].tolist()
        answering = fault.command in QUESTION_COMMANDS
        done = int(self.executor.done[slot])
        ticket = done if answering else self.state.tickets.of(slot)
        steps = 0 if self._in_reset(slot, ticket) else ticket - words[BEGIN_TICKET]
        command = fault.command
        if command in ("step", "reset"):
            command = "step" if steps & TICKET_MASK else "reset"
        about = self._episode_request(slot, words)
        task, missing = about.get("task", NO_TASK), about.get("missing", "")
        seed = self._seed(slot, words, ticket)
        fault = replace(
            fault,
            slot=slot,
            command=command,
            step=steps & TICKET_MASK,
            seed=about.get("seed") if seed is None else seed,
            task=None if task is NO_TASK else task,
            has_task=task is not NO_TASK,
            options=about.get("options"),
        )
        return self._with_episode(self._with_company(fault), ticket, asked, missing)

    def task_of(self, slot: int) -> Any:
        """The task of the slot's episode, if the caller gave one."""
        words = self.executor.episode[slot].tolist()
        return self.state.requests.about(slot, words[FIRST_BEGIN_TICKET]).get(
            "task", NO_TASK
        )

    @property
    def _one_process(self) -> bool:
        """Whether all slots run in one process."""
        return not self.executor.capabilities.survives_deaths

    def _with_company(self, fault: Fault) -> Fault:
        if self.assignment.options.batched:
            return fault
        return with_company(fault, self.executor.shards, self._one_process)

    # A worker that is gone ------------------------------------------------------------

    def _in_reset(self, slot: int, ticket: int) -> bool:
        """Whether no step of an episode was under way."""
        ticket &= TICKET_MASK
        if self.state.is_reset(slot) and self.state.tickets.of(slot) == ticket:
            return True
        if int(self.executor.episode[slot, BEGIN_TICKET]) == ticket:
            return True  # a step that began an episode, or was about to
        row = self.views.record[int(self.executor.done[slot]) & 1, slot]
        return bool(row["terminated"] or row["truncated"]) and not row["started"]

    def _seed(self, slot: int, words: list[int], ticket: int) -> int | None:
        if words[BEGIN_TICKET] != ticket & TICKET_MASK and self._in_reset(slot, ticket):
            # The episode had not begun: its seed is known if the caller gave it.
            given = int(self.executor.reset_seed[slot])
            return given if self.state.is_reset(slot) and given >= 0 else None
        return None if words[EPISODE_SEED] < 0 else words[EPISODE_SEED]

    def _episode_request(self, slot: int, words: list[int]) -> dict[str, Any]:
        about = self.state.requests.about(slot, words[FIRST_BEGIN_TICKET])
        if words[EPISODE_RESTARTS] and words[BEGIN_TICKET] != words[FIRST_BEGIN_TICKET]:
            about.pop("options", None)  # restarted with its task alone
            about.pop("seed", None)
        if "task" not in about:
            try:
                about["task"] = sampled_task(
                    self.assignment.options, slot, words[EPISODE_NUMBER]
                )
            except Exception as error:  # it may need what only a worker has
                about["missing"] = (
                    f"its task is not known: sample_task raised "
                    f"{type(error).__name__} when it was called again in the parent"
                )
        return about

    # Episodes -------------------------------------------------------------------------

    def _with_episode(
        self,
        fault: Fault,
        ticket: int,
        asked: tuple[str, Any] | None,
        missing: str = "",
    ) -> Fault:
        """The fault with its last actions and, if its env is to blame, the episode."""
        assert fault.slot is not None and fault.worker is not None
        steps = fault.step or 0
        if not self._is_replayable(fault):
            steps = min(steps, MAX_SHOWN_ACTIONS)
            actions = self.actions.last(fault.slot, ticket, steps)
            return replace(fault, last_actions=actions)
        actions = self.actions.last(fault.slot, ticket, steps)
        before, beside = self._beside(fault, actions)
        episode = EpisodeRecord(
            kit=self._rebuild_spec(fault.slot, fault.worker),
            seed=fault.seed,
            options=fault.options,
            task=fault.task if fault.has_task else NO_TASK,
            actions=actions,
            asked=asked,
            missing=missing or self._what_is_missing(fault, len(actions)),
            notes=tuple(self._replay_notes(fault)),
            before=before,
            beside=beside,
        )
        return replace(
            fault, last_actions=actions[-MAX_SHOWN_ACTIONS:], episode=episode
        )

    def _beside(
        self, fault: Fault, actions: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], EpisodeRecord | None]:
        """The slot's steps before a reset, and its neighbour's episode meanwhile."""
        slot = fault.slot
        if not fault.company or slot is None:
            return (), None
        before: tuple[Any, ...] = ()
        if fault.command == "reset":
            before = self._last_steps(slot, STEPS_BEFORE_RESET)
        first = 0 if self._one_process else self.executor.shards[fault.worker or 0][0]
        other = slot - 1 if slot > first else slot + 1
        words = self.executor.episode[other].tolist()
        about = self._episode_request(other, words)
        worker, _ = worker_and_index(other, self.executor.shards)
        return before, EpisodeRecord(
            self._rebuild_spec(other, worker),
            task=about.get("task", NO_TASK),
            seed=about.get("seed") if words[EPISODE_SEED] < 0 else words[EPISODE_SEED],
            options=about.get("options"),
            actions=self._last_steps(other, len(before or actions)),
        )

    def _last_steps(self, slot: int, count: int) -> tuple[Any, ...]:
        """The actions of the slot's last steps, over all its episodes."""
        ticket = self.state.tickets.of(slot) - self.state.is_reset(slot)
        return self.actions.last(slot, ticket, min(count, max(0, ticket - 1)))

    @staticmethod
    def _is_replayable(fault: Fault) -> bool:
        if fault.kind == "shardmate" or fault.command not in REPLAYABLE_COMMANDS:
            return False
        # The caller's mistakes, such as a step after the end, are not the env's.
        mistake = isinstance(fault.exception, UsageError)
        return not mistake or isinstance(fault.exception, SpaceMismatch)

    def _rebuild_spec(self, slot: int, worker: int) -> RebuildSpec:
        shard = self.executor.shards[worker]
        return rebuild_spec_of(self.assignment, slot, worker, shard)

    def _what_is_missing(self, fault: Fault, known: int) -> str:
        steps = fault.step or 0
        if isinstance(fault.task, Unsendable):
            return "its task cannot be pickled"
        if known == steps:
            return ""
        if self.actions.codec.mailed:
            return "its actions have no fixed size, and such actions are not kept"
        if known < self.actions.rows:
            return "one of its actions did not fit the action space, and was not kept"
        return (
            f"it had {steps} steps, and for this action space the block keeps the last "
            f"{self.actions.rows} actions: they are known from step "
            f"{steps - known + 1} on"
        )

    def _replay_notes(self, fault: Fault) -> list[str]:
        notes = []
        if fault.seed is None:
            notes.append(
                "the episode began without a seed, so the replay has other random "
                "numbers"
            )
        questions = self.state.question_count - (fault.command in QUESTION_COMMANDS)
        if questions:
            notes.append(
                f"the pool made {questions} calls to the envs before (call, set_attr "
                "and the like), which the replay does not repeat"
            )
        return notes


def rebuild_spec_of(
    assignment: Assignment, slot: int, worker: int, shard: range
) -> RebuildSpec:
    """What it takes to build a slot's env."""
    return RebuildSpec(
        slot=slot,
        worker=worker,
        shard=shard,
        root_seed=assignment.options.root_seed,
        isolate_rng=assignment.options.isolate_rng,
        device=assignment.device(worker),
        functions=(
            assignment.factories[slot],
            assignment.worker_init,
            assignment.per_worker,
        ),
        shared=assignment.shared,
        batched=assignment.options.batched,
    )


def with_company(fault: Fault, shards: list[range], one_process: bool) -> Fault:
    """The fault with the number of other envs in its process, if they may be the cause.

    Args:
        fault: of an env that raised, or whose process crashed.
        shards: the slots of every worker.
        one_process: whether all workers run in one process.
    """
    slot, building = fault.slot, fault.command == "construct"
    crashed = fault.kind == "died" and fault.signal_name in CRASH_SIGNALS
    if (
        slot is None
        or fault.command not in ("construct", "reset", "step")
        or isinstance(fault.exception, UsageError)
        or not (crashed or fault.kind in ("raised", "start"))
    ):
        return replace(fault, company=0)
    mates = range(shards[-1].stop)
    if not one_process:
        mates = next(shard for shard in shards if slot in shard)
    return replace(fault, company=slot - mates.start if building else len(mates) - 1)


def with_rebuild_spec(
    fault: Fault, assignment: Assignment, shards: list[range], one_process: bool
) -> Fault:
    """The fault of an env that could not be built, with what it takes to build it."""
    worker, slot = fault.worker, fault.slot
    if worker is None or (fault.kind, fault.command) == ("start", "start"):
        return fault  # there was no process to build it in
    shard = range(slot or 0, 1 + (slot or 0))
    if shards:
        shard = shards[worker]
    if slot is None and (fault.kind == "start" or (shards and len(shard) == 1)):
        slot = shard.start  # what fails before the first factory fails for any slot
    if slot is None:
        return fault
    if shards and not assignment.options.batched:
        fault = with_company(fault, shards, one_process)
    beside = None
    if fault.company:  # the env that was built before it
        kit = rebuild_spec_of(assignment, slot - 1, worker, shard)
        beside = EpisodeRecord(kit, NO_TASK)
    kit = rebuild_spec_of(assignment, slot, worker, shard)
    return replace(fault, episode=EpisodeRecord(kit, NO_TASK, beside=beside))
