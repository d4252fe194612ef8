"""A measurement that runs in a worker; what the env prints goes to a file.

The file is there also when the env raises, hangs, exits or crashes.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from corral.engine.worker import serialization

Measure = Callable[..., Any]
"""measure(factory, *arguments) -> something that can be sent home."""


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """One measurement for a worker."""

    measure: Measure
    factory: serialization.Unpacked
    """Opened where nothing is printed past the file: modules speak when imported."""
    arguments: tuple[Any, ...]
    output: str
    """The file that everything printed goes to."""


def run(task: WorkerTask) -> Any:
    """The body of the worker."""
    with quiet(task.output):
        return task.measure(task.factory.open(), *task.arguments)


@contextmanager
def quiet(path: str) -> Iterator[None]:
    """Descriptors 1 and 2 lead to the file: C libraries print as well."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    kept = [os.dup(1), os.dup(2)]
    try:
        for number in (1, 2):
            os.dup2(file, number)
        # Instead of those that forward records to the caller's loggers.
        logging.basicConfig(stream=sys.stderr, force=True)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(file)
