"""Where the guard's data is, and how it is written: a line for a fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
ROWS, SEEDS, REAL = DATA / "rows.json", DATA / "seeds.json", DATA / "real_envs.json"
WEIGHTS, SETTINGS = DATA / "weights.json", DATA / "settings.json"
NAMES, FILES = DATA / "names", DATA / "files"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def write(path: Path, content: dict[str, Any]) -> None:
    """JSON with the innermost tables on lines of their own, so that diffs are short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_shown(content, "") + "\n")


def _shown(value: Any, indent: str) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    if indent and not any(isinstance(one, dict) for one in value.values()):
        line = json.dumps(value)
        if len(line) + len(indent) < 160:
            return line
    inner = indent + " "
    entries = [
        f"{inner}{json.dumps(key)}: {_shown(one, inner)}" for key, one in value.items()
    ]
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
