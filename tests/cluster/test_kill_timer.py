"""The kernel ends a process that is late, even while it is stopped."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has such timers"
)
LATE = """
import signal
from corral.cluster.kill_timer import killed_after
with killed_after(0.05):
    {late}
"""
IN_TIME = """
import time
from corral.cluster.kill_timer import killed_after
for _ in range(3):
    with killed_after(0.2):
        pass
with killed_after(None):
    time.sleep(0.3)
"""


@pytest.mark.parametrize(
    "late", ["signal.raise_signal(signal.SIGSTOP)", "while True: pass"]
)
def test_a_process_that_is_stopped_or_busy_is_killed(late):
    process = subprocess.Popen([sys.executable, "-c", LATE.format(late=late)])
    try:
        assert process.wait(60) == -signal.SIGKILL
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def test_a_block_that_ends_in_time_is_not():
    assert subprocess.run([sys.executable, "-c", IN_TIME]).returncode == 0
