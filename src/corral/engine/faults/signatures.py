"""Signatures of files from which code is run: configs of runs, saved faults.

    text = sign(RUN, data)         goes into the file, or beside the data
    doubt(RUN, data, text)         "" if this user signed this data, else why not

An HMAC-SHA256 of the data with the user's key. It proves that a program that could read
the key, so one of this user's, has written exactly these bytes. It does not prove that
what they name (modules, ids) is what it was then.
"""

from __future__ import annotations

import hashlib
import hmac

from corral.engine.faults import user_key
from corral.engine.faults.user_key import KeyUnusable
from corral.errors import UnsafeFile

RUN_FILE, FAULT_FILE = "run", "fault"
"""What is signed: a signature of one kind is none of the other."""
FORM = "hmac-sha256"


def sign(kind: str, data: bytes) -> str:
    """The signature; raises KeyUnusable where there is no key and none can be made."""
    key = user_key.existing_or_new()
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
        key = user_key.existing()
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
