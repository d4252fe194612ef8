"""Does it open a window? A display slows every step down, and servers have none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

WINDOW_PARAMETERS = (
    "gui",
    "use_gui",
    "render_gui",
    "visualize",
    "visualise",
    "show",
    "display",
)
"""Parameters that are true where a window is wanted."""


def measure(factory: Callable[[], Any]) -> list[str]:
    """What it has to do with a display after a reset and a few steps."""
    driver = EpisodeDriver(factory)
    for _ in driver.play(4):
        pass
    found = []
    if getattr(driver.env, "render_mode", None) == "human":
        found.append('its render_mode is "human"')
    found += [f"it is connected to {name}" for name in _displays()]
    driver.close()
    return found


def _displays() -> list[str]:
    """Display servers that this process talks to, where Linux tells."""
    if not os.path.exists("/proc/net/unix"):
        return []
    ours = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            ours.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return [name for inode, name in _servers() if f"socket:[{inode}]" in ours]


def _servers() -> Iterator[tuple[int, str]]:
    """Sockets whose other end, the next inode as a rule, is an X or Wayland server."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as lines:
        next(lines)
        for line in lines:
            parts = line.split()
            name = parts[7] if len(parts) > 7 else ""
            if ".X11-unix" in name or "wayland-" in name:
                inode = int(parts[6])
                yield from ((inode + offset, name) for offset in (-1, 1))


def asks_for_window(subject: Subject) -> str:
    """The argument to turn off, where a name gives it away; "" if none does."""
    values = subject.arguments
    for name in WINDOW_PARAMETERS:
        if values.get(name) is True:
            return f"{name}=False"
    if values.get("render_mode") == "human":
        return "render_mode=None"
    return ""


def examine(subject: Subject) -> Iterator[Finding]:
    """Windows that are open, and arguments that ask for one."""
    found = subject.ask(measure)
    asked = asks_for_window(subject)
    if found:
        asked = asked or "render_mode=None"
        yield Finding(
            "window",
            "warning",
            "; ".join(found),
            f"train without a window: pass {asked}",
            *_tried(subject, asked),
        )
    elif asked:
        name = asked.partition("=")[0]
        yield Finding(
            "window",
            "note",
            f"{name} is on, and no window was opened here",
            f"pass {asked}, so that none is opened elsewhere",
        )
    else:
        yield Finding("window", "ok", "opens none")


def _tried(subject: Subject, asked: str) -> tuple[str, dict[str, Any]]:
    """What it does without, and the argument for it, where it can be given one."""
    name, _, value = asked.partition("=")
    changed = subject.given(name, {"False": False}.get(value))
    if changed is None or changed.ask(measure):
        return "", {}
    return f"with {asked} it opened none", {"env_kwargs": {name: changed.kwargs[name]}}


CHECK = Check("window", examine)
