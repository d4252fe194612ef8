"""Which render modes it has, and whether frames can be had on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from corral.engine.adapters.gymnasium_registry import make_registered
from corral.errors import Fault
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.duration_text import duration_text
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject, brief


def measure(
    factory: Callable[[], Any], env_id: str | None, kwargs: dict[str, Any]
) -> tuple[str, float]:
    """The shape of a frame, and seconds for one."""
    if env_id is not None:
        options = {**kwargs, "render_mode": "rgb_array"}
        driver = EpisodeDriver(lambda: make_registered(env_id, options))
    else:
        driver = EpisodeDriver(factory)
    driver.advance()
    driver.env.render()  # the first one opens whatever it takes
    began = time.perf_counter()
    frame = driver.env.render()
    passed = time.perf_counter() - began
    driver.close()
    return f"{np.asarray(frame).shape}", passed


def examine(subject: Subject) -> Iterator[Finding]:
    """What it says, then a frame where it can be asked for one."""
    modes = list(subject.profile.metadata.get("render_modes") or ())
    mode = subject.profile.render_mode
    text = f"render modes: {', '.join(map(str, modes)) or 'none'}; now {mode}"
    can_ask = subject.registered is not None and "rgb_array" in modes
    if not can_ask and mode != "rgb_array":
        yield Finding("rendering", "ok", text)
        return
    env_id = subject.registered if can_ask else None
    (answer,) = subject.ask_each(measure, [(env_id, subject.kwargs)])
    if isinstance(answer, Fault):
        yield Finding(
            "rendering",
            "note",
            f"{text}; no frame could be had here: {brief(answer)}",
            "videos need it: a display, or MUJOCO_GL=egl, or pip install pygame",
        )
        return
    shape, seconds = answer
    text = f'{text}; "rgb_array" gives frames {shape} in {duration_text(seconds)}'
    yield Finding("rendering", "ok", text)


CHECK = Check("rendering", examine)
