"""Which render modes it has, and whether it can render on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from corral.engine.layout.durations import duration_text
from corral.errors import Fault
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, note, ok
from corral.tools.doctor.subject import Subject, brief


def measure(factory: Callable[[], Any]) -> tuple[str, float]:
    """The shape of a frame, and seconds for one."""
    with EpisodeDriver(factory) as driver:
        driver.advance()
        driver.env.render()  # the first one opens what it needs
        began = time.perf_counter()
        frame = driver.env.render()
        return f"{np.asarray(frame).shape}", time.perf_counter() - began


def examine(subject: Subject) -> Iterator[Finding]:
    """Its modes, then a frame where it can make one."""
    modes = list(subject.profile.metadata.get("render_modes") or ())
    mode = subject.profile.render_mode
    text = f"render modes: {', '.join(map(str, modes)) or 'none'}; now {mode}"
    shown: Subject | None = subject
    if subject.registered is not None and "rgb_array" in modes:
        shown = subject.given("render_mode", "rgb_array")
    elif mode != "rgb_array":
        yield ok(text)
        return
    assert shown is not None
    (answer,) = shown.ask_each(measure, [()])
    if isinstance(answer, Fault):
        yield note(
            f"{text}; rendering fails on this machine: {brief(answer)}",
            "videos need a display, MUJOCO_GL=egl, or pip install pygame",
        )
        return
    shape, seconds = answer
    yield ok(f'{text}; "rgb_array" gives frames {shape} in {duration_text(seconds)}')
