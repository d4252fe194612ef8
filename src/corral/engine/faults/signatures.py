"""Signatures of files from which code is run: configs of runs, saved faults.

    text = sign(RUN, data)         goes into the file, or beside the data
    doubt(RUN, data, text)         "" if this user signed this data, else why not

An HMAC-SHA256 of the data with the user's key. It proves that a program that could read
the key, so one of this user's, has written exactly these bytes. It does not prove that
what they name (modules, ids) is what it was then. The key is in a file::

    $CORRAL_KEY, else $XDG_STATE_HOME/corral/key, else ~/.local/state/corral/key

Guarantees: 32 random bytes in a file that its owner alone can read and write; two
programs that need the first key at the same time get the same one; a key that others
can read or write, or that another user owns, is not used.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from corral.errors import UnsafeFile

# The environment variable that names another file.
KEY_FILE_VARIABLE = "CORRAL_KEY"
KEY_BYTES = 32


class KeyUnusable(Exception):
    """There is no key that could be used; the text says why, and what to do."""


def key_path() -> Path:
    """Where the key is, or would be."""
    named = os.environ.get(KEY_FILE_VARIABLE)
    if named:
        return Path(named).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # relative ones are to be ignored, says XDG
        state = os.path.expanduser("~/.local/state")
    return Path(state, "corral", "key")


def existing_key() -> bytes | None:
    """The key; None if this user has none yet."""
    file = key_path()
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


def existing_or_new_key() -> bytes:
    """The key; made now if this user has none yet."""
    key = existing_key()
    if key is None:
        try:
            _create(key_path())
        except (OSError, ValueError) as error:
            raise KeyUnusable(_failure_text("cannot be written", error)) from None
        key = existing_key()  # read back: another program may have been first
    if key is None:
        raise KeyUnusable(f"the key {key_path()} was removed as soon as it was written")
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
            f"delete the key {key_path()} and chmod go-rwx {key_path().parent}"
        )


def _failure_text(what: str, error: OSError | ValueError) -> str:
    reason = getattr(error, "strerror", None) or error
    another = f"{KEY_FILE_VARIABLE}=FILE names another"
    return f"the key {key_path()} {what} ({reason}); {another}"


# What is signed: a signature of one kind is none of the other.
RUN_FILE, FAULT_FILE = "run", "fault"
FORM = "hmac-sha256"


def sign(kind: str, data: bytes) -> str:
    """The signature; raises KeyUnusable where there is no key and none can be made."""
    key = existing_or_new_key()
    return f"{FORM} {_name_of(key)} {_mac(key, kind, data)}"


def doubt(kind: str, data: bytes, signature: str | None) -> str:
    """Why this user may not have written the data, as a predicate; "" if signed."""
    if not signature:
        return (
            "is not signed: it was written by hand, by a version of Corral that did "
            "not sign, or where no key could be kept"
        )
    form, name, mac = [*signature.split(" ", 2), "", ""][:3]
    if form != FORM:
        return f"has a signature of another kind ({form[:40]!r})"
    try:
        key = existing_key()
    except KeyUnusable as error:
        return f"cannot be checked: {error}"
    if key is None or name != _name_of(key):
        return "is signed with another key: by another user, or on another machine"
    if not hmac.compare_digest(mac.encode(), _mac(key, kind, data).encode()):
        return "was changed after it was signed"
    return ""


def refusal(file: str, doubted: str, runs: str, look: str) -> UnsafeFile:
    """The error: what is wrong with the file, what it would run, and how to continue.

    Args:
        file: which.
        doubted: what `doubt` said.
        runs: what opening it would do, as a sentence.
        look: how to see what is in it, as an imperative.
    """
    said = f"{file} {doubted}. {runs}. {look}; if you trust it"
    error = UnsafeFile(f"{said}, pass trust=True")
    error.said = said
    return error


def _mac(key: bytes, kind: str, data: bytes) -> str:
    message = f"corral {kind} 1".encode() + b"\0" + data
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _name_of(key: bytes) -> str:
    """Tells keys apart, and nothing about them."""
    return hmac.new(key, b"corral key name", hashlib.sha256).hexdigest()[:16]
