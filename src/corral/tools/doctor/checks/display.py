"""Does it open a window, and can it render on this machine?

A display slows every step down, and servers have none.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from corral.engine.layout.durations import duration_text
from corral.errors import Fault
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.report import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject, brief

# Parameters that are true where a window is wanted.
WINDOW_PARAMETERS = (
    *("gui", "use_gui", "render_gui", "visualize", "visualise", "show", "display"),
)


def measure_window(factory: Callable[[], Any]) -> list[str]:
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


def check_window(subject: Subject) -> Finding:
    """Windows that are open, and arguments that ask for one."""
    found = subject.ask(measure_window)
    asked = asks_for_window(subject)
    if found:
        asked = asked or "render_mode=None"
        remedy = f"train without a window: pass {asked}"
        return warning("; ".join(found), remedy, *_tried(subject, asked))
    if asked:
        name = asked.partition("=")[0]
        return note(
            f"{name} is on, but no window was opened here",
            f"pass {asked}, so that none is opened on other machines",
        )
    return ok("does not open a window")


def _tried(subject: Subject, asked: str) -> tuple[str, dict[str, Any]]:
    """What it does without, and the argument for it, where it can be given one."""
    name, _, value = asked.partition("=")
    changed = subject.given(name, {"False": False}.get(value))
    if changed is None or changed.ask(measure_window):
        return "", {}
    return f"with {asked} it opened none", {"env_kwargs": {name: changed.kwargs[name]}}


def measure_frame(factory: Callable[[], Any]) -> tuple[str, float]:
    """The shape of a frame, and seconds for one."""
    with EpisodeDriver(factory) as driver:
        driver.advance()
        driver.env.render()  # the first one opens what it needs
        began = time.perf_counter()
        frame = driver.env.render()
        return f"{np.asarray(frame).shape}", time.perf_counter() - began


def check_rendering(subject: Subject) -> Finding:
    """Its modes, then a frame where it can make one."""
    modes = list(subject.profile.metadata.get("render_modes") or ())
    mode = subject.profile.render_mode
    text = f"render modes: {', '.join(map(str, modes)) or 'none'}; render_mode={mode!r}"
    shown = subject if mode == "rgb_array" else None
    if subject.registered is not None and "rgb_array" in modes:
        shown = subject.given("render_mode", "rgb_array")
    if shown is None:
        return ok(text)
    (answer,) = shown.ask_each(measure_frame, [()])
    if isinstance(answer, Fault):
        return note(
            f"{text}; rendering fails on this machine: {brief(answer)}",
            "videos need a display, MUJOCO_GL=egl, or pip install pygame",
        )
    shape, seconds = answer
    return ok(f'{text}; "rgb_array" gives frames {shape} in {duration_text(seconds)}')
