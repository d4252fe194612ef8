"""All tests that need no torch, with every Python at hand: `make matrix`.

    python tests/matrix.py 3.10 3.12                       these alone
    python tests/matrix.py 3.10 -- tests/engine/layout -x   and what pytest is given

Each has its own environment in .venv/matrix, with `corral[matrix]` installed as
constraints.txt says. The exit status is 0 if there was one and all of them passed.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv" / "matrix"
WITHOUT = "torch,stable_baselines3,sb3_contrib,pybullet,upkie"
JOBS = os.environ.get("JOBS", "2")


def interpreter(version: str) -> str | None:
    """A Python of this version: on the path, or one of pyenv's."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python"), reverse=True),
    ]
    for candidate in filter(None, candidates):
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run(  # pyenv's shims are there for versions that are not
            [candidate, "-c", asked], capture_output=True, text=True
        )
        if answer.stdout.strip() == version:
            return candidate
    return None


def prepared(version: str, python: str) -> Path | None:
    """The Python of an environment with everything installed; None if that failed."""
    folder = ENVIRONMENTS / version
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    # Wheels alone: some of the packages take an hour to compile.
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--only-binary", ":all:", "-c", ROOT / "constraints.txt"]
    done = subprocess.run([*install, "-e", ".[matrix]"], cwd=ROOT)
    return own if done.returncode == 0 else None


def outcome(version: str, arguments: list[str]) -> tuple[str, bool | None]:
    """What became of one version, and whether it passed; None if it is absent."""
    python = interpreter(version)
    if python is None:
        return "not found", None
    print(f"\n== Python {version} ({python})", flush=True)
    own = prepared(version, python)
    if own is None:
        return "could not be set up", False
    subprocess.run([own, "-m", "compileall", "-q", "src", "tests"], cwd=ROOT)
    command = [own, "-m", "pytest", "-q", "-n", JOBS, "--dist", "worksteal"]
    done = subprocess.run([*command, f"--without={WITHOUT}", *arguments], cwd=ROOT)
    return ("passed", True) if done.returncode == 0 else ("FAILED", False)


def main(given: list[str]) -> int:
    """Run the versions asked for, or all, one after the other."""
    split = given.index("--") if "--" in given else len(given)
    versions, arguments = given[:split] or VERSIONS, given[split + 1 :]
    found = {version: outcome(version, arguments) for version in versions}
    print()
    for version, (text, _) in found.items():
        print(f"Python {version}: {text}")
    at_hand = [passed for _, passed in found.values() if passed is not None]
    return 0 if at_hand and all(at_hand) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
