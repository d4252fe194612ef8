"""A script before and after it was moved here, run for real, and held together.

A line that changes has what it becomes in a comment above it::

    # becomes: from corral.dropin import AsyncVectorEnv
    from gymnasium.vector import AsyncVectorEnv

`(nothing)` drops the line; several comments make several lines. Everything else is the
same text. Both scripts print one line of JSON, which has to be equal to the last bit.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
BECOMES = re.compile(r"^\s*# becomes: (.*)$")
LIMIT = 300.0
"""Seconds for one script."""
NEEDS = {
    "agilerl_loop": ("agilerl",),
    "shared_policy": ("supersuit",),
    "notebook": ("nbclient", "nbformat", "ipykernel"),
}
"""Packages beyond those of the test extra."""
MARK = "CORRAL_MIGRATED"


def scripts() -> list[str]:
    """The names of all scripts."""
    ours = ("__init__", "__main__", "migration")
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ours)


def before(name: str) -> str:
    """The script as its author has it."""
    lines = (HERE / f"{name}.py").read_text().splitlines()
    return "\n".join(line for line in lines if not BECOMES.match(line)) + "\n"


def after(name: str) -> str:
    """The script with the lines changed that the guide says to change."""
    lines: list[str] = []
    pending: list[str] | None = None
    for line in (HERE / f"{name}.py").read_text().splitlines():
        found = BECOMES.match(line)
        if found:
            pending = [*(pending or []), found[1]]
        elif pending is None:
            lines.append(line)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in pending if text != "(nothing)"]
            pending = None
    return "\n".join(lines) + "\n"


@dataclass
class Outcome:
    """What came of one script."""

    printed: str = ""
    seconds: float = 0.0
    mistakes: list[str] = field(default_factory=list)


def compared(name: str, limit: float = LIMIT) -> list[str]:
    """Run a script both ways; returns what is wrong with it."""
    old, new = run(name, before(name), limit), run(name, after(name), limit)
    mistakes = [f"before: {text}" for text in old.mistakes]
    mistakes += [f"after: {text}" for text in new.mistakes]
    if not mistakes and not old.printed:
        mistakes.append("before: nothing was printed")
    if not mistakes and old.printed != new.printed:
        mistakes.append(f"the numbers differ {_where(old.printed, new.printed)}")
    return mistakes


def _where(old: str, new: str) -> str:
    place = next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if len({*pair}) > 1),
        min(len(old), len(new)),
    )
    part = slice(max(0, place - 40), place + 60)
    return f"at character {place}: {old[part]!r} became {new[part]!r}"


def run(name: str, text: str, limit: float) -> Outcome:
    """Run a script in a process of its own, and see what it leaves."""
    with tempfile.TemporaryDirectory(prefix="corral-migrated-") as folder:
        script = Path(folder) / f"{name}.py"
        script.write_text(text)
        command = [sys.executable, str(script)]
        if name == "notebook":
            command = [sys.executable, "-c", NOTEBOOK, str(script)]
        mark = uuid.uuid4().hex
        environment = {**os.environ, MARK: mark, "IPYTHONDIR": folder}
        environment["JUPYTER_RUNTIME_DIR"] = folder
        path = [*sys.path[1:], os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        began = time.monotonic()
        outcome = _finished(command, folder, environment, limit)
        outcome.seconds = time.monotonic() - began
        outcome.mistakes += _left(mark)
        return outcome


def _finished(
    command: list[str], folder: str, environment: dict[str, str], limit: float
) -> Outcome:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        return Outcome(mistakes=[f"hangs: {limit:.0f} s\n{said[-2000:]}"])
    if process.returncode:
        return Outcome(mistakes=[f"exit code {process.returncode}\n{said[-3000:]}"])
    lines = printed.strip().splitlines()
    return Outcome(lines[-1] if lines else "")


def _left(mark: str, grace: float = 5.0) -> list[str]:
    """Processes that are still there, once they had a moment to go."""
    deadline = time.monotonic() + grace
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return [f"left process {pid} behind" for pid in found]


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in variables:
                found.append(int(entry.name))
    return found


NOTEBOOK = """
import sys, pathlib, nbclient, nbformat
text = pathlib.Path(sys.argv[1]).read_text()
notebook = nbformat.v4.new_notebook()
notebook.cells = [nbformat.v4.new_code_cell(c) for c in text.split("\\n# %%")[1:]]
nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
print(notebook.cells[-1].outputs[0]["text"].strip())
"""
"""Runs a script as a notebook, and prints what its last cell printed."""
