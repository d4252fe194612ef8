"""Calls that are sent now and waited for later: `step_async`, then `step_wait`.

One of "reset", "step" and "call" can be pending at a time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import gymnasium
import numpy as np

from corral.api.gymnasium.errors import (
    CallPending,
    EnvsClosed,
    NothingPending,
    WaitTimeout,
    log_faults,
    raise_last_env_exception,
)
from corral.api.pool_env import PoolAttributes
from corral.core import Step
from corral.engine.pool import Question
from corral.errors import CorralError, OptionError


class AsyncCalls(PoolAttributes):
    """The state of a vector env between an `_async` call and its `_wait`."""

    _pending: str | None = None
    _question: Question | None = None

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every env."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Send the calls; `call_wait` takes the results."""
        self._begin("call_async")
        payload = (name, args, kwargs)
        with self._translated():
            self._question = self.pool.ask_async("call", None, lambda _: payload)
        self._pending = "call"

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the calls that were sent."""
        with self._waiting("call", timeout):
            assert self._question is not None
            return self.pool.answers(self._question, timeout)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every env; a list or tuple has one value for each."""
        self._begin("set_attr")
        with self._translated():
            self.pool.set_attr(name, values)

    def render(self) -> Any:
        """Render every env."""
        return self.call("render")

    # States ---------------------------------------------------------------------------

    def _begin(self, method: str) -> None:
        """Refuse a second call while one is pending."""
        self._check_open()
        if self._pending is not None:
            raise CallPending(
                f"Calling `{method}` while waiting for a pending call to "
                f"`{self._pending}` to complete.",
                self._pending,
            )
        if self.pool.waiting:
            # A wait that timed out left results behind: drop them.
            with self._translated():
                self._dropped(self.pool.recv(copy=False))

    def _check_open(self) -> None:
        if self.pool.closed:
            raise EnvsClosed(
                f"Trying to operate on `{type(self).__name__}`, after a call to "
                "`close()`."
            )

    def _dropped(self, step: Step) -> None:
        """Results that the caller did not wait for."""

    def _received(self, what: str, timeout: float | None) -> Step:
        """The results of the pending reset or step."""
        with self._waiting(what, timeout):
            return self.pool.recv(timeout=timeout, copy=False)

    @contextmanager
    def _waiting(self, what: str, timeout: float | None) -> Iterator[None]:
        """Wait for a call in this block; it is pending no more, even if it fails."""
        self._check_open()
        if self._pending != what:
            raise NothingPending(
                f"Calling `{what}_wait` without any prior call to `{what}_async`.", what
            )
        self._pending = None
        try:
            yield
        except CorralError as error:  # a worker that hangs is one, too
            self._raise(error)
        except TimeoutError:
            if timeout is None:  # a signal handler's own
                raise
            raise WaitTimeout(
                f"The call to `{what}_wait` has timed out after {timeout} second(s)."
            ) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CorralError as error:
            self._raise(error)

    def _raise(self, error: CorralError) -> NoReturn:
        """Raise what users of this API expect."""
        raise error


class VectorCalls(AsyncCalls):
    """With the errors, the log messages and the end of Gymnasium's vector envs."""

    num_envs: int
    # Whether the replaced class logs every error before it raises the last one.
    _logs_faults = False
    # How its users write options; see `advice_for`.
    _syntax = "python"

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every env; a method is called, as in Gymnasium."""
        return self.call(name)

    def _seeds(self, seed: Any) -> list[int | None] | None:
        """One seed per slot: slot i gets `seed + i`, or the i-th of a list."""
        return seeds_for(seed, self.num_envs, self.pool.repeat)

    def _raise(self, error: CorralError) -> NoReturn:
        self._pending = None
        if self._logs_faults and error.faults:
            log_faults(error.faults)
        raise_last_env_exception(error, self._syntax)

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """End the workers, after the pending call unless `terminate`."""
        pending, failed = self._pending, False
        if pending is not None:
            # Gymnasium would wait without a limit; here an env that hangs is ended.
            limit = self.pool.close_timeout if timeout is None else timeout
            try:
                getattr(self, f"{pending}_wait")(0 if terminate else limit)
            except multiprocessing.TimeoutError:
                terminate = True
            except Exception:
                failed = True
        self.pool.close(0.0 if terminate else timeout)
        # Last of all: a warning may be an error, and must not leave workers behind.
        if pending is not None:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{pending}` to "
                f"complete{', which failed' if failed else ''}."
            )

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


def seeds_for(seed: Any, count: int, repeat: int) -> list[int | None] | None:
    """One seed per env: group i of `repeat` envs gets `seed + i`; or those of a list.

    >>> seeds_for(7, 4, 1), seeds_for(7, 4, 2)
    ([7, 8, 9, 10], [7, 7, 8, 8])
    """
    if seed is None:
        return None
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + env // repeat for env in range(count)]
    if len(seed) != count:
        raise OptionError(
            "If seeds are passed as a list the length must match "
            f"num_envs={count} but got length={len(seed)}."
        )
    return list(seed)
