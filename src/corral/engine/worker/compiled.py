"""Which twins this process uses of the parts that are written in C and in Python."""

from __future__ import annotations

from corral.engine.layout import readout
from corral.engine.transport import doorbell
from corral.engine.worker import record

KINDS = {
    "doorbell": doorbell.KIND,
    "recorder": record.KIND,
    "readout": readout.KIND,
}
COMPILED = list(KINDS.values()) == ["futex", "c", "c"]
"""Whether all are those in C."""
