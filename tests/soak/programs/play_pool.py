"""Plays a program on a `Pool`: all slots, some, the first ready, those named."""

from __future__ import annotations

from functools import partial
from typing import Any

from corral.core import NO_TASK, Step
from corral.engine.pool import Pool
from corral.errors import CorralError, Fault, FaultError
from tests.soak.programs.compare import difference, obs_difference
from tests.soak.programs.env import build
from tests.soak.programs.flock import Flock
from tests.soak.programs.kinds import DEADLY, HANGING
from tests.soak.programs.program import Program, options_of
from tests.soak.programs.stage import ProgramPlay, errors_for, start_errors_for
from tests.soak.programs.truth import ExpectedRow, kept

MODES = ("same_step", "next_step", "off")
SCALARS = (
    "reward",
    "terminated",
    "truncated",
    "started",
    "valid",
    "episode_return",
    "episode_length",
    "seed",
)
KINDS = {**dict.fromkeys(DEADLY, "died"), HANGING: "hung"}


class PoolPlay(ProgramPlay):
    """A pool, and one row expected of every slot that has a command under way."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.expected: dict[int, ExpectedRow] = {}
        self.broken = False
        """Whether a worker is gone, so that nothing is left but to close."""

    def open(self) -> Pool:
        """The pool of the program."""
        program = self.program
        options: dict[str, Any] = {
            "backend": program.backend,
            "autoreset": program.autoreset,
            "seed": self.root,
            "copy": program.copy,
            **options_of(program),
        }
        if program.api == "batched":
            return Pool(
                Flock, program.slots, env_kwargs={"kind": self.kind}, batched=True,
                **options,
            )  # fmt: skip
        if self.rng.random() < 0.5:
            return Pool(self.factories, **options)
        options["env_kwargs"] = {"kind": self.kind}
        return Pool(build, program.slots, **options)

    def play(self) -> None:
        """All of it."""
        try:
            pool = self.open()
        except CorralError as error:
            if not self.cannot_start:
                raise
            self.unexpected(error, start_errors_for(self.kind.fault, own=False))
            return
        with pool:
            if self.cannot_start:
                self.missing("construct")
                return
            self.pool = pool
            self.begin()
            while self.turns_left() and not self.broken:
                self.turn()
            if self.expected and not self.broken:
                self.receive()
            self.look_again()

    def begin(self) -> None:
        """The first reset, of all."""
        self.left = self.program.steps * self.program.slots
        self.reset(list(range(self.program.slots)))
        if not self.broken:
            self.receive()

    def turns_left(self) -> bool:
        """Whether there is anything left to do."""
        return self.left > 0

    def turn(self) -> None:
        """Send to some, then receive some."""
        if self.rng.random() < 0.08 and not self.expected:
            self.ask()
        idle = [s for s in range(self.program.slots) if s not in self.expected]
        chosen = idle if self.program.style == "all" else self.some_of(idle)
        self.send(chosen)
        if self.expected and not self.broken:
            self.receive()

    def some_of(self, slots: list[int]) -> list[int]:
        """A few of them, at least one, in any order."""
        if not slots:
            return []
        if self.program.api == "batched" and self.program.autoreset == "same_step":
            return slots
        return self.rng.sample(slots, self.rng.randint(1, len(slots)))

    # Sending --------------------------------------------------------------------------

    def send(self, slots: list[int]) -> None:
        """Step these slots; those that want a reset are reset."""
        mode = self.mode()
        resets = [s for s in slots if self.wants_reset(s, mode)]
        steps = [s for s in slots if s not in resets]
        self.left -= max(1, len(slots))
        if resets:
            self.reset(resets)
        if steps and not self.broken:
            self.step(steps, mode)

    def mode(self) -> str:
        """Which autoreset mode the next send has."""
        own = self.program.autoreset
        other = self.rng.random() < 0.1 and self.program.api == "pool"
        return self.rng.choice(MODES) if other else own

    def wants_reset(self, slot: int, mode: str) -> bool:
        """Whether a slot cannot be stepped, or should not be this time."""
        truth = self.slots[slot]
        if truth.failed or (truth.over and mode == "off"):
            return True
        return self.rng.random() < 0.04

    def reset(self, slots: list[int]) -> None:
        """Begin episodes, in one of the ways there are."""
        whole = len(slots) == self.program.slots
        seed = seeds = options = tasks = None
        if self.rng.random() < 0.3:
            seeds = [self.rng.choice((None, self.rng.getrandbits(40))) for _ in slots]
        if self.rng.random() < 0.2:
            options = {"level": self.rng.randint(0, 9)}
        if self.rng.random() < 0.2:
            tasks = [self.rng.randint(0, 99) for _ in slots]
        if whole and self.rng.random() < 0.2:
            seed = self.rng.getrandbits(31)
            for truth in self.slots:
                truth.new_root(seed)
        self.pool.send_reset(
            slots, seed=seed, seeds=seeds, options=options, tasks=tasks
        )
        for place, slot in enumerate(slots):
            own = None if seeds is None else seeds[place]
            task = NO_TASK if tasks is None else tasks[place]
            self.expect(slot, self.slots[slot].reset(own, options, task))

    def step(self, slots: list[int], mode: str) -> None:
        """Step them."""
        items = self.actions(slots)
        whole = slots == list(range(self.program.slots))
        other: dict[str, Any] = {}
        if mode != self.program.autoreset:
            other["autoreset"] = mode
        if whole and self.rng.random() < 0.7:
            self.pool.send(self.batch(items), **other)
        else:
            self.pool.send(self.batch(items), slots, **other)
        for slot, item in zip(slots, items, strict=True):
            self.expect(slot, self.slots[slot].step(item, mode))

    def expect(self, slot: int, row: ExpectedRow) -> None:
        """What a slot has to come back with."""
        self.expected[slot] = kept(self.program.info_choice, row)

    # Receiving ------------------------------------------------------------------------

    def receive(self) -> None:
        """Take what is under way, or some of it, and look at it."""
        try:
            step = self.received()
        except FaultError as error:
            self.fault(error)
            return
        except CorralError as error:
            if not error.faults:
                raise
            self.fault(error)
            return
        faults = [self.expected[s].fault for s in step.slots.tolist()]
        if any(faults) and self.program.on_fault == "raise":
            self.missing(next(filter(None, faults)))
        self.compare(step)

    def received(self) -> Step:
        """In the way of the program's style."""
        style, under_way = self.program.style, len(self.expected)
        if style == "first":
            return self.pool.recv(min_slots=self.rng.randint(1, under_way))
        if style == "named":
            return self.pool.recv(slots=self.some_of(sorted(self.expected)))
        return self.pool.recv()

    def compare(self, step: Step) -> None:
        """Every row of a step."""
        owned = self.program.copy
        for position, slot in enumerate(step.slots.tolist()):
            row = self.expected.pop(slot)
            if owned:
                self.again(lambda p=position, r=row: self.row(step, p, r))  # type: ignore[misc]
            else:
                self.check(self.row(step, position, row))

    def row(self, step: Step, position: int, row: ExpectedRow) -> str:
        """Where a row is not as expected."""
        where = f"slot {step.slots[position]}: "
        for name in SCALARS:
            got = getattr(step, name)[position].item()
            found = difference(got, getattr(row, name), where + name)
            if found:
                return found
        info = dict(step.infos.of(position))
        told = info.pop("fault", None)
        found = self.fault_text(told, row, where)
        found = found or obs_difference(
            self.obs_space, step.obs, position, row.obs, f"{where}obs"
        )
        if not found and row.ended:
            batch = step.final_obs
            found = obs_difference(
                self.obs_space, batch, position, row.final_obs, f"{where}final_obs"
            )
        found = found or difference(info, row.info, f"{where}info")
        if not found and row.final_info is not None:
            final = step.final_infos.get(position)
            found = difference(final, row.final_info, f"{where}final_info")
        return found

    def fault_text(self, fault: Fault | None, row: ExpectedRow, where: str) -> str:
        """Where what is told of a fault is not as expected."""
        kind = KINDS.get(row.fault, "raised") if row.fault else None
        got = None if fault is None else fault.kind
        return difference(got, kind, f"{where}the fault's kind")

    def fault(self, error: CorralError) -> None:
        """An error, whose batch has rows all the same."""
        slots = [fault.slot for fault in error.faults] or [error.fault.slot]  # type: ignore[union-attr]
        for slot in slots:
            row = None if slot is None else self.expected.pop(slot, None)
            if row is None or not row.fault:
                raise error
            self.unexpected(error, errors_for(row.fault, own=False))
        if error.step is not None:
            self.compare(error.step)
        self.broken = self.kind.dies

    # Questions ------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the environments something, or change something in them."""
        slots = self.some_of(list(range(self.program.slots)))
        if self.program.api == "batched" or not slots:
            return
        number = float(self.rng.randint(0, 9))
        way = self.rng.choice(("get_attr", "set_attr", "call", "apply", "assign"))
        getattr(self, f"ask_by_{way}")(slots, number)

    def ask_by_get_attr(self, slots: list[int], _: float) -> None:
        """Read an attribute."""
        got = self.pool.get_attr("bonus", slots)
        truth = [self.slots[s].ask(lambda env: env.unwrapped.bonus) for s in slots]
        self.check(difference(list(got), truth, "get_attr"))

    def ask_by_set_attr(self, slots: list[int], number: float) -> None:
        """Set an attribute, one value for all or one for each."""
        values = [number + s * (number % 2) for s in slots]
        given: Any = values if number % 2 else number
        self.pool.set_attr("bonus", given, slots)
        for slot, value in zip(slots, values, strict=True):
            self.slots[slot].ask(partial(set_bonus, value=value))

    def ask_by_call(self, slots: list[int], number: float) -> None:
        """Call a method."""
        got = self.pool.call("add", number, slots=slots, twice=True)
        truth = [
            self.slots[s].ask(lambda env: env.unwrapped.add(number, twice=True))
            for s in slots
        ]
        self.check(difference(list(got), truth, "call"))

    def ask_by_apply(self, slots: list[int], number: float) -> None:
        """Have a function run beside them."""
        got = self.pool.apply(grown, number, slots=slots)
        truth = [self.slots[s].ask(lambda env: grown(env, number)) for s in slots]
        self.check(difference(list(got), truth, "apply"))

    def ask_by_assign(self, slots: list[int], number: float) -> None:
        """Give their next episodes tasks."""
        for slot in slots:
            self.pool.assign(slot, number)
            self.slots[slot].next_task = number


def grown(env: Any, number: float) -> tuple[float, int]:
    """Something to do beside an environment."""
    env.unwrapped.bonus += number
    return env.unwrapped.bonus, env.unwrapped.length()


def set_bonus(env: Any, value: float) -> None:
    """What `set_attr` does."""
    env.unwrapped.bonus = value


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = PoolPlay(program)
    return stage.finished(stage.play)
