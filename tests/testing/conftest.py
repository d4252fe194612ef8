"""A soak takes a minute and hardly any time of a core: it runs beside other tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

SECONDS = 60


@pytest.fixture(scope="session")
def soaking(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str] | None]:
    """The soak, begun with the first test that does not mind; None if none waits."""
    if not any("soaking" in item.name for item in request.session.items):
        yield None
        return
    command = [sys.executable, "-m", "corral.testing.soak", "--seed", "1"]
    # Into a file: nobody reads it before the soak is over, and a pipe would fill.
    with (tmp_path_factory.mktemp("soak") / "output").open("w+") as output:
        process = subprocess.Popen(
            [*command, "--minutes", str(SECONDS / 60)],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        process.stdout = output
        try:
            yield process
        finally:
            process.kill()  # its workers end with it
            process.wait()
