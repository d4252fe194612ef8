"""What workers print and log, passed on live by one thread per pool.

stdout and stderr go to the parent's `sys.stdout` and `sys.stderr` (so notebooks and
captured tests show them), log records to the parent's loggers. The last 64 KiB of each
worker are kept for faults; they are here even when the worker was killed.
"""

from __future__ import annotations

import codecs
import logging
import os
import pickle
import selectors
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

KEPT_OUTPUT_BYTES = 64 * 1024
# Seconds to wait for the thread, which blocks while the caller's stdout is full.
OUTPUT_WAIT_SECONDS = 2.0


class WorkerOutput:
    """Reads every worker's pipes until they end or the pool closes."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._kept: dict[int, bytearray] = {}
        wakes, self._wake_write = os.pipe()
        self._selector.register(wakes, selectors.EVENT_READ, lambda data: None)
        self._lock = threading.Lock()
        self._stopping = self._finished = False
        self._thread = threading.Thread(
            target=self._run, name="corral-output", daemon=True
        )

    def add(self, worker: int, stdout: int, stderr: int, log: int) -> None:
        """Take over the read ends of a worker's pipes."""
        kept = bytearray()
        sinks = {
            stdout: _text_sink("stdout", kept),
            stderr: _text_sink("stderr", kept),
            log: _log_sink(),
        }
        with self._lock:
            self._kept[worker] = kept
            for descriptor, sink in sinks.items():
                if self._finished:  # the pool was closed while the worker was started
                    os.close(descriptor)
                else:
                    self._selector.register(descriptor, selectors.EVENT_READ, sink)

    def start(self) -> None:
        """Start the thread; workers can be added later."""
        if self._thread.ident is None:
            self._thread.start()

    def tail(self, worker: int) -> str:
        """The last output of a worker; reads what a dead one left in its pipes."""
        self._locked(OUTPUT_WAIT_SECONDS, self._read_all)
        return self._kept.get(worker, bytearray()).decode(errors="replace")

    def close(self) -> None:
        """Pass on what was read, then stop; does not wait for an env's children."""
        if self._stopping:
            return
        self._stopping = True
        os.write(self._wake_write, b"x")
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(OUTPUT_WAIT_SECONDS)
        self._locked(0.1, self._finish)

    def _locked(self, seconds: float, work: Callable[[], None]) -> None:
        """Do the work, unless the thread keeps the lock for longer."""
        acquired = list[bool]()
        try:
            # Noted in the same call: after Ctrl-C the lock would stay taken.
            acquired.extend(map(self._lock.acquire, (True,), (seconds,)))
            if acquired[0]:
                work()
        finally:
            if acquired == [True]:
                self._lock.release()

    def _run(self) -> None:
        while not self._stopping:
            self._selector.select()
            with self._lock:
                self._read_all()
        with self._lock:  # `close` could not, while this thread was blocked
            self._finish()

    def _finish(self) -> None:
        self._read_all()
        if not self._finished:
            self._finished = True
            for key in list(self._selector.get_map().values()):
                self._drop(key.fd)
            self._selector.close()
            os.close(self._wake_write)

    def _read_all(self) -> None:
        """Pass on what has arrived; the lock makes this thread the only reader."""
        for key, _ in () if self._finished else self._selector.select(0):
            data = b""
            with suppress(OSError):
                data = os.read(key.fd, KEPT_OUTPUT_BYTES)
            if not data:
                self._drop(key.fd)
                continue
            # A closed or broken sys.stdout is the user's; workers must not stall on it.
            with suppress(Exception):
                key.data(data)

    def _drop(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)


def _text_sink(name: str, kept: bytearray) -> Callable[[bytes], None]:
    """Bytes to one of the parent's text streams, looked up at the last moment."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(data: bytes) -> None:
        kept.extend(data)
        del kept[:-KEPT_OUTPUT_BYTES]
        stream = getattr(sys, name)
        if stream is not None:
            stream.write(decoder.decode(data))
            stream.flush()

    return write


def _log_sink() -> Callable[[bytes], None]:
    """Length-prefixed log records to the parent's loggers."""
    buffer = bytearray()

    def write(data: bytes) -> None:
        buffer.extend(data)
        while len(buffer) >= 8:
            end = 8 + int.from_bytes(buffer[:8], "little")
            if len(buffer) < end:
                return
            record = logging.makeLogRecord(pickle.loads(buffer[8:end]))
            del buffer[:end]
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)

    return write
