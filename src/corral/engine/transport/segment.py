"""Segments: named arrays in shared memory that a running worker can open.

    segment = Segment({"reward": ((128, 8), np.float64)})      in the caller
    arrays = segment.lend()
    arrays = open_segment(segment.address)                     in a worker

Guarantees:
    - A segment has no name: when the last process that maps it ends, it is gone.
    - `free` is True only if no array of the last `lend` exists any more, so that its
      memory can be used again.
    - An address never opens other memory than its own: the inode is compared.
Assumes:
    - The worker may open the caller's descriptors in /proc: it is its child, and has
      the same user. Where there is no /proc, a segment is private memory without an
      address, and its contents have to be sent.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from corral.engine.layout.fields import Field, Planner
from corral.engine.transport.block import Block
from corral.errors import ClosedError, OptionError

try:
    import fcntl
except ImportError:  # Windows, which has no /proc either
    fcntl = None  # type: ignore[assignment]

Arrays = dict[str, NDArray[Any]]
# By name: shape and dtype.
ArrayShapes = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
CAN_BE_OPENED = os.path.isdir("/proc/self/fd")


class SegmentAddress(NamedTuple):
    """Where a segment is; travels to the workers.

    Attributes:
        fields: The fields of its arrays, pickled once and not with every message.
    """

    process: int
    descriptor: int
    inode: int
    size: int
    fields: bytes


class Segment:
    """Arrays that the caller owns and lends out.

    Args:
        arrays: their shapes and dtypes.
        shared: with other processes, or private.

    Attributes:
        address: Where workers find it; None if it is private.
    """

    def __init__(self, arrays: ArrayShapes, shared: bool = True) -> None:
        planner = Planner()
        self.shapes = dict(arrays)
        self._fields = tuple(
            planner.add(name, np.dtype(dtype), shape)
            for name, (shape, dtype) in arrays.items()
        )
        self._block = Block.create(planner.size, shared=shared and CAN_BE_OPENED)
        self._block.seal()
        self.address = self._address()
        self._lent: weakref.ref[NDArray[Any]] | None = None
        self._closing = weakref.finalize(self, self._block.close)

    def _address(self) -> SegmentAddress | None:
        descriptor = self._block.descriptor
        if descriptor is None:
            return None
        inode, size = os.fstat(descriptor).st_ino, self._block.size
        fields = pickle.dumps(self._fields)
        return SegmentAddress(os.getpid(), descriptor, inode, size, fields)

    def lend(self) -> Arrays:
        """Its arrays; the memory is in use as long as one of them exists."""
        # All arrays are views of this one, and keep it alive.
        memory = np.frombuffer(self._block.memory, np.uint8)
        self._lent = weakref.ref(memory)
        return _arrays(memory, self._fields)

    @property
    def free(self) -> bool:
        """Whether no array that was lent exists any more."""
        return self._lent is None or self._lent() is None

    def close(self) -> None:
        """Let go of the memory; arrays that were lent stay valid. Idempotent."""
        self._closing()


def open_segment(address: SegmentAddress | None) -> Arrays:
    """Map the arrays of a segment; none if it is private to its process.

    Raises:
        ClosedError: the segment was closed.
    """
    if address is None:
        return {}
    descriptor = _opened(address)
    try:
        mapping = mmap.mmap(descriptor, address.size)  # has a descriptor of its own
    finally:
        os.close(descriptor)
    fields = pickle.loads(address.fields)
    return _arrays(np.frombuffer(mapping, np.uint8), fields)


@contextmanager
def segment_lock(address: SegmentAddress) -> Iterator[Callable[[], Any]]:
    """A lock that all processes with this segment share; it ends with its process.

    Yields a context manager that waits for the lock, and releases it.
    """
    descriptor = _opened(address)

    @contextmanager
    def locked() -> Iterator[None]:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    try:
        yield locked
    finally:
        os.close(descriptor)


def _opened(address: SegmentAddress) -> int:
    """A descriptor of its own for the memory, as a lock needs it."""
    path = f"/proc/{address.process}/fd/{address.descriptor}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ClosedError("this shared memory was closed by its owner") from None
    except PermissionError as error:
        raise OptionError(
            f"this worker may not open the memory of its parent ({error}); for a "
            'policy, use act_in="caller"; for a crew, shared= in place of share()'
        ) from error
    if os.fstat(descriptor).st_ino != address.inode:
        os.close(descriptor)
        raise ClosedError("this shared memory was closed by its owner")
    return descriptor


def _arrays(memory: NDArray[np.uint8], fields: tuple[Field, ...]) -> Arrays:
    return {field.name: field.view(memory.data) for field in fields}
