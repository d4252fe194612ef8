"""Does it open a window? A display slows every step down, and servers have none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject

WINDOW_PARAMETERS = (
    *("gui", "use_gui", "render_gui", "visualize", "visualise", "show", "display"),
)
"""Parameters that are true where a window is wanted."""


def measure(factory: Callable[[], Any]) -> list[str]:
    """What it has to do with a display after a reset and a few steps."""
    with EpisodeDriver(factory) as driver:
        driver.record(4)
        human = getattr(driver.env, "render_mode", None) == "human"
        found = ['its render_mode is "human"'] if human else []
        return [*found, *(f"it is connected to {name}" for name in _displays())]


def _displays() -> Iterator[str]:
    """X and Wayland servers that this process talks to."""
    for number in os.listdir("/dev/fd"):
        # Raises for what is not a connected socket.
        with (
            suppress(OSError),
            socket.fromfd(int(number), socket.AF_UNIX, socket.SOCK_STREAM) as one,
        ):
            name = one.getpeername()
            text = name.decode(errors="replace") if isinstance(name, bytes) else name
            if ".X11-unix" in text or "wayland-" in text:
                yield text


def asks_for_window(subject: Subject) -> str:
    """The argument to turn off, where a name suggests it; "" if none does."""
    values = subject.arguments
    for name in WINDOW_PARAMETERS:
        if values.get(name) is True:
            return f"{name}=False"
    return "render_mode=None" if values.get("render_mode") == "human" else ""


def examine(subject: Subject) -> Iterator[Finding]:
    """Windows that are open, and arguments that ask for one."""
    found = subject.ask(measure)
    asked = asks_for_window(subject)
    if found:
        asked = asked or "render_mode=None"
        remedy = f"train without a window: pass {asked}"
        yield warning("; ".join(found), remedy, *_tried(subject, asked))
    elif asked:
        name = asked.partition("=")[0]
        yield note(
            f"{name} is on, but no window was opened here",
            f"pass {asked}, so that none is opened on other machines",
        )
    else:
        yield ok("does not open a window")


def _tried(subject: Subject, asked: str) -> tuple[str, dict[str, Any]]:
    """What it does without, and the argument for it, where it can be given one."""
    name, _, value = asked.partition("=")
    changed = subject.given(name, {"False": False}.get(value))
    if changed is None or changed.ask(measure):
        return "", {}
    return f"with {asked} it opened none", {"env_kwargs": {name: changed.kwargs[name]}}
