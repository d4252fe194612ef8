"""An interpreter that sees only some of what is installed, as after `pip install`."""

from __future__ import annotations

import functools
import json
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from running import Script

HIDING = """
import json, pathlib, sys

HIDDEN = frozenset(json.loads(pathlib.Path(__file__).with_name("hidden").read_text()))

class Seeing:
    '''A finder that does not find some modules.'''

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Seeing, sys.meta_path)
"""

COMMANDS = """
import contextlib, io, json, sys
from corral.cli.main import main

said = []
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(line)
    said.append([status, out.getvalue(), err.getvalue()])
print(json.dumps([said, sorted(sys.modules)]))
"""
"""Types several commands in one process; what they say comes as JSON."""


class Installed:
    """As after `pip install 'corral[...]'` with these extras, and nothing else.

    Args:
        folder: for what hides the rest.
        *extras: of the package; all of their packages must be installed here.
    """

    def __init__(self, folder: Path, *extras: str) -> None:
        seen: set[tuple[str, str]] = set()
        _follow("corral", "", seen)
        for extra in extras:
            _follow("corral", extra, seen)
        brought = {name for name, _ in seen}
        hidden = [name for name, owners in _modules().items() if not owners & brought]
        folder.mkdir(exist_ok=True)
        (folder / "hidden").write_text(json.dumps(hidden))
        (folder / "sitecustomize.py").write_text(HIDING)
        self._folder = folder

    def python(self, code: str, *arguments: str, cwd: Path) -> Script:
        """Start it on a program."""
        source = Path(sys.modules["corral"].__path__[0]).parent
        path = {"PYTHONPATH": f"{self._folder}:{source}"}
        command = [sys.executable, "-c", code, *arguments]
        return Script(command, None, cwd=cwd, environ=path)

    def type(self, lines: list[list[str]], cwd: Path):
        """Run commands; returns (status, stdout, stderr) of each, and all modules."""
        out = self.python(COMMANDS, json.dumps(lines), cwd=cwd).finish(seconds=200)
        said, modules = json.loads(out)
        return [tuple(one) for one in said], set(modules)


def _follow(name: str, extra: str, seen: set[tuple[str, str]]) -> None:
    """Everything that pip would install for it."""
    name = canonicalize_name(name)
    if (name, extra) in seen:
        return
    seen.add((name, extra))
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return  # for another platform, or one that a test has to ask for
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": extra}):
            for inner in ("", *requirement.extras):
                _follow(requirement.name, inner, seen)


@functools.cache
def _modules() -> dict[str, set[str]]:
    """Every module that was installed -> the packages that it came with."""
    # `packages_distributions` of Python 3.10 knows of those in a top_level.txt alone.
    found: dict[str, set[str]] = {}
    for one in metadata.distributions():
        declared = (one.read_text("top_level.txt") or "").split()
        files = {file.parts[0].partition(".")[0] for file in one.files or ()}
        for module in declared or files - {"", "corral", "sitecustomize"}:
            found.setdefault(module, set()).add(canonicalize_name(one.name))
    found.pop("corral", None)
    return found
