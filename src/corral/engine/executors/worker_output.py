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
OUTPUT_WAIT_SECONDS = 2.0
"""Seconds to wait for the thread, which blocks while the caller's stdout is full."""


class WorkerOutput:
    """Reads every worker's pipes until they end or the pool closes."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._kept: dict[int, bytearray] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopping = False
        self._finished = False

    def add(self, worker: int, stdout: int, stderr: int, log: int) -> None:
        """Take over the read ends of a worker's pipes."""
        kept = bytearray()
        sinks = {
            stdout: _TextStream("stdout", kept),
            stderr: _TextStream("stderr", kept),
            log: _LogRecords(),
        }
        with self._lock:
            if self._finished:  # the pool was closed while the worker was started
                for descriptor in sinks:
                    os.close(descriptor)
                return
            self._kept[worker] = kept
            for descriptor, sink in sinks.items():
                os.set_blocking(descriptor, False)
                self._selector.register(descriptor, selectors.EVENT_READ, sink)

    def start(self) -> None:
        """Start the thread; workers can be added later."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=self._run, name="corral-output", daemon=True
        )
        self._thread.start()

    def tail(self, worker: int) -> str:
        """The last output of a worker; reads what a dead one left in its pipes."""
        if self._lock.acquire(timeout=OUTPUT_WAIT_SECONDS):
            try:
                self._read_all()
            finally:
                self._lock.release()
        return self._kept.get(worker, bytearray()).decode(errors="replace")

    def close(self) -> None:
        """Pass on what was read, then stop; does not wait for an env's children."""
        if self._stopping:
            return
        self._stopping = True
        os.write(self._wake_write, b"x")
        thread = self._thread
        waits = thread is not threading.current_thread()
        # One that was never started cannot be waited for.
        if waits and thread is not None and thread.is_alive():
            thread.join(OUTPUT_WAIT_SECONDS)
        if self._lock.acquire(timeout=0.1):
            try:
                self._finish()
            finally:
                self._lock.release()

    def _run(self) -> None:
        while not self._stopping:
            self._selector.select()
            with self._lock:
                if self._finished:  # by `close`, which waited long enough
                    return
                self._read_all()
        with self._lock:  # `close` could not, while this thread was blocked
            self._finish()

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._read_all()
        for key in list(self._selector.get_map().values()):
            self._drop(key.fd)
        self._selector.close()
        os.close(self._wake_write)

    def _read_all(self) -> None:
        for key, _ in self._selector.select(0):
            if key.data is not None:
                self._read(key.fd, key.data)

    def _read(self, descriptor: int, sink: Callable[[bytes], None]) -> None:
        try:
            data = os.read(descriptor, KEPT_OUTPUT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            return
        # A closed or broken sys.stdout is the user's own; workers must not stall on it.
        with suppress(Exception):
            sink(data)

    def _drop(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)


class _TextStream:
    """Bytes to one of the parent's text streams, looked up at the last moment."""

    def __init__(self, stream: str, kept: bytearray) -> None:
        self._stream = stream
        self._kept = kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-KEPT_OUTPUT_BYTES]
        stream = getattr(sys, self._stream)
        if stream is not None:
            stream.write(self._decoder.decode(data))
            stream.flush()


class _LogRecords:
    """Length-prefixed log records to the parent's loggers."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __call__(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            size = int.from_bytes(self._buffer[:8], "little")
            if len(self._buffer) < 8 + size:
                return
            record = logging.makeLogRecord(pickle.loads(self._buffer[8 : 8 + size]))
            del self._buffer[: 8 + size]
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
