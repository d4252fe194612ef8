"""Gymnasium's own `tests/vector`, run on Corral's vector envs.

    python -m conformance.gymnasium_vector            ours, held against expected.toml
    python -m conformance.gymnasium_vector --stock    Gymnasium's, to know the measure

The tests are those of the installed Gymnasium's version. They come from a checkout
named by --tests or GYMNASIUM_TESTS, or else are cloned once into conformance/cache.
Exits with 1 after a failure that is not expected, or an expected one that passes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
CACHE = HERE / "cache"
EXPECTED = HERE / "expected.toml"
REPOSITORY = "https://github.com/Farama-Foundation/Gymnasium"


def main() -> int:
    arguments = parse()
    checkout = find_checkout(arguments.tests)
    outcomes = run(checkout, arguments.paths, stock=arguments.stock)
    counts = Counter(outcomes.values())
    ran = len(outcomes) - counts["skipped"]
    who = "Gymnasium's own classes" if arguments.stock else "Corral"
    print(f"\n{who}: {counts['passed']} of {ran} pass, {counts['skipped']} skipped")

    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    expected = {} if arguments.stock else tomllib.loads(EXPECTED.read_text())
    for test in sorted(failed & expected.keys()):
        print(f"  fails as expected   {test}: {expected[test]}")
    surprises = [f"  FAILS               {test}" for test in failed - expected.keys()]
    surprises += [
        f"  PASSES, is listed   {test}"
        for test in expected
        if outcomes.get(test) == "passed"
    ]
    if not arguments.paths:
        gone = expected.keys() - outcomes.keys()
        surprises += [f"  LISTED, not there   {test}" for test in gone]
    print("\n".join(sorted(surprises)) or "nothing unexpected")
    return 1 if surprises or not ran else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "paths", nargs="*", help="test files inside the checkout (tests/vector/*.py)"
    )
    parser.add_argument("--stock", action="store_true", help="swap nothing in")
    parser.add_argument(
        "--tests",
        type=Path,
        default=os.environ.get("GYMNASIUM_TESTS") or None,
        metavar="DIR",
        help="a checkout of Gymnasium (default: $GYMNASIUM_TESTS)",
    )
    return parser.parse_args()


def find_checkout(given: Path | str | None) -> Path:
    """A folder that holds `tests/vector`: the one given, the cached one, or a clone."""
    if given is not None:
        checkout = Path(given).resolve()
        if not (checkout / "tests" / "vector").is_dir():
            sys.exit(f"{checkout} holds no tests/vector: give a Gymnasium checkout")
        return checkout
    tag = f"v{version('gymnasium')}"
    checkout = CACHE / f"gymnasium-{tag}"
    if not (checkout / "tests" / "vector").is_dir():
        clone(tag, checkout)
    return checkout


def clone(tag: str, checkout: Path) -> None:
    """The release archive on PyPI leaves tests/vector out, so the source it is."""
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    command = ["git", "clone", "--quiet", "--depth=1", "--branch", tag]
    result = subprocess.run([*command, REPOSITORY, str(checkout)], check=False)
    if result.returncode:
        sys.exit(
            f"could not clone {tag} of {REPOSITORY}. With a checkout at hand: "
            "make conformance GYMNASIUM_TESTS=DIR"
        )


def run(checkout: Path, paths: list[str], *, stock: bool) -> dict[str, str]:
    """Run the tests in a process of their own; test id -> passed, failed, skipped."""
    if not paths:
        folder = checkout / "tests" / "vector"
        paths = sorted(str(path.relative_to(checkout)) for path in folder.glob("t*.py"))
    # Only its tests: a checkout's own `gymnasium` folder would hide the installed one.
    with tempfile.TemporaryDirectory() as alone:
        (Path(alone) / "tests").symlink_to(checkout / "tests")
        report = Path(alone) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
        # Nothing of our own settings: the suite is run as its authors run it.
        command += ["-c", os.devnull, f"--rootdir={alone}"]
        command += ["-p", "no:cacheprovider", "--disable-warnings"]
        command += ["-o", "faulthandler_timeout=120", f"--junitxml={report}"]
        if not stock:
            command += ["-p", "conformance.swap"]
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
        file = case.get("classname", "").replace(".", "/")
        test = f"{file}.py::{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcomes[test] = "failed"
        elif outcomes.get(test) != "failed":
            outcomes[test] = "skipped" if "skipped" in kinds else "passed"
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
