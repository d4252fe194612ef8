"""What the parent knows of a fault: the episode, its actions, the worker's output.

The worker of an env that raised has described most of it. Of a worker that was killed,
the block and the caller's requests are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from corral.core import NO_TASK
from corral.engine.adapters.team import Team
from corral.engine.executors.assign import worker_and_index
from corral.engine.executors.contract import Assignment, Executor
from corral.engine.faults.advice import QUESTION_COMMANDS, mistake_in
from corral.engine.layout.plan import (
    BEGIN_TICKET,
    EPISODE_NUMBER,
    EPISODE_RESTARTS,
    EPISODE_SEED,
    FIRST_BEGIN_TICKET,
    QUESTION_NUMBER,
    ROW_MASK,
    DataViews,
    steps_since,
)
from corral.engine.pool.actions import Actions
from corral.engine.pool.state import Asked, PoolState
from corral.engine.worker.autoreset import HOLD
from corral.engine.worker.episode_plan import sampled_task
from corral.engine.worker.letters import Unsendable
from corral.engine.worker.rebuild_spec import RebuildSpec
from corral.errors import EpisodeRecord, Fault, SpaceMismatch

# Actions that a fault shows; its episode has them all.
MAX_SHOWN_ACTIONS = 8
# Characters of output that are kept with an exception.
MAX_OUTPUT_CHARACTERS = 4096
# Commands that can be repeated with an env that is built again.
REPLAYABLE_COMMANDS = ("construct", "reset", "step", *QUESTION_COMMANDS)
# Steps before a failed reset that are kept, since they may be the cause.
STEPS_BEFORE_RESET = 16
# Signals that end native code; another env in the process may be the cause.
CRASH_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Where an env is built: its worker, and the envs beside it.

    Attributes:
        shards: The slots of every worker; [] before they are known.
        one_process: Whether all workers run in one process.
    """

    assignment: Assignment
    shards: list[range]
    one_process: bool

    def rebuild_spec(self, slot: int, shards: list[range] | None = None) -> RebuildSpec:
        """What it takes to build a slot's env."""
        assignment, shards = self.assignment, shards or self.shards
        worker, _ = worker_and_index(slot, shards)
        options, factory = assignment.options, assignment.factories[slot]
        return RebuildSpec(
            slot=slot,
            worker=worker,
            shard=shards[worker],
            root_seed=options.root_seed,
            isolate_rng=options.isolate_rng,
            device=assignment.device(worker),
            functions=(
                *(factory, assignment.worker_init, assignment.per_worker),
                options.task_by,
            ),
            shared=assignment.shared,
            batched=options.batched,
        )

    def company_of(self, fault: Fault) -> int:
        """The number of other envs in its process that may be the cause."""
        slot = fault.slot
        crashed = fault.kind == "died" and fault.signal_name in CRASH_SIGNALS
        if (
            slot is None
            or not self.shards
            or self.assignment.options.batched
            or fault.command not in ("construct", "reset", "step")
            or mistake_in(fault) is not None
            or not (crashed or fault.kind in ("raised", "start"))
        ):
            return 0
        mates = self.mates_of(slot)
        return slot - mates.start if fault.command == "construct" else len(mates) - 1

    def mates_of(self, slot: int) -> range:
        """The slots of its process."""
        if self.one_process:
            return range(self.shards[-1].stop)
        return self.shards[worker_and_index(slot, self.shards)[0]]

    def with_rebuild_spec(self, fault: Fault) -> Fault:
        """The fault of an env that could not be built, with what builds it."""
        worker, slot, shards = fault.worker, fault.slot, self.shards
        if worker is None or (fault.kind, fault.command) == ("start", "start"):
            return fault  # there was no process to build it in
        if slot is None:
            shard = shards[worker] if shards else range(1)
            if fault.kind != "start" and (not shards or len(shard) > 1):
                return fault
            slot = shard.start  # what fails before the first factory fails for any slot
        shards, beside = shards or [range(slot, slot + 1)], None
        company = self.company_of(fault)
        if company:  # the env that was built before it
            beside = EpisodeRecord(self.rebuild_spec(slot - 1, shards), NO_TASK)
        kit = self.rebuild_spec(slot, shards)
        episode = EpisodeRecord(kit, NO_TASK, beside=beside)
        return replace(fault, company=company, episode=episode)


@dataclass(frozen=True, slots=True)
class FaultDetails(Neighbourhood):
    """Completes faults.

    Attributes:
        team: The agents of each env, where it has several.
    """

    executor: Executor
    state: PoolState
    actions: Actions
    views: DataViews
    team: Team | None = None

    def of_exception(self, fault: Fault, asked: Asked | None = None) -> Fault:
        """The fault of an env that raised; `asked`: the question, if it was one."""
        output = self._output_of(fault)
        if fault.slot is None or fault.kind != "raised":
            return replace(fault, output=output)
        ticket = self.state.tickets.of(fault.slot)
        if fault.command in QUESTION_COMMANDS:  # another step may have been sent since
            began = int(self.executor.control.episode[fault.slot, BEGIN_TICKET])
            ticket = began + (fault.step or 0)
        return self._with_episode(fault, ticket, asked, output=output)

    def of_site(self, fault: Fault) -> Fault:
        """The fault of a site or of its envs, which its worker has described."""
        known: dict[str, Any] = {"output": self._output_of(fault)}
        if fault.episode is not None and isinstance(fault.episode.kit, int):
            known["company"] = self.company_of(fault)
            known["episode"] = self._rebuilt(fault.episode)
        return replace(fault, **known)

    def _rebuilt(self, episode: EpisodeRecord) -> EpisodeRecord:
        """The episode with what builds its env in place of a slot's number."""
        beside = episode.beside and self._rebuilt(episode.beside)
        return replace(episode, kit=self.rebuild_spec(episode.kit), beside=beside)

    def _output_of(self, fault: Fault) -> str:
        if fault.worker is None or fault.output:
            return fault.output
        return self.executor.output(fault.worker)[-MAX_OUTPUT_CHARACTERS:]

    def of_dead_worker(self, fault: Fault) -> Fault:
        """The fault of a worker that ended: of the slot that it was running, if any."""
        if fault.worker is None:
            return fault
        building = fault.command in ("start", "construct") and fault.slot is None
        if fault.kind == "start" or building:
            return self.with_rebuild_spec(fault)
        shard, slot = self.shards[fault.worker], fault.slot
        if fault.command not in QUESTION_COMMANDS or slot is None:
            unfinished = self.state.unfinished(shard)
            late = [one for one in unfinished if not self._is_held(one)]
            # What it was running, if that is not done; else the first such slot.
            slot = slot if slot in late else next(iter(late), None)
        others = sum(one != slot and self._has_episode(one) for one in shard)
        fault = replace(fault, slot=slot, others=others)
        return fault if slot is None else self.of_lost_slot(fault, slot)

    def _has_episode(self, slot: int) -> bool:
        """Whether an episode of the slot has begun, and neither failed nor is over."""
        word = int(self.executor.control.episode[slot, BEGIN_TICKET])
        begun = self.state.has_begun(slot, word)
        failed = self.state.has_failed(slot)
        return begun and not failed and not self.episode_is_over(slot)

    def _is_held(self, slot: int) -> bool:
        """Whether the slot repeats the last row of an episode that is over."""
        return self.state.is_stepped(slot, HOLD) and self.episode_is_over(slot)

    def _asked(self, worker: int, slot: int) -> tuple[Asked | None, str]:
        """What a slot of a worker that ended was asked; why that is missing."""
        question = self.state.questions.get(worker)
        number = int(self.executor.control.vitals[worker, QUESTION_NUMBER])
        if question is None or question.number != number:
            return None, "it was asked by a call that was given up"
        asked = question.to(slot)
        return asked, "" if asked else "what it was asked is not known"

    def of_lost_slot(self, fault: Fault, slot: int) -> Fault:
        """The fault of a slot whose worker ended, from what the block has of it."""
        began = int(self.executor.control.episode[slot, BEGIN_TICKET])
        last = self.state.tickets.word(slot)
        answering = fault.command in QUESTION_COMMANDS
        ticket = int(self.executor.control.done[slot]) if answering else last
        in_reset = (
            (self.state.is_reset(slot) and last == ticket)
            or began == ticket  # a step that began an episode, or was about to
            or self.episode_is_over(slot)
        )
        steps = 0 if in_reset else steps_since(began, ticket)
        command = fault.command
        if command in ("step", "reset"):
            command = "step" if steps else "reset"
        begun = self.state.tickets.whole(slot, ticket) and began == ticket
        about = self._known_of(slot, has_begun=not in_reset or bool(begun))
        task = about["task"]
        fault = replace(
            fault,
            slot=slot,
            command=command,
            step=steps,
            seed=about["seed"],
            task=None if task is NO_TASK else task,
            has_task=task is not NO_TASK,
            options=about["options"],
        )
        assert fault.worker is not None
        asked, missing = self._asked(fault.worker, slot) if answering else (None, "")
        return self._with_episode(fault, ticket, asked, missing or about["missing"])

    def episode_is_over(self, slot: int) -> bool:
        """Whether the slot's last finished command ended an episode and began none."""
        row = self.views.record[int(self.executor.control.done[slot]) & ROW_MASK, slot]
        return bool(row["terminated"] or row["truncated"]) and not row["started"]

    def task_of(self, slot: int) -> Any:
        """The task of the slot's episode, if the caller gave one."""
        first = int(self.executor.control.episode[slot, FIRST_BEGIN_TICKET])
        return self.state.request_of(slot, first).get("task", NO_TASK)

    def _known_of(self, slot: int, has_begun: bool = True) -> dict[str, Any]:
        """Seed, options and task of the slot's episode; why its task is missing."""
        words = self.executor.control.episode[slot].tolist()
        about: dict[str, Any] = {"options": None, "seed": None, "missing": ""}
        about.update(self.state.request_of(slot, words[FIRST_BEGIN_TICKET]))
        if words[EPISODE_RESTARTS] and words[BEGIN_TICKET] != words[FIRST_BEGIN_TICKET]:
            about["options"] = about["seed"] = None  # restarted with its task alone
        seed = words[EPISODE_SEED]
        if not has_begun:  # then its seed is known if the caller gave it
            seed = (
                self.executor.control.reset_seed[slot]
                if self.state.is_reset(slot)
                else -1
            )
        if seed >= 0:
            about["seed"] = int(seed)
        if "task" not in about:
            try:
                options, number = self.assignment.options, words[EPISODE_NUMBER]
                about["task"] = sampled_task(options, slot, number)
            except Exception as error:  # it may need what only a worker has
                about["task"] = NO_TASK
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
        asked: Asked | None,
        missing: str = "",
        **known: Any,
    ) -> Fault:
        """The fault with its last actions and, if its env is to blame, the episode.

        All in one replacement, which takes 10 µs; `known` are more of its fields.
        """
        assert fault.slot is not None and fault.worker is not None
        company = self.company_of(fault)
        steps = fault.step or 0
        actions = self.actions.last(fault.slot, ticket, steps)
        shown = actions[-MAX_SHOWN_ACTIONS:]
        if self.team is not None:
            shown = tuple(map(self.team.by_agent, shown))
        known |= {"company": company, "last_actions": shown}
        known["unfit_action"] = self.actions.some_unfit(fault.slot, ticket, steps)
        if _is_replayable(fault):
            before, beside = self._beside(fault, company, actions)
            known["episode"] = EpisodeRecord(
                kit=self.rebuild_spec(fault.slot),
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
        return replace(fault, **known)

    def _beside(
        self, fault: Fault, company: int, actions: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], EpisodeRecord | None]:
        """The slot's steps before a reset, and its neighbours' episodes meanwhile.

        A neighbour on either side: the second is beside the first.
        """
        slot = fault.slot
        if not company or slot is None:
            return (), None
        steps = STEPS_BEFORE_RESET if fault.command == "reset" else 0
        before = self._last_steps(slot, steps)
        mates, beside = self.mates_of(slot), None
        for other in (slot + 1, slot - 1):
            if other in mates:
                about = self._known_of(other)
                beside = EpisodeRecord(
                    self.rebuild_spec(other),
                    task=about["task"],
                    seed=about["seed"],
                    options=about["options"],
                    actions=self._last_steps(other, len(before or actions)),
                    beside=beside,
                )
        return before, beside

    def _last_steps(self, slot: int, count: int) -> tuple[Any, ...]:
        """The actions of the slot's last steps, over all its episodes."""
        ticket = self.state.tickets.of(slot) - self.state.is_reset(slot)
        return self.actions.last(slot, ticket, min(count, max(0, ticket - 1)))

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

    def _replay_notes(self, fault: Fault) -> Iterator[str]:
        if fault.seed is None:
            yield "the episode began without a seed: the replay draws other numbers"
        changes = self.state.change_count
        if fault.command in QUESTION_COMMANDS and self.state.asked_for_change:
            changes -= 1  # this one
        if changes:
            many = f"{changes} calls" if changes > 1 else "1 call"
            yield (
                f"the pool made {many} to the envs before (call, set_attr, apply), "
                "which the replay does not repeat"
            )


@dataclass(frozen=True, slots=True)
class PartDetails(FaultDetails):
    """In a worker: completes the faults of a pool of its slots, for its parent.

    An episode has its slot's number in place of what builds the env, which is the
    parent's to say.

    Attributes:
        first: The first of the slots, as faults number them.
    """

    first: int = 0

    @classmethod
    def of(cls, details: FaultDetails, first: int) -> PartDetails:
        """The same for slots that begin with this one."""
        known = {one.name: getattr(details, one.name) for one in fields(details)}
        return cls(**known, first=first)

    def of_exception(self, fault: Fault, asked: Asked | None = None) -> Fault:
        """The fault of an env that raised."""
        if fault.slot is None:
            return fault
        here = replace(fault, slot=fault.slot - self.first)
        return replace(FaultDetails.of_exception(self, here, asked), slot=fault.slot)

    def rebuild_spec(self, slot: int, shards: list[range] | None = None) -> Any:
        """The slot's number in the whole pool."""
        return self.first + slot


def _is_replayable(fault: Fault) -> bool:
    # The caller's mistakes, such as a step after the end, are not the env's.
    mistake = mistake_in(fault)
    by_env = mistake is None or isinstance(mistake, SpaceMismatch)
    replayable = fault.command in REPLAYABLE_COMMANDS
    return by_env and replayable and fault.kind != "shardmate"
