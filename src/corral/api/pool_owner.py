"""Who made a pool ends it."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from corral.engine.pool import Pool

Self = TypeVar("Self", bound="PoolOwner")


class PoolOwner:
    """A vector env that closes its pool, by itself at the end of a `with`."""

    pool: Pool

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed."""
        return self.pool.closed

    def close(self, timeout: float | None = None) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        self.pool.close(timeout)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
