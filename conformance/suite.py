"""A peer's own tests, run on our classes and held against what is expected.

A suite says where the tests come from, which of them count, and which plugin swaps our
classes in; `main` does the rest. The tests are those of the peer's installed version.
They come from a checkout that is named by --tests or an environment variable, or else
are cloned once into conformance/cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
CACHE = HERE / "cache"


@dataclass(frozen=True)
class Suite:
    """One peer's tests."""

    peer: str
    package: str
    """As it is installed; its version is the tag of the tests."""
    repository: str
    files: tuple[str, ...]
    """Patterns inside the checkout; every one of them has to match something."""
    swap: str
    """The pytest plugin that puts our classes in."""
    expected: str
    """The file beside this one that lists what cannot pass."""
    variable: str
    """The environment variable that names a checkout."""

    def found_in(self, checkout: Path) -> list[str]:
        """The test files of a checkout; none if any of them is missing."""
        matches = [sorted(checkout.glob(pattern)) for pattern in self.files]
        if not all(matches):
            return []
        return [str(path.relative_to(checkout)) for one in matches for path in one]


def main(suite: Suite, words: str | None) -> int:
    """Run the suite; 1 after a surprise, either way."""
    arguments = parse(suite, words)
    checkout = find_checkout(suite, arguments.tests)
    paths = arguments.paths or suite.found_in(checkout)
    outcomes = run(checkout, paths, None if arguments.stock else suite.swap)
    counts = Counter(outcomes.values())
    ran = len(outcomes) - counts["skipped"]
    who = f"{suite.peer}'s own classes" if arguments.stock else "Corral"
    print(f"\n{who}: {counts['passed']} of {ran} pass, {counts['skipped']} skipped")

    listed = (HERE / suite.expected).read_text()
    expected = {} if arguments.stock else tomllib.loads(listed)
    surprises = held_against(expected, outcomes, whole=not arguments.paths)
    print("\n".join(surprises) or "nothing unexpected")
    return 1 if surprises or not ran else 0


def held_against(
    expected: dict[str, str], outcomes: dict[str, str], whole: bool
) -> list[str]:
    """Failures that are not listed, and what is listed but does not fail."""
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    for test in sorted(failed & expected.keys()):
        print(f"  fails as expected   {test}: {expected[test]}")
    surprises = [f"  FAILS               {test}" for test in failed - expected.keys()]
    surprises += [
        f"  PASSES, is listed   {test}"
        for test in expected
        if outcomes.get(test) == "passed"
    ]
    if whole:
        gone = expected.keys() - outcomes.keys()
        surprises += [f"  LISTED, not there   {test}" for test in gone]
    return sorted(surprises)


def parse(suite: Suite, words: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "paths",
        nargs="*",
        help=f"test files inside the checkout ({', '.join(suite.files)})",
    )
    parser.add_argument("--stock", action="store_true", help="swap nothing in")
    parser.add_argument(
        "--tests",
        type=Path,
        default=os.environ.get(suite.variable) or None,
        metavar="DIR",
        help=f"a checkout of {suite.peer} (default: ${suite.variable})",
    )
    return parser.parse_args()


def find_checkout(suite: Suite, given: Path | str | None) -> Path:
    """A folder that holds the tests: the one given, the cached one, or a clone."""
    if given is not None:
        checkout = Path(given).resolve()
        if not suite.found_in(checkout):
            wanted = ", ".join(suite.files)
            sys.exit(f"{checkout} lacks {wanted}: give a checkout of {suite.peer}")
        return checkout
    tag = f"v{version(suite.package)}"
    checkout = CACHE / f"{suite.package}-{tag}"
    if not suite.found_in(checkout):
        clone(suite, tag, checkout)
    return checkout


def clone(suite: Suite, tag: str, checkout: Path) -> None:
    """Release archives leave the tests out, so the source it is."""
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    command = ["git", "clone", "--quiet", "--depth=1", "--branch", tag]
    result = subprocess.run([*command, suite.repository, str(checkout)], check=False)
    if result.returncode:
        sys.exit(
            f"could not clone {tag} of {suite.repository}. With a checkout at hand, "
            f"set {suite.variable}=DIR"
        )


def run(checkout: Path, paths: list[str], swap: str | None) -> dict[str, str]:
    """Run the tests in a process of their own; test id -> passed, failed, skipped."""
    # Only its tests: the package's own folder in a checkout would hide the installed
    # one.
    with tempfile.TemporaryDirectory() as alone:
        (Path(alone) / "tests").symlink_to(checkout / "tests")
        report = Path(alone) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
        # Nothing of our own settings: the suite is run as its authors run it.
        command += ["-c", os.devnull, f"--rootdir={alone}"]
        command += ["-p", "no:cacheprovider", "--disable-warnings"]
        command += ["-o", "faulthandler_timeout=120", f"--junitxml={report}"]
        if swap is not None:
            command += ["-p", swap]
        environment = dict(os.environ)
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        search = filter(None, [alone, *inherited, str(HERE.parent)])
        environment["PYTHONPATH"] = os.pathsep.join(search)
        environment.setdefault("SDL_VIDEODRIVER", "dummy")
        subprocess.run([*command, *paths], cwd=alone, env=environment, check=False)
        if not report.exists():
            sys.exit("pytest wrote no report; see its output above")
        return read_report(report)


def read_report(report: Path) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = "::".join([*_home(case.get("classname", "")), case.get("name", "")])
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcomes[test] = "failed"
        elif outcomes.get(test) != "failed":
            outcomes[test] = "skipped" if "skipped" in kinds else "passed"
    return outcomes


def _home(name: str) -> list[str]:
    """`tests.test_a.TestB` as the file and the class that a test is in."""
    parts = name.split(".")
    classes = [part for part in parts if part.startswith("Test")]
    return ["/".join(parts[: len(parts) - len(classes)]) + ".py", *classes]
