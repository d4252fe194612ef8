"""Which parts of this process run in C, and which use their Python twins."""

from __future__ import annotations

from corral.engine.layout import readout
from corral.engine.transport import doorbell
from corral.engine.worker import record

IMPLEMENTATIONS = {
    "doorbell": doorbell.KIND,
    "recorder": record.KIND,
    "readout": readout.KIND,
}
# Whether all are those in C.
COMPILED = list(IMPLEMENTATIONS.values()) == ["futex", "c", "c"]
