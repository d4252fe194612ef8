"""The entry point of a worker process.

bootstrap (path set, package imported)
  -> main: lifeline, signals, output
  -> mailbox: ProcessSetup, ProbeEnvs*, BuildShard, BindBlock
  -> serve until the parent closes it
  -> every env closed, whichever way it ended
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle

from corral.engine.faults import stacks
from corral.engine.layout import plan
from corral.engine.layout.codec import Codecs
from corral.engine.transport import child_processes, descriptors, doorbell, lifeline
from corral.engine.transport.block import Block
from corral.engine.transport.mailbox import Mailbox, MailboxClosed
from corral.engine.transport.shared_arrays import SharedArrays
from corral.engine.worker import commands, letters, probe, serialization
from corral.engine.worker.forked_copies import guard_of, guarded
from corral.engine.worker.shard_rows import WorkerRetired
from corral.engine.worker.worker import Worker
from corral.errors import Fault

# What the parent runs us with. Nothing but built-in modules is imported before the path
# is in place (until then a json.py in the working directory would be ours),
# and the user's __main__ is never imported at all. Garbage is collected from then on:
# imports leave none, and looking for it takes a sixth of their time.
BOOTSTRAP = (
    "import gc, sys; "
    "gc.disable(); "
    "sys.path[:] = eval(sys.argv[1]); "
    "from corral.engine.worker.main import main; "
    "gc.freeze(); "
    "gc.enable(); "
    "main(**eval(sys.argv[2]))"
)


def main(
    worker: int,
    block: int,
    control_size: int,
    mailbox: int,
    lifeline_descriptor: int,
    log: int,
    stack: int,
    bells: list[int],
    stop_offset: int,
    bell_offset: int,
    files: int | None,
) -> None:
    """Run one worker; the arguments are inherited descriptors and their sizes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see executors.spawn
    if files is not None:
        descriptors.restore_limit(files)
    control = Block.attach(os.dup(block), control_size)
    mark = os.environ.get(child_processes.MARK_VARIABLE, "")
    memory = control.memory
    lifeline.watch(lifeline_descriptor, memory, stop_offset, bell_offset, mark=mark)

    def end() -> None:
        lifeline.end_with_offspring(lifeline_descriptor, mark, seconds)
        memory[stop_offset : stop_offset + 4].cast("I")[0] = plan.WORKER_ENDED

    # Registered first, so it runs after the exit handlers of all libraries.
    atexit.register(end)
    seconds = 0.0
    stacks.answer_into(stack)
    box = Mailbox.attach(mailbox)
    process = _WorkerProcess(worker, block, control, box, bells)
    try:
        process.unpack(_expect(box.fetch(), commands.ProcessSetup), log)
        process.guard()
        process.run()
    except WorkerRetired:
        pass  # the parent sees it in the block, and starts another
    except MailboxClosed:
        # The parent is gone, or gave us up; the envs are closed.
        if process.worker is None or not process.worker.closing:
            seconds = 0.1
    finally:
        process.guard()  # a copy's hanging up would be the worker's
        box.close()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the parent no longer reads it
                stream.flush()


@dataclass
class _WorkerProcess:
    """One worker process and what it holds."""

    index: int
    block: int
    control: Block
    mailbox: Mailbox
    bells: list[int]
    worker: Worker | None = None
    # The worker that tried envs here, before any were built.
    _tried: Worker | None = None
    _kept: Any = None

    def __post_init__(self) -> None:
        self.guard = guard_of(self.index)

    def unpack(self, setup: commands.ProcessSetup, log: int) -> None:
        """Set this process up as the parent asks."""
        sys.argv[:] = setup.argv
        for stream in (sys.stdout, sys.stderr):
            # Whole lines, also under PYTHONUNBUFFERED: two workers' must not mix.
            stream.reconfigure(  # type: ignore[union-attr]
                line_buffering=True, write_through=False
            )
        faulthandler.enable()
        sys.breakpointhook = _no_breakpoint
        for name, level in setup.log_levels.items():
            logging.getLogger(name or None).setLevel(level)
        logging.getLogger().addHandler(_LogHandler(log))
        serialization.unpack_registry(setup.registry)
        self.views = plan.ControlViews(setup.control, self.control.memory)
        self.kind = setup.bell_kind

    def run(self) -> None:
        """Answer probes, build the shard, then serve."""
        build = _expect(self._probe_until_build(), commands.BuildShard)
        self._open_shared(build.job)
        self.worker = worker = Worker(build.job, guard=self.guard)
        first, self._kept = self._kept, None
        worker.shard.envs.about_to_build = self._mark_building
        try:
            if self._post_result(build.job, partial(worker.build, first, self._tried)):
                self._mark(plan.READING)
                self._serve(worker, _expect(self.mailbox.fetch(), commands.BindBlock))
        finally:
            self.guard()
            # Seen by a parent that waits for us: this may take as long as it needs.
            self.views.vitals[self.index, plan.BUSY_SINCE] = time.perf_counter()
            self._mark(plan.CLOSING)
            worker.shard.close()

    def _mark(self, doing: int) -> None:
        """Let the parent see what this worker does, before it serves or after."""
        self.views.vitals[self.index, plan.CURRENT_COMMAND] = doing

    def _mark_building(self, slot: int) -> None:
        self.views.vitals[self.index, plan.CURRENT_SLOT] = slot
        self._mark(plan.CONSTRUCTING)

    def _probe_until_build(self) -> Any:
        """Answer all probes; returns the first message that asks for something else."""
        try:
            while isinstance(message := self.mailbox.fetch(), commands.ProbeEnvs):
                self._open_shared(message.job)
                self._post_result(message.job, partial(self._probe, message))
            return message
        except BaseException:
            if self._kept is not None:
                self._kept.close()
            raise

    def _probe(self, message: commands.ProbeEnvs) -> Any:
        if self._tried is None:
            job = replace(message.job, slots=range(0), factories=())
            self._tried = Worker(job, guard=self.guard)
            self._tried.prepare()
        trial = probe.Probe(
            self._tried, message.job, message.question, self.mailbox.post
        )
        if message.recorded is not None:
            return trial.repeats(message.recorded)
        self._mark_building(plan.NO_SLOT)  # the parent knows which
        measured, self._kept = trial.run(), trial.kept
        self._mark(plan.READING)
        return measured

    @staticmethod
    def _open_shared(job: commands.Job) -> None:
        if isinstance(job.shared, SharedArrays):
            job.shared = job.shared.open()

    def _post_result(self, job: commands.Job, work: Callable[[], Any]) -> bool:
        """Post the result; returns False if the work failed."""
        try:
            with guarded(self.guard):
                answer = cloudpickle.dumps(work())
            self.mailbox.post_bytes(answer)
        except MailboxClosed:
            raise
        except BaseException as error:
            self.mailbox.post(letters.for_travel(self._explained(error, job)))
            return False
        return True

    def _explained(self, error: BaseException, job: commands.Job) -> Fault:
        slot = getattr(error, "slot", None)
        by = getattr(error, "raised_by", None)
        fault = letters.describe(
            error, "construct", slot, self.index, seed=job.seed, raised_by=by
        )
        if isinstance(error, ImportError) and error.name:
            text = (
                f"{fault.error_text} (in the worker; module {error.name!r} is not "
                f"importable from its sys.path: {sys.path})"
            )
            return replace(fault, error_text=text)
        return fault

    def _serve(self, worker: Worker, bind: commands.BindBlock) -> None:
        data = Block.attach(self.block, bind.plan.size)
        attach = doorbell.attach
        memory, kind = self.control.memory, self.kind
        ours, parents = self.bells or (None, None)
        endpoint = letters.WorkerEndpoint(
            index=self.index,
            control=self.views,
            fetch=self.mailbox.fetch,
            post=self.mailbox.post_bytes,
            bell=attach(memory, self.views.bell_offset(self.index), ours, kind),
            parent_bell=attach(memory, self.views.bell_offset(None), parents, kind),
            spin=bind.spin,
            pack=self._packed,
        )
        codecs: Codecs = pickle.loads(bind.codecs)
        worker.bind(
            plan.DataViews(bind.plan, data.memory), codecs, endpoint, bind.resume
        )
        self.mailbox.post("bound")
        worker.serve()

    def _packed(self, message: letters.Letter | letters.Reply) -> bytes:
        """A message as bytes; what cannot be pickled becomes a fault of its slot."""
        message.prepare()
        try:
            sealed = letters.SealedMessage(message)
        except BaseException as error:  # SystemExit in a __reduce__ too
            self.guard(error)
            assert self.worker is not None
            slot, command = message.unsendable()
            index = None if slot is None else self.worker.job.slots.index(slot)
            fault = letters.for_travel(self.worker.described(index, command, error))
            sealed = letters.SealedMessage(message.failed(fault))
        self.guard()  # pickling runs the user's code
        return pickle.dumps(sealed)


class _LogHandler(logging.Handler):
    """Sends log records to the parent, whose handlers print or drop them."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = pickle.dumps(portable(record))
            os.write(self._descriptor, len(data).to_bytes(8, "little") + data)
        except BrokenPipeError:
            pass  # the parent is gone; the lifeline ends us
        except Exception:
            self.handleError(record)


def portable(record: logging.LogRecord) -> dict[str, Any]:
    """A log record with its message formatted, so that nothing odd is pickled."""
    fields = {**vars(record), "msg": record.getMessage(), "args": None}
    if record.exc_info:
        fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
    plain = (str, int, float, bool, type(None))
    return {key: value for key, value in fields.items() if isinstance(value, plain)}


def _no_breakpoint(*_: Any, **__: Any) -> None:
    raise RuntimeError(
        "breakpoint() was called in a worker process, which has no terminal; "
        'use backend="serial" to debug an environment'
    )


def _expect(message: Any, kind: type[Any]) -> Any:
    if not isinstance(message, kind):
        raise MailboxClosed(f"expected {kind.__name__}, got {message!r:.80}")
    return message
