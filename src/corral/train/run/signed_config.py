"""A run's config.yaml: settings, and a signature in the last line.

    # signature: hmac-sha256 KEY MAC

To evaluate or resume a run is to run what its config names: `env: module:function`
with `env_kwargs`, `learner: module:Class`, `wrappers`, `network` and so on. So a config
is trusted only if this user's key signed exactly its bytes, and with them where links
among the run's files lead, since a resumed run writes to those. Nothing else in the
folder is code: checkpoints are read as data, and a config beside a checkpoint of
another run still runs what it always ran. The folder's own path is not signed, so a run
can be moved and copied.

Guarantees: settings and signature are replaced together; what is parsed is what was
checked.
"""

from __future__ import annotations

import json
import os
from typing import Any

from corral.engine.faults import signatures
from corral.errors import OptionError
from corral.learners.registry import LEARNERS
from corral.train.recipes.config import RunConfig
from corral.train.recipes.resolve import checked, complete, dump, load, parsed, text_of
from corral.train.run.directory import RunDirectory, write_text

SIGNATURE_PREFIX = "# signature: "


def write(directory: RunDirectory, config: RunConfig) -> str:
    """Write and sign it; returns why it is not signed, "" if it is."""
    text, trouble = dump(config), ""
    try:
        signed = signatures.sign(signatures.RUN_FILE, _signed(directory, text))
        text += f"{SIGNATURE_PREFIX}{signed}\n"
    except signatures.KeyUnusable as error:
        trouble = str(error)
    write_text(directory.config, text)
    return trouble


def read(directory: RunDirectory) -> RunConfig:
    """Return the settings of a run as data; a learner of the user's is refused."""
    values = load(directory.config)
    learner = values.get("learner")
    if learner is not None and learner not in LEARNERS:
        raise OptionError(
            f"{directory.config} names the learner {learner!r}, whose code would be "
            "run: use corral eval"
        )
    if network := values.get("network"):
        raise OptionError(
            f"{directory.config} names the network {network!r}, whose code would be "
            "run: use corral eval"
        )
    return _config(directory, values)


def read_to_run(directory: RunDirectory, trust: bool) -> RunConfig:
    """The same, for a caller that will run it; UnsafeFile if it may not be ours."""
    text = text_of(directory.config)
    body, mark, signature = text.rpartition(f"\n{SIGNATURE_PREFIX}")
    body = f"{body}\n" if mark else text
    signed = signature.strip() if mark else None
    doubted = signatures.doubt(signatures.RUN_FILE, _signed(directory, body), signed)
    values = parsed(text, str(directory.config))
    if doubted and not trust:
        path = directory.config
        raise signatures.refusal(
            str(path), doubted, f"It would run {_called(values)}", f"Read {path}"
        )
    return _config(directory, values)


def _config(directory: RunDirectory, values: dict[str, Any]) -> RunConfig:
    return complete(checked(values, str(directory.config)))


def _signed(directory: RunDirectory, body: str) -> bytes:
    """What is signed: the settings, and where the run's files really are."""
    links = {
        path.name: os.readlink(path)
        for path in sorted(directory.written())
        if path.is_symlink()
    }
    return body.encode() + b"\0" + json.dumps(links, sort_keys=True).encode()


# Settings whose values name code, beside env and learner.
CODE = (
    *("wrappers", "network", "curriculum", "per_worker", "worker_init"),
    *("shared", "sample_task", "task_by"),
)


def _called(values: dict[str, Any]) -> str:
    """What a config names, in the order in which it is run."""
    kwargs, learner = values.get("env_kwargs"), values.get("learner")
    more = f" with {kwargs!r:.200}" if kwargs else ""
    own = learner is not None and learner not in LEARNERS
    first = f"learner {learner!r:.200} and " if own else ""
    others = [f"{key} {values[key]!r:.200}" for key in CODE if values.get(key)]
    last = f", and {', '.join(others)}" if others else ""
    return f"{first}env {values.get('env')!r:.200}{more}{last}"
