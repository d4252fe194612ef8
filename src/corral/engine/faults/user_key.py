"""The key that files of this user are signed with.

    $CORRAL_KEY, else $XDG_STATE_HOME/corral/key, else ~/.local/state/corral/key

Guarantees: 32 random bytes in a file that its owner alone can read and write; two
programs that need the first key at the same time get the same one; a key that others
can read or write, or that another user owns, is not used.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

KEY_FILE_VARIABLE = "CORRAL_KEY"
"""The environment variable that names another file."""
KEY_BYTES = 32


class KeyUnusable(Exception):
    """There is no key that could be used; the text says why, and what to do."""


def path() -> Path:
    """Where the key is, or would be."""
    named = os.environ.get(KEY_FILE_VARIABLE)
    if named:
        return Path(named).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # relative ones are to be ignored, says XDG
        state = os.path.expanduser("~/.local/state")
    return Path(state, "corral", "key")


def existing() -> bytes | None:
    """The key; None if this user has none yet."""
    file = path()
    # A link could lead to a file whose content others know.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(file, flags)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise KeyUnusable(_failure_text("cannot be read", error)) from None
    with os.fdopen(descriptor, "rb") as opened:
        _refuse_shared(os.fstat(descriptor), file)
        _refuse_shared(os.stat(file.parent), file.parent, stat.S_IWGRP | stat.S_IWOTH)
        key = opened.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise KeyUnusable(
            f"the key {file} is damaged: {len(key)} bytes instead of {KEY_BYTES}. "
            "Delete it"
        )
    return key


def existing_or_new() -> bytes:
    """The key; made now if this user has none yet."""
    key = existing()
    if key is None:
        try:
            _create(path())
        except (OSError, ValueError) as error:
            raise KeyUnusable(_failure_text("cannot be written", error)) from None
        key = existing()  # read back: another program may have been first
    if key is None:
        raise KeyUnusable(f"the key {path()} was removed as soon as it was written")
    return key


def _create(file: Path) -> None:
    """Put a new key in place, whole, unless there is one by now."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(KEY_BYTES))
            opened.flush()
            os.fsync(opened.fileno())
        with suppress(FileExistsError):
            os.link(draft, file)  # unlike a rename, it never replaces a key
    finally:
        draft.unlink(missing_ok=True)


def _refuse_shared(
    status: os.stat_result, file: Path, bits: int = stat.S_IRWXG | stat.S_IRWXO
) -> None:
    if not hasattr(os, "geteuid"):
        return  # Windows has other access rights
    ours, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    if status.st_uid != ours:
        raise KeyUnusable(
            f"{file} belongs to user {status.st_uid}, and you are user {ours}: name a "
            f"key of your own, {KEY_FILE_VARIABLE}=FILE"
        )
    if mode & bits:
        raise KeyUnusable(
            f"others have access to {file} (mode {mode:o}), so it proves nothing: "
            f"delete the key {path()} and chmod go-rwx {path().parent}"
        )


def _failure_text(what: str, error: OSError | ValueError) -> str:
    reason = getattr(error, "strerror", None) or error
    return f"the key {path()} {what} ({reason}); {KEY_FILE_VARIABLE}=FILE names another"
