"""The examples in README.md and the guides run as they stand.

A block that only shows a shape is opened with ```python no-run.
"""

import os
import re
from pathlib import Path

import pytest
from prepared_scripts import ENGINE, LEARNERS, ScriptTemplate

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
pytestmark = pytest.mark.first  # all together: they share two templates
BLOCK = re.compile(r"^```python[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.M | re.S)
# The drop-ins for these two import Stable-Baselines3, whose torch takes seconds.
NEED_TORCH = re.compile("torch|sb3|learners|corral.train|SubprocVecEnv|DummyVecEnv")


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


@pytest.fixture(scope="module")
def scripts():
    """Examples with torch, and those without."""
    # Torch's own threads would wait for each other, beside other tests.
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    engine = ScriptTemplate("-W", "error", environ=environ, modules=ENGINE)
    torch = ScriptTemplate("-W", "error", environ=environ, modules=[*ENGINE, *LEARNERS])
    yield {False: engine, True: torch}
    engine.close()
    torch.close()


@pytest.mark.parametrize("source", list(examples()))
def test_example_runs(source, tmp_path, scripts):
    script = tmp_path / "example.py"
    script.write_text(source)
    template = scripts[NEED_TORCH.search(source) is not None]
    result = template.run(script, seconds=120)
    assert result.returncode == 0, result.stderr


def test_readme_has_an_example_that_runs():
    assert any(param.id.startswith("README.md") for param in examples())
