"""Where two runs of an env differ: the first moment, the field, and both values."""

from __future__ import annotations

from collections.abc import Sequence

from corral.engine.worker.compared_values import difference
from corral.tools.doctor.driver import EnvResponse

# What has to be equal. Infos may hold times and the like.
FIELDS = ("obs", "reward", "terminated", "truncated")


def first_difference(one: Sequence[EnvResponse], other: Sequence[EnvResponse]) -> str:
    """In words; "" if there is none, as far as the shorter one goes."""
    for ours, theirs in zip(one, other, strict=False):
        if ours.what != theirs.what:
            return f"{ours.what} came where {theirs.what} was"
        for name in FIELDS:
            found = difference(name, getattr(ours, name), getattr(theirs, name))
            if found:
                return f"{ours.what}: {found}"
    return ""
