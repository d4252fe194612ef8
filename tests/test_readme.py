"""The examples in README.md and the guides run as they stand.

A block that only shows a shape is opened with ```python no-run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(r"^```python[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.M | re.S)


def examples():
    for page in PAGES:
        text = page.read_text() if page.exists() else ""
        for match in BLOCK.finditer(text):
            if "no-run" in match[1].split():
                continue
            line = text.count("\n", 0, match.start()) + 2
            name = f"{page.relative_to(ROOT)}:{line}"
            # Blank lines above, so that a traceback speaks of the page's own lines.
            yield pytest.param("\n" * (line - 1) + match[2], id=name)


@pytest.mark.parametrize("source", list(examples()))
def test_example_runs(source, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(source)
    result = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        # Torch's own threads would wait for each other, beside other tests.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr


def test_readme_has_an_example_that_runs():
    assert any(param.id.startswith("README.md") for param in examples())
