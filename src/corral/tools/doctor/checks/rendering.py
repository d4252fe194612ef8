"""Which render modes it has, and whether frames can be had on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from corral.engine.adapters.gymnasium_registry import make_registered
from corral.errors import Fault
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import Player
from corral.tools.doctor.duration_text import shown
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Patient, brief


def measure(
    factory: Callable[[], Any], env_id: str | None, kwargs: dict[str, Any]
) -> tuple[str, float]:
    """The shape of a frame, and seconds for one."""
    if env_id is not None:
        options = {**kwargs, "render_mode": "rgb_array"}
        player = Player(lambda: make_registered(env_id, options))
    else:
        player = Player(factory)
    player.advance()
    player.env.render()  # the first one opens whatever it takes
    began = time.perf_counter()
    frame = player.env.render()
    passed = time.perf_counter() - began
    player.close()
    return f"{np.asarray(frame).shape}", passed


def examine(patient: Patient) -> Iterator[Finding]:
    """What it says, then a frame where it can be asked for one."""
    modes = list(patient.known.metadata.get("render_modes") or ())
    mode = patient.known.render_mode
    text = f"render modes: {', '.join(map(str, modes)) or 'none'}; now {mode}"
    can_ask = patient.registered is not None and "rgb_array" in modes
    if not can_ask and mode != "rgb_array":
        yield Finding("rendering", "ok", text)
        return
    env_id = patient.registered if can_ask else None
    (answer,) = patient.ask_each(measure, [(env_id, patient.kwargs)])
    if isinstance(answer, Fault):
        yield Finding(
            "rendering",
            "note",
            f"{text}; no frame could be had here: {brief(answer)}",
            "videos need it: a display, or MUJOCO_GL=egl, or pip install pygame",
        )
        return
    shape, seconds = answer
    text = f'{text}; "rgb_array" gives frames {shape} in {shown(seconds)}'
    yield Finding("rendering", "ok", text)


CHECK = Check("rendering", examine)
