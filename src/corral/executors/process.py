"""Workers as processes, started clean and supervised.

    parent ── Popen(python -c bootstrap) ──► worker: own session, SIGINT ignored
       │          inherited: block, mailbox, bells, lifeline, log; nothing else
       ├── Welcome, Build, Bind ──►│  (mailbox)
       ├── entries, rings ────────►│  (block)
       └── lifeline ──────────────►│  hangs up when the parent is gone

Not forked: the parent may hold threads, locks or a CUDA context. Not multiprocessing's
spawn either: that imports the user's `__main__` again.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from multiprocessing import spawn
from typing import Any

from corral.core import EnvSpec
from corral.errors import Fault
from corral.executors.belled import BelledExecutor
from corral.executors.contract import Assignment, Capabilities
from corral.executors.output import Output
from corral.executors.reaping import end, has_ended, wait_until
from corral.layout.codec import Codecs
from corral.layout.plan import ControlViews, DataViews, plan_control, plan_data
from corral.supervision.report import error_for, signal_name
from corral.transport import doorbell
from corral.transport.block import Block
from corral.transport.lifeline import Lifeline
from corral.transport.mailbox import Mailbox
from corral.transport.shared_arrays import SharedArrays, share
from corral.workers import luggage, main
from corral.workers.commands import Ask, Verb, entry
from corral.workers.probe import Measurement
from corral.workers.worker import Job


class ProcessExecutor(BelledExecutor):
    """One process per shard."""

    capabilities = Capabilities(survives_deaths=True, deadlines=True, own_globals=True)

    def __init__(self, assignment: Assignment, room: int = 0) -> None:
        """Lay out the control part, with room for what `reassign` may ask for."""
        super().__init__(assignment)
        # Room for the whole pool in each queue: `reassign` may make shards larger.
        workers = max(room, len(self.shards))
        plan = plan_control(assignment.slots, workers, assignment.slots)
        self._packed = _Packed(assignment)
        self._owner = os.getpid()
        self._bound = False
        self._processes: list[subprocess.Popen[bytes]] = []
        _fill_standard_descriptors()
        self._blocks = [Block.create(plan.size, shared=True)]
        self._shared: SharedArrays | None = None
        if assignment.shared:
            block, self._shared = share(assignment.shared)
            self._blocks.append(block)
        self._lifeline = Lifeline.create()
        self._output = Output()
        control = ControlViews(plan, self._blocks[0].memory)
        create = doorbell.create
        self._open_control(control, create(control.memory, control.bell_offset(None)))
        _open_executors.add(self)

    # Starting -------------------------------------------------------------------------

    def launch(self) -> None:
        """Start those that are missing; they import while the parent goes on."""
        missing = range(len(self._processes), len(self.shards))
        if not missing:
            return
        welcome = self._packed.welcome(self._control.plan)
        try:
            for worker in missing:
                self._spawn(worker)
            # Only now: a big registry cannot be posted before the worker reads it.
            for worker in missing:
                self._post(worker, welcome)
        except BaseException:
            self.close(0.0)
            raise
        self._output.start()

    def _spawn(self, worker: int) -> None:
        control = self._control
        bell = doorbell.create(control.memory, control.bell_offset(worker))
        self._bells.append(bell)
        ours, theirs = Mailbox.pair()
        self._mailboxes.append(Mailbox(ours))
        log_read, log_write = os.pipe()
        bells = [b.descriptor for b in (bell, self._bell) if b.descriptor is not None]
        arguments = {
            "worker": worker,
            "block": self._blocks[0].descriptor,
            "control_size": self._blocks[0].size,
            "mailbox": theirs.fileno(),
            "lifeline_descriptor": self._lifeline.read_descriptor,
            "log": log_write,
            "bells": bells,
            "stop_offset": control.plan.stop.offset + 64 * worker,
            "bell_offset": control.bell_offset(worker),
        }
        inherited = [arguments[name] for name in ("block", "mailbox", "log")]
        if self._shared is not None:
            inherited.append(self._shared.descriptor)
        try:
            process = self._popen(
                worker, arguments, [*inherited, self._lifeline.read_descriptor, *bells]
            )
        finally:
            theirs.close()
            os.close(log_write)
        self._processes.append(process)
        assert process.stdout is not None and process.stderr is not None
        stdout, stderr = (os.dup(p.fileno()) for p in (process.stdout, process.stderr))
        process.stdout.close()
        process.stderr.close()
        self._output.add(worker, stdout, stderr, log_read)

    def _popen(
        self, worker: int, arguments: dict[str, Any], inherited: list[Any]
    ) -> subprocess.Popen[bytes]:
        assignment = self._assignment
        command = [
            os.fsdecode(spawn.get_executable()),
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            "-c",
            main.BOOTSTRAP,
            repr(luggage.absolute_path()),
            repr(arguments),
        ]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                # Its own session: Ctrl-C in the terminal reaches the parent alone, and
                # the worker leads a group that can be ended with the env's children.
                start_new_session=True,
                env=luggage.environment(
                    assignment.threads_per_worker, assignment.device(worker)
                ),
            )
        except OSError as error:
            fault = Fault(
                kind="start",
                command="start",
                worker=worker,
                error_type=type(error).__name__,
                error_text=f"{error} (running {command[0]!r})",
                exception=error,
            )
            raise error_for(fault) from error

    def reassign(self, shards: list[range]) -> None:
        """Go on with other workers than were launched, before anything is built."""
        keep = len(shards)
        for part in self._mailboxes[keep:]:
            part.close()
        for process in self._processes[keep:]:
            wait_until(process, time.monotonic() + 2.0)
            end(process)
        for bell in self._bells[keep:]:
            bell.close()
        del self._mailboxes[keep:], self._processes[keep:], self._bells[keep:]
        self._assign(shards)
        self._open_queues()
        self.launch()

    def probe(self, seconds: float) -> Measurement:
        """Have worker 0 time two envs that are not kept."""
        job = replace(self.job(0), slots=range(2))
        job.factories = self._packed.factories(job.slots)
        self._post(0, self._pack(main.Probe(job, seconds)))
        answer = self._await_start(0)
        assert isinstance(answer, Measurement)
        return answer

    def build(self) -> list[EnvSpec]:
        """Have every worker build its shard, all at the same time."""
        self.launch()
        specs: list[EnvSpec] = []
        try:
            for worker in range(len(self.shards)):
                self._post(worker, self._pack(main.Build(self.job(worker))))
            for worker in range(len(self.shards)):
                specs.extend(self._await_start(worker).specs)
        except BaseException:
            self.close(2.0)
            raise
        return specs

    def job(self, worker: int) -> Job:
        """What one worker is told."""
        assignment, packed = self._assignment, self._packed
        shard = self.shards[worker]
        return Job(
            worker=worker,
            slots=shard,
            factories=packed.factories(shard),
            options=packed.options,
            worker_init=packed.worker_init,
            per_worker=packed.per_worker,
            function=packed.function,
            shared=self._shared or {},  # type: ignore[arg-type]
            device=assignment.device(worker),
            owns_process=True,
            threads=assignment.threads_per_worker,
        )

    def _await_start(self, worker: int) -> Any:
        """The answer of a worker that is building something."""
        timeout = self._assignment.start_timeout
        try:
            answer = self._fetch(worker, timeout)
        except TimeoutError as error:
            fault = Fault(
                "hung", "construct", None, worker, self._processes[worker].pid
            )
            raise error_for(fault) from error
        if isinstance(answer, main.Failed):
            raise error_for(_as_start(answer.fault, self._output.tail(worker)))
        return answer

    def bind(self, codecs: Codecs) -> DataViews:
        """Append the data to the block and let the workers serve."""
        block = self._blocks[0]
        assert block.descriptor is not None
        plan = plan_data(
            self._assignment.slots, codecs.obs, codecs.action, start=block.size
        )
        os.ftruncate(block.descriptor, plan.size)
        self._blocks.append(Block.attach(os.dup(block.descriptor), plan.size))
        bind = self._pack(main.Bind(plan, luggage.dumps(codecs), self._worker_spin))
        for worker in range(len(self.shards)):
            self._post(worker, bind)
        for worker in range(len(self.shards)):
            self._fetch(worker, None)
        self._bound = True
        self._open_lanes()
        return DataViews(plan, self._blocks[-1].memory)

    def _pack(self, message: Any) -> bytes:
        return luggage.dumps(message)

    def _put(self, worker: int, packed: Any) -> None:
        self._mailboxes[worker].post_bytes(packed)

    def _pid(self, worker: int) -> int:
        return self._processes[worker].pid

    # Health ---------------------------------------------------------------------------

    def _dead(self, worker: int) -> Fault | None:
        process = self._processes[worker]
        if not has_ended(process):
            return None
        code = end(process)
        return Fault(
            kind="died",
            command="step" if self._bound else "start",
            worker=worker,
            pid=process.pid,
            exit_code=code,
            signal_name=signal_name(code),
            output=self._output.tail(worker),
        )

    # Ending ---------------------------------------------------------------------------

    def close(self, timeout: float | None) -> None:
        """Ask every worker to close its envs, then end those that do not."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        for worker, process in enumerate(self._processes):
            if process.returncode is None:
                with suppress(Exception):
                    self._ask_to_close(worker)
        deadline = time.monotonic() + (10.0 if timeout is None else timeout)
        try:
            for process in self._processes:
                wait_until(process, deadline)
        finally:  # a second Ctrl-C cuts the waiting short, not the ending
            for process in self._processes:
                with suppress(Exception):
                    end(process)
            self._release()

    def _ask_to_close(self, worker: int) -> None:
        # For a worker whose queue is full, or that is not looking at it yet.
        self._control.stop[worker, 0] = 1
        if self._bound and self._has_room(worker):
            with suppress(Exception):
                self._mailboxes[worker].post(Ask("close"), timeout=0.1)
            self._push(worker, entry(Verb.MAIL))
            self._bells[worker].ring()
            self._bells[worker].flush()
        # One that is posting a letter we will not read has to stop trying.
        self._mailboxes[worker].close()

    def _release(self) -> None:
        for part in (self._output, self._lifeline, *self._mailboxes):
            with suppress(Exception):
                part.close()
        for bell in (self._bell, *self._bells):
            with suppress(Exception):
                bell.close()
        for block in self._blocks:
            block.close()
        _open_executors.discard(self)


class _Packed:
    """The user's functions as bytes, packed once."""

    def __init__(self, assignment: Assignment) -> None:
        pack = luggage.pack
        self._factories = assignment.factories
        self.options = assignment.options
        self.worker_init = _unpacked(assignment.worker_init, "worker_init")
        self.per_worker = _unpacked(assignment.per_worker, "per_worker")
        self.function = _unpacked(assignment.function, "the function")
        sample = assignment.options.sample_task
        if sample is not None:
            pack(sample, "sample_task")
        for slot, factory in enumerate(assignment.factories):
            if slot == 0 or factory is not assignment.factories[slot - 1]:
                pack(factory, f"the factory of slot {slot}")

    def factories(self, shard: range) -> luggage.Unpacked:
        """The factories of a shard; one that is used for all its slots goes once."""
        chosen = list(self._factories[shard.start : shard.stop])
        return luggage.Unpacked(luggage.dumps(chosen))

    def welcome(self, control: Any) -> bytes:
        """The same first message for every worker."""
        return pickle.dumps(
            main.Welcome(
                argv=sys.argv,
                log_levels=luggage.pack_log_levels(),
                registry=luggage.pack_registry(),
                control=control,
                bell_kind=doorbell.KIND,
            )
        )


def _unpacked(function: Any, what: str) -> luggage.Unpacked | None:
    return None if function is None else luggage.Unpacked(luggage.pack(function, what))


def _fill_standard_descriptors() -> None:
    """In a parent without stdout ours would get its number, and a worker lose it.

    They stay: by the time we could close them they may be somebody else's.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < 3:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def _as_start(fault: Fault, output: str) -> Fault:
    return replace(fault, kind="start", output=output)


_open_executors: weakref.WeakSet[ProcessExecutor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for executor in list(_open_executors):
        executor.close(2.0)
