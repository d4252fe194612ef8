"""A run's config.yaml: settings, and a last line that says who wrote them.

    # signature: hmac-sha256 KEY MAC

To evaluate or resume a run is to run what its config names: `env: module:function`,
with `env_kwargs`. So a config is taken for ours only if this user's key signed exactly
its bytes, and with them where links among the run's files lead, since a resumed run
writes to those. Nothing else in the folder is code: checkpoints are read as data, and a
config beside a checkpoint of another run still runs what it always ran. The folder's
own path is not signed, so a run can be moved and copied.

Guarantees: settings and signature are replaced together; what is parsed is what was
checked.
"""

from __future__ import annotations

import json
import os

from corral.engine.faults import signatures
from corral.engine.faults.user_key import KeyUnusable
from corral.errors import OptionError
from corral.train.recipes.config import Config
from corral.train.recipes.resolve import checked, complete, dump, kind_of, parsed
from corral.train.run.atomic_write import write_text
from corral.train.run.directory import RunDirectory

SIGNATURE_PREFIX = "# signature: "


def write(directory: RunDirectory, config: Config) -> str:
    """Write and sign it; returns why it is not signed, "" if it is."""
    text, trouble = dump(config), ""
    try:
        signed = signatures.sign(signatures.RUN_FILE, _signed(directory, text))
        text += f"{SIGNATURE_PREFIX}{signed}\n"
    except KeyUnusable as error:
        trouble = str(error)
    write_text(directory.config, text)
    return trouble


def read(directory: RunDirectory) -> Config:
    """What a run was asked to do; nothing of it is run."""
    return _config(directory, _text(directory))


def read_to_run(directory: RunDirectory, trust: bool) -> Config:
    """The same, for a caller that will run it; UnsafeFile if it may not be ours."""
    text = _text(directory)
    body, mark, signature = text.rpartition(f"\n{SIGNATURE_PREFIX}")
    body = f"{body}\n" if mark else text
    signed = signature.strip() if mark else None
    doubted = signatures.doubt(signatures.RUN_FILE, _signed(directory, body), signed)
    config = _config(directory, text)
    if doubted and not trust:
        path = directory.config
        raise signatures.refusal(
            str(path),
            doubted,
            f"It would run {_called(config)}",
            f"Read {path}",
        )
    return config


def _text(directory: RunDirectory) -> str:
    try:
        return directory.config.read_bytes().decode()
    except OSError as error:
        raise OptionError(
            f"{directory.config} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{directory.config} is no YAML: {error}") from None


def _config(directory: RunDirectory, text: str) -> Config:
    where = str(directory.config)
    values = parsed(text, where)
    kind = kind_of(str(values.get("recipe", "")))
    return complete(checked(kind, values, where))


def _signed(directory: RunDirectory, body: str) -> bytes:
    """What is signed: the settings, and where the run's files really are."""
    links = {
        path.name: os.readlink(path)
        for path in sorted(directory.written())
        if path.is_symlink()
    }
    return body.encode() + b"\0" + json.dumps(links, sort_keys=True).encode()


def _called(config: Config) -> str:
    more = f" with {config.env_kwargs!r:.200}" if config.env_kwargs else ""
    return f"env {config.env!r}{more}"
