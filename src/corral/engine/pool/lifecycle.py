"""The state of a pool, and the thread that may use it.

    unbuilt -> open <-> sending -> closed

A pool is broken once a worker has ended that is not replaced, and forked in a child of
the process that made it.
"""

from __future__ import annotations

import os
import weakref
from threading import get_ident

from corral.errors import ClosedError, OwnershipError

UNBUILT, OPEN, SENDING, CLOSED = "unbuilt", "open", "sending", "closed"
BROKEN, FORKED = "broken", "forked"
_FORKED = "this pool belongs to the parent of this forked process; make one here"
_UNUSABLE = {
    SENDING: (
        ClosedError,
        "a send was interrupted; close this pool and make a new one",
    ),
    BROKEN: (ClosedError, "a worker of this pool died; close it and make a new one"),
    CLOSED: (ClosedError, "this pool is closed; make another one"),
    FORKED: (OwnershipError, _FORKED),
}


class Lifecycle:
    """The state of one pool, made by the thread that the pool belongs to."""

    def __init__(self) -> None:
        self.state = UNBUILT
        self.owner = get_ident()

    def open(self) -> None:
        """Everything is built."""
        self.state = OPEN
        _open_pools.add(self)

    def close(self) -> None:
        """The pool cannot be used any more."""
        self.state = CLOSED
        _open_pools.discard(self)

    @property
    def has_workers(self) -> bool:
        """Whether this process has workers to end."""
        return self.state not in (UNBUILT, CLOSED, FORKED)

    def check(self) -> None:
        """Raise unless the pool is open and used by the thread that owns it."""
        if self.state != OPEN:
            kind, why = _UNUSABLE.get(self.state, _UNUSABLE[CLOSED])
            raise kind(why)
        if get_ident() != self.owner:
            raise OwnershipError(
                "this pool belongs to the thread that made it; make one pool per "
                "thread, or make the calls from its thread"
            )


_open_pools: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _disown_in_child() -> None:
    for life in list(_open_pools):
        life.state = FORKED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)
