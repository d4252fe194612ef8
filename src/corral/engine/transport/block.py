"""A block is one piece of memory, shared with the workers or private to this process.

Guarantees:
    - A shared block has no name: when the last process that holds it ends, even by
      SIGKILL, it is gone. /dev/shm and its size limit in containers play no part.
    - ``close`` may be called twice, never raises and never pulls memory from under a
      live numpy view: the pages go when the last view does.
    - Memory that is not there is refused when it is asked for, with the numbers, and
      not by a signal when it is first written to.
    - On Linux no process that has the descriptor can make a shared block smaller (a
      file seal), which would be a SIGBUS for the parent; nor larger, once it was
      `extended`, or `seal` was called.
Assumes:
    - A worker may write to all of the block: one that scribbles over memory at random
      can spoil the rows of others, and no check finds that.
    - A shared block reaches a worker as an inherited descriptor (Popen's pass_fds).
    - Off Linux a name exists for the moment between creating and unlinking it.
      This path is untested, and Windows has no descriptors to inherit.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator
from multiprocessing import shared_memory

from corral.engine.transport import free_memory

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Block:
    """Memory that numpy arrays are laid out in.

    Example:
        >>> block = Block.create(4096, shared=True)
        >>> block.memory[0] = 7
        >>> block.close()
    """

    def __init__(self, mapping: mmap.mmap, descriptor: int | None) -> None:
        """Take over a mapping; use `create` or `attach` instead."""
        self.memory = memoryview(mapping)
        self.size = len(mapping)
        self.descriptor = descriptor
        self._mapping: mmap.mmap | None = mapping

    @classmethod
    def create(cls, size: int, shared: bool, touched: int | None = None) -> Block:
        """Get zeroed memory; a size of 0 becomes one page, as mmap cannot map nothing.

        Args:
            size: in bytes.
            shared: with processes that inherit the descriptor, or private.
            touched: how many of the bytes are sure to be written to; None for all.

        Raises:
            OSError: the system refused; the text says how much was wanted.
        """
        size = size or mmap.PAGESIZE
        kind = "shared" if shared else "private"
        with _named(f"a block of {size} bytes of {kind} memory", size, touched):
            if not shared:
                # Copy-on-write, so that a forked child cannot write into our arrays.
                return cls(mmap.mmap(-1, size, access=mmap.ACCESS_COPY), None)
            return cls.attach(_create_descriptor(size), size)

    def extended(self, size: int, touched: int) -> Block:
        """The same shared memory and more behind it, as a block of its own.

        Raises:
            OSError: as `create`.
        """
        assert self.descriptor is not None, "only shared memory can grow"
        with _named(f"a block of {size} bytes of shared memory", size, touched):
            # An env may have made it larger, and it cannot be made smaller any more.
            if os.fstat(self.descriptor).st_size < size:
                os.ftruncate(self.descriptor, size)
            self.seal()
            return self.attach(os.dup(self.descriptor), size)

    def seal(self, read_only: bool = False) -> None:
        """Fix the size, for all processes and for good.

        Args:
            read_only: whether only mappings that exist by now may still be written to.
        """
        if self.descriptor is not None:
            names = ["GROW", "FUTURE_WRITE"] if read_only else ["GROW"]
            _add_seals(self.descriptor, *names, "SEAL")

    @classmethod
    def attach(cls, descriptor: int, size: int, writable: bool = True) -> Block:
        """Map the block behind a descriptor, and own that; workers inherit it."""
        os.set_inheritable(descriptor, False)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            return cls(mmap.mmap(descriptor, size, access=access), descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Let go of the memory and the descriptor."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            # BufferError: an array still views the memory, and keeps it mapped.
            with contextlib.suppress(BufferError):
                self.memory.release()
                mapping.close()
            self.memory = memoryview(b"")
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextlib.contextmanager
def _named(what: str, size: int, touched: int | None) -> Iterator[None]:
    """Add to an error how much memory was asked for."""
    free_memory.check(size if touched is None else touched, what)
    try:
        yield
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or errno.ENOMEM
        text = getattr(error, "strerror", None) or str(error)
        raise OSError(
            number, f"cannot get {what} ({size / 2**30:.2f} GiB): {text}"
        ) from error


def _create_descriptor(size: int) -> int:
    """Open nameless shared memory of that size."""
    if not hasattr(os, "memfd_create"):
        return _create_unlinked_descriptor(size)
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    descriptor = os.memfd_create("corral", flags)
    try:
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, size)
        _add_seals(descriptor, "SHRINK")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# F_SEAL_*, as linux/fcntl.h has them; Python 3.10 does not know the last.
_SEALS = {"SEAL": 0x01, "SHRINK": 0x02, "GROW": 0x04, "FUTURE_WRITE": 0x10}
_F_ADD_SEALS = 1033


def _add_seals(descriptor: int, *names: str) -> None:
    """Seal a memfd; other shared memory has no seals, older kernels not all of them."""
    if fcntl is None:
        return
    for name in names:
        try:
            fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEALS[name])
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise


def _create_unlinked_descriptor(size: int) -> int:
    """The same from named shared memory whose name goes at once."""
    segment = shared_memory.SharedMemory(create=True, size=size)
    try:
        return os.dup(segment._fd)  # type: ignore[attr-defined]
    finally:
        segment.unlink()
        segment.close()
