"""Imports go down only, as drawn in ARCHITECTURE.md, and never round in a circle."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_imports_go_down_only():
    command = "from importlinter.cli import lint_imports_command as run; run()"
    result = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_modules_import_each_other_in_a_circle():
    """Inside a room, too; imports in functions and for types alone count as well."""
    modules = {name_of(path): path for path in (ROOT / "src").rglob("*.py")}
    imports = {
        name: {
            target for target in imported(path) if target in modules and target != name
        }
        for name, path in modules.items()
    }
    assert len(imports) > 200 and sum(map(len, imports.values())) > 1000
    # A module that imports nothing that is left is in no circle.
    while ends := [name for name, targets in imports.items() if not targets]:
        for name in ends:
            del imports[name]
        for targets in imports.values():
            targets.difference_update(ends)
    assert not imports, circle(imports)


def test_the_engine_imports_numpy_gymnasium_and_cloudpickle_alone():
    """So do the two pages below it; imports in functions count as well."""
    package = ROOT / "src/corral"
    files = [*(package / "engine").rglob("*.py"), package / "core.py"]
    found = {
        (name.split(".")[0], path.name)
        for path in [*files, package / "errors.py"]
        for name in imported(path)
    }
    own = {"corral", *sys.stdlib_module_names}
    others = {(name, file) for name, file in found if name not in own}
    assert {name for name, _ in others} == {"numpy", "gymnasium", "cloudpickle"}, others


def test_no_room_names_a_module_of_an_example_system():
    """Recipes and evaluations of the zoo are registered in corral/zoo/__init__.py."""
    package = ROOT / "src/corral"
    files = set(package.rglob("*.py")) - set((package / "zoo").rglob("*.py"))
    # One keeps what older versions wrote, the other is a public path.
    files -= {package / "engine/old_paths.py", package / "meta.py"}
    naming = [path for path in files if re.search(r"\bzoo\.\w", path.read_text())]
    assert len(files) > 200 and not naming


def test_every_module_is_on_the_map():
    """ARCHITECTURE.md names every module by its file's name."""
    named = set(re.findall(r"\w+", (ROOT / "ARCHITECTURE.md").read_text()))
    modules = {path.stem for path in (ROOT / "src").rglob("*.py")}
    assert not {name for name in modules if not name.startswith("__")} - named


def test_every_module_that_the_map_names_is_there():
    rows = (ROOT / "ARCHITECTURE.md").read_text().split("## The house")[1]
    rows = rows.split("## One step")[0]
    cells = [row.split("|")[1] for row in rows.splitlines() if row.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 100
    assert not named - {path.stem for path in (ROOT / "src").rglob("*.py")}


def test_the_answers_for_newcomers_name_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    answers = text.split("## Where is …?")[1].split("\n## ")[0]
    files = re.findall(r"`((?:\w+/)+\w+\.py)`", answers)
    assert len(files) >= 20
    assert not [name for name in files if not (ROOT / "src/corral" / name).is_file()]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """The dotted names that a file imports, of modules and of what is in them."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"a relative import in {path}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield node.module
            yield from names


def circle(imports: dict[str, set[str]]) -> str:
    """One of the circles, in words."""
    way = [min(imports)]
    while way[-1] not in way[:-1]:
        way.append(min(imports[way[-1]]))
    return " imports ".join(way[way.index(way[-1]) :])
