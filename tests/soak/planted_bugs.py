"""Thirty bugs, planted one by one in a copy of the tree: which test notices each?

    python -m tests.soak.planted_bugs              all of them
    python -m tests.soak.planted_bugs 4 17         these
    python -m tests.soak.planted_bugs --likely     without the whole suite as a last try

For each bug the tests that are likely to notice it run first; if they pass, all tests
do. The exit code is the number of bugs that nothing noticed. A bug whose text is not
found once, and once only, is an error: the table follows the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/corral")
LEFT_OUT = (".git", ".venv", "build", "dist", "cache", ".*_cache", ".hypothesis")
ALL_TESTS = ("-n", "2", "--dist", "worksteal")
LONGEST_SECONDS = 900.0
"""For all tests of a run; they are ended then."""
HANG_SECONDS = 90
"""For one test: one that hangs has noticed something, too."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake somebody could make."""

    what: str
    """What is wrong then, in a sentence."""
    where: str
    """The file, or the room of which one file has the text; below src/corral."""
    old: str
    new: str
    likely: tuple[str, ...]
    """The tests that ought to notice, below tests."""


BUGS = (
    # The worker: rows, ends, infos, letters ----------------------------------------
    Bug(
        "A step's episode so far is looked for on the row that is being written.",
        "engine/worker/_record.c",
        "(at + (1 - row) * self->record_row)",
        "(at + row * self->record_row)",
        ("engine/worker/test_record.py",),
    ),
    Bug(
        "A step that terminates loses its truncated flag.",
        "engine/worker/_record.c",
        "record->truncated = (uint8_t)truncated;",
        "record->truncated = (uint8_t)(truncated && !terminated);",
        ("engine/worker/test_record.py", "contracts/test_autoreset.py"),
    ),
    Bug(
        "A slot is announced as done before its env has stepped.",
        "engine/worker/_record.c",
        "PyObject *result = call_step(steppers, self->at, action);",
        "publish(self, self->at, ticket);"
        " PyObject *result = call_step(steppers, self->at, action);",
        ("engine/worker/test_record.py", "contracts/test_exactness.py"),
    ),
    Bug(
        "Only the first slot of a shard rings the parent's bell.",
        "engine/worker/_record.c",
        "if (self->ring == NULL)\n        return 1;",
        "if (self->ring == NULL || slot)\n        return 1;",
        ("engine/worker/test_record.py",),
    ),
    Bug(
        "The Python twin counts an episode's length from 0 after an end.",
        "engine/worker/record.py",
        '1 if fresh else old["episode_length"][slot] + 1',
        '0 if fresh else old["episode_length"][slot] + 1',
        ("engine/worker/test_record.py",),
    ),
    Bug(
        "The last observation of an episode is not copied to final_obs.",
        "engine/worker/autoreset.py",
        "    shard.write_final(index, obs)\n    if mode",
        "    if mode",
        ("contracts/test_autoreset.py",),
    ),
    Bug(
        "An episode begins in the step that ends another, and final_info is lost.",
        "engine/worker/autoreset.py",
        "    shard.info_writer.write_end(index, info)\n",
        "",
        ("contracts/test_infos.py", "contracts/test_autoreset.py"),
    ),
    Bug(
        "The filler row of next_step claims to be a transition.",
        "engine/worker/autoreset.py",
        " is restarted in either mode.\n        shard.begin(index, row, valid=False)",
        "\n        shard.begin(index, row, valid=True)",
        ("contracts/test_autoreset.py",),
    ),
    Bug(
        "A letter goes out under the name of the shard's first slot.",
        "engine/worker/info_writer.py",
        "Letter(self.slots[index], ",
        "Letter(self.slots[0], ",
        ("engine/worker/test_info_writer.py", "contracts/test_infos.py"),
    ),
    Bug(
        "Columns keep the info of an earlier step when a step has none.",
        "engine/worker/info_writer.py",
        "not info and not self.care[index] & HAS_INFOS:",
        "not info:",
        ("engine/worker/test_info_writer.py", "contracts/test_infos.py"),
    ),
    Bug(
        "What an env returned by letter goes on changing with the env.",
        "engine/layout/info_copy.py",
        "    return _owned(value, {})",
        "    return value",
        ("engine/layout/test_info_copy.py", "contracts/test_owned_infos.py"),
    ),
    Bug(
        "Tasks are drawn with the seeds of restarted episodes, and these with theirs.",
        "engine/worker/seeds.py",
        "    TASKS = 1\n",
        "    TASKS = 3\n",
        ("guard/test_rows.py", "contracts/test_pool.py"),
    ),
    Bug(
        "Every episode of a slot has the seed of its first.",
        "engine/worker",
        "return episode_seed(root, place, number)",
        "return episode_seed(root, place, 0)",
        ("contracts/test_exactness.py",),
    ),
    Bug(
        "An env that failed is built again without end.",
        "engine/faults/restart_limits.py",
        "        self.note(spender, now)\n        return",
        "        return",
        ("faults/test_restarts.py",),
    ),
    # The pool and its executors ----------------------------------------------------
    Bug(
        "Slots that were sent to one by one are levelled to a ticket too low.",
        "engine/layout/plan.py",
        "self.base += self._words[0]",
        "self.base += self._words[0] - 1",
        ("engine/pool",),
    ),
    Bug(
        "Of results that are ready, recv(min_slots) hands out the oldest, unsorted.",
        "engine/pool",
        "np.sort(slots[order[:count]])",
        "slots[order[:count]]",
        ("engine/pool", "contracts/test_pool.py"),
    ),
    Bug(
        "Actions sent to some slots are written to the row of the command before.",
        "engine/pool/actions.py",
        "at: Any = tickets & self._mask",
        "at: Any = tickets - 1 & self._mask",
        ("engine/pool/test_actions.py", "contracts/test_pool.py"),
    ),
    Bug(
        "What recv returned with copy=True changes with the step after the next.",
        "engine/pool",
        "views = [[array.copy() for array in part] for part in views]",
        "pass",
        ("contracts/test_pool.py",),
    ),
    Bug(
        "A dead worker is blamed on its first slot, whichever it was at.",
        "engine/pool",
        "slot if slot in late else next(iter(late), None)",
        "next(iter(late), None)",
        ("engine/pool", "faults/test_blamed_slot.py"),
    ),
    Bug(
        "A worker may take as long as it likes for a step.",
        "engine/executors",
        "overrun = since and limit is not None and now - since > limit",
        "overrun = since and limit is not None and now - since > limit + 600",
        ("engine/executors/test_reaping.py", "faults/test_worker_deaths.py"),
    ),
    Bug(
        "The memory of a pool that was closed stays open.",
        "engine/transport/block.py",
        "            with contextlib.suppress(OSError):\n"
        "                os.close(descriptor)\n",
        "            pass\n",
        ("engine/transport/test_block.py", "faults/test_nothing_left_behind.py"),
    ),
    # APIs --------------------------------------------------------------------------
    Bug(
        "Stable-Baselines3 is not told the terminal observation.",
        "api/sb3/env.py",
        '            infos[slot]["terminal_observation"] = last\n',
        "",
        ("api/sb3/test_env.py",),
    ),
    Bug(
        "An agent's action mask stays after its part has ended.",
        "engine/adapters/roster.py",
        "            self._mask.fill(True)\n            self._masked = False",
        "            self._masked = False",
        ("api/pettingzoo/test_env.py",),
    ),
    # Rollouts and learners ---------------------------------------------------------
    Bug(
        "Truncated episodes are bootstrapped by 0.",
        "rollouts",
        "bootstrap[row, slot] = values_of(",
        "bootstrap[row, slot] = 0.0 * values_of(",
        ("rollouts/test_collect.py",),
    ),
    Bug(
        "A recurrent policy remembers the episode before.",
        "rollouts/actor.py",
        "                array[slot] = nothing\n        if self.carry is not None:",
        "                array[slot] = nothing\n        if False:",
        ("rollouts/test_collect.py",),
    ),
    Bug(
        "The normaliser learns from observations that it is to scale in an evaluation.",
        "rollouts/actor.py",
        "            seen = replace(step, obs=self.norm(step.obs))\n"
        "        last, space =",
        "            seen = replace(step, obs=self.norm(step.obs))\n"
        "            self.norm.update(step.obs, step.valid)\n"
        "        last, space =",
        ("rollouts/test_normalise.py", "rollouts/test_episodes.py"),
    ),
    Bug(
        "GAE discounts an advantage by whether the row before it goes on.",
        "learners/returns.py",
        "keep[row] * following",
        "keep[row - 1] * following",
        ("learners/test_returns.py",),
    ),
    Bug(
        "PPO clips gains that it should make, and makes those that it should clip.",
        "learners/ppo.py",
        "masked_fill(gain > clipped, 0.0)",
        "masked_fill(gain < clipped, 0.0)",
        ("learners/test_ppo.py",),
    ),
    # Runs --------------------------------------------------------------------------
    Bug(
        "A checkpoint is resumed with another state of the generator.",
        "learners/net_learning.py",
        '        self._generator.set_state(state["generator"])\n',
        "",
        ("train/run/test_resuming.py",),
    ),
    Bug(
        "A config that was changed after it was signed is run.",
        "engine/faults/signatures.py",
        "if not hmac.compare_digest(mac.encode(), _mac(key, kind, data).encode()):",
        "if len(mac) != 64:",
        ("train/run/test_trust.py",),
    ),
)


def main() -> int:
    """Plant bugs; returns how many nothing noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="which; all unless given")
    parser.add_argument("--likely", action="store_true", help="likely tests only")
    options = parser.parse_args()
    numbers = options.numbers or range(1, len(BUGS) + 1)
    unnoticed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        copy_tree(tree)
        for bug in BUGS:
            file_of(tree, bug)  # all of them, before the first run
        for number in numbers:
            began, bug = time.monotonic(), BUGS[number - 1]
            with planted(tree, bug):
                caught = noticed(tree, bug, likely_alone=options.likely)
            if caught is not None and "::" in caught and failed_test(tree, caught):
                raise SystemExit(f"{caught} fails without any bug")
            if caught is None:
                unnoticed.append(number)
            took = time.monotonic() - began
            print(f"{number:2}  {bug.what}\n    {caught or 'NOT NOTICED'}", end="")
            print(f"  ({took:.0f} s)", flush=True)
    print(f"{len(unnoticed)} of {len(numbers)} not noticed: {unnoticed}")
    return len(unnoticed)


def copy_tree(tree: Path) -> None:
    """Our files, with the C parts as they are compiled now."""
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    shared = ROOT.parent / "shared"
    if shared.exists():  # some tests compare with what lies beside the tree
        (tree.parent / "shared").symlink_to(shared.resolve())
    found = run(tree, sys.executable, "-c", "import corral; print(corral.__file__)")
    assert found.strip() == str(tree / PACKAGE / "__init__.py"), found


def file_of(tree: Path, bug: Bug) -> Path:
    """The file that has the bug's old text."""
    where = tree / PACKAGE / bug.where
    files = sorted(where.rglob("*.py")) if where.is_dir() else [where]
    count = {file: file.read_text().count(bug.old) for file in files if file.exists()}
    if sum(count.values()) != 1:
        raise SystemExit(
            f"{bug.where} has this text {sum(count.values())} times, not once:\n"
            f"{bug.old}\n(planted there: {bug.what})"
        )
    return max(count, key=count.__getitem__)


@contextmanager
def planted(tree: Path, bug: Bug) -> Iterator[None]:
    """The bug is in the tree."""
    file = file_of(tree, bug)
    text = file.read_text()
    try:
        write_compiled(tree, file, text.replace(bug.old, bug.new))
        yield
    finally:
        write_compiled(tree, file, text)


def write_compiled(tree: Path, file: Path, text: str) -> None:
    file.write_text(text)
    if file.suffix == ".c":
        run(tree, sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force")
        return
    # Compiled anew in any case: times of files are kept to the second.
    run(tree, sys.executable, "-m", "compileall", "-q", "-f", str(file))


def noticed(tree: Path, bug: Bug, likely_alone: bool) -> str | None:
    """The test that failed, or None."""
    likely = [f"tests/{name}" for name in bug.likely]
    missing = [name for name in likely if not (tree / name).exists()]
    assert not missing, f"no such tests: {missing}"
    caught = failed_test(tree, *likely)
    if caught is None and not likely_alone:
        caught = failed_test(tree, *ALL_TESTS)
    return caught


def failed_test(tree: Path, *arguments: str) -> str | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    for setting in (f"timeout={HANG_SECONDS}", "exit_on_timeout=true"):
        command += ["-o", f"faulthandler_{setting}"]
    output = run(tree, *command, "--no-header", "--tb=line", *arguments)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    if failed:
        return failed[1]
    hung = re.search(r'File ".*/(tests/\S+)", line \d+ in (test_\w+)', output)
    if hung and "Timeout (" in output:
        return f"{hung[1]}, {hung[2]} hangs"
    if not re.search(r"\d+ passed", output):
        raise SystemExit(f"pytest did not run:\n{output[-3000:]}")
    return None


def run(tree: Path, *command: str) -> str:
    """What a command printed, in the copy; all it has started ends with it."""
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=LONGEST_SECONDS)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


if __name__ == "__main__":
    sys.exit(main())
