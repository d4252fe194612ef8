"""What has become of a run.

running      a program is training it
done         trained to its end
interrupted  Ctrl-C or SIGTERM stopped it, and it was saved
failed       an error ended it; diverged: a loss or a weight was not finite
killed       its program ended without a word: a kill, a crash, a power cut
damaged      its about.json cannot be read
"""

from __future__ import annotations

from corral.train.run.directory import RunDirectory
from corral.train.run.run_lock import is_held

BEGAN_KEY = "began"


def state_of(directory: RunDirectory) -> str:
    """In one word."""
    held = is_held(directory)
    if held:
        return "running"
    state = str(directory.read_about().get("state", BEGAN_KEY))
    return "killed" if state == BEGAN_KEY and held is False else state
