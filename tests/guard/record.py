"""Record the guard's data anew: `python -m tests.guard.record`, in the project's root.

The data says what users see: rows, infos, seeds, weights, names, options, files. A test
that fails against it has found a change that users notice. So this is run only where
such a change is meant, is in CHANGELOG.md, and is what the diff of `data/` shows; in a
commit of its own, with nothing else in it. It is never run to make a test pass.

    python -m tests.guard.record            all but the stored files
    python -m tests.guard.record rows       one part: rows, seeds, real, weights, names
    python -m tests.guard.record files      runs, checkpoints and faults, see below

Recording twice gives the same files. What cannot be played here, since a package is
absent, keeps what was recorded for it, and is told. Stored files (`data/files`) are
what an earlier version wrote: they are added to and not replaced, unless their format
is given up on purpose.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.guard import names, real, recorded, seeding, stored, training
from tests.guard.case import EXECUTORS
from tests.guard.cases import CASES, missing


def rows() -> None:
    """From the first executor of each case; all others have to agree."""
    old = recorded.read(recorded.ROWS) if recorded.ROWS.exists() else {}
    new: dict[str, Any] = {}
    for name, case in CASES.items():
        absent = missing(case.needs)
        if absent:
            print(f"kept as it was: {name}, since {', '.join(absent)} is absent")
            new |= {name: old[name]} if name in old else {}
        else:
            new[name] = case.on(case.executors[0])
    recorded.write(recorded.ROWS, new)


def seeds() -> None:
    recorded.write(recorded.SEEDS, seeding.seeds())


def real_envs() -> None:
    played = {
        env: real.summary(real.rows(env, dict(EXECUTORS["serial"])))
        for env in real.ENVS
    }
    recorded.write(recorded.REAL, played)


def weights() -> None:
    """Three updates of every recipe, and what its settings were."""
    old = recorded.read(recorded.WEIGHTS) if recorded.WEIGHTS.exists() else {}
    chosen = recorded.read(recorded.SETTINGS) if recorded.SETTINGS.exists() else {}
    new: dict[str, Any] = {"made with": training.made_with()}
    settings: dict[str, Any] = {}
    for name, one in training.TRAININGS.items():
        if one.missing:
            print(f"kept as it was: {name}, since {', '.join(one.missing)} is absent")
            new |= {name: old[name]} if name in old else {}
            settings |= {name: chosen[name]} if name in chosen else {}
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            training.train(one, run)
            new[name] = training.weights(run / "checkpoints" / "last.pt")
            settings[name] = training.settings(run)
    for name in stored.RUNS:
        key = f"{name}, resumed"
        if stored.training_of(name).missing:
            new |= {key: old[key]} if key in old else {}
            continue
        with tempfile.TemporaryDirectory() as folder:
            kept = recorded.FILES / "trained" / name
            run = Path(shutil.copytree(kept, Path(folder) / "run"))
            stored.resume(run)
            new[key] = training.weights(run / "checkpoints" / "last.pt")
    recorded.write(recorded.WEIGHTS, new)
    recorded.write(recorded.SETTINGS, settings)


def public_names() -> None:
    recorded.NAMES.mkdir(parents=True, exist_ok=True)
    for file, lines in names.files().items():
        (recorded.NAMES / f"{file}.txt").write_text("\n".join(lines()) + "\n")


def files() -> None:
    stored.write_all(recorded.FILES)


PARTS = {
    "rows": rows,
    "seeds": seeds,
    "real": real_envs,
    "weights": weights,
    "names": public_names,
}


def main(asked: list[str]) -> None:
    with tempfile.TemporaryDirectory() as private:
        # Neither the user's key nor the list of the user's runs.
        os.environ["CORRAL_KEY"] = str(Path(private) / "key")
        os.environ["CORRAL_RUNS"] = str(Path(private) / "runs")
        os.environ["CORRAL_VERDICTS"] = str(Path(private) / "none")
        for name in asked or PARTS:
            {**PARTS, "files": files}[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
