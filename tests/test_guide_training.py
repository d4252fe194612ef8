"""docs/guides/your-own-training.md, followed in an empty folder."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from corral.cli.main import main

PAGE = Path(__file__).parent.parent / "docs/guides/your-own-training.md"
FILE = re.compile(r"^```(?:python|yaml)[^\n]*\n(# (\w+\.\w+)\n.*?)^```", re.M | re.S)
COMMANDS = re.compile(r"^corral (?:train|eval|export) .*(?:chase|latest).*$", re.M)
# The page's lengths take a minute.
SHORTER = {
    "--total-steps 80000": "--total-steps 3072",
    "--episodes 100": "--episodes 9",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)
    sys.modules.pop("chase", None)


@pytest.mark.first
def test_the_page_can_be_followed(folder, capsys):
    page = PAGE.read_text()
    files = {match[2]: match[1] for match in FILE.finditer(page)}
    assert set(files) == {
        *("chase.py", "chase.yaml", "play.py", "deployed.py", "train.py")
    }
    files["chase.yaml"] += "final_episodes: 9\nevaluate_episodes: 4\n"
    files["chase.yaml"] += "video: never\nbackend: serial\n"
    files["play.py"] = files["play.py"].replace("range(100)", "range(9)")
    files["chase.yaml"] = files["chase.yaml"].replace("60000", "2048")
    files["chase.yaml"] = files["chase.yaml"].replace("n_epochs: 4", "n_epochs: 1")
    for name, text in files.items():
        (folder / name).write_text(text)
    commands = COMMANDS.findall(page)
    assert [line.split()[1] for line in commands] == [
        "train",
        "train",
        "eval",
        "export",
    ]
    for line in commands:
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        assert main(shlex.split(line)[1:]) == 0, line
    assert "Resuming from runs/chase-Chase/" in capsys.readouterr().out
    runpy.run_path("play.py")
    assert re.fullmatch(r"\d+ of 100 goals reached\n", capsys.readouterr().out)
    runpy.run_path("deployed.py")
    by_torch, by_onnx = capsys.readouterr().out.splitlines()
    assert re.findall(r"\d", by_torch) == re.findall(r"\d", by_onnx)
    source = files["train.py"].replace(
        '"total_steps"',
        '"backend": "serial", "video": "never", "ppo.n_epochs": 1, '
        '"evaluate_episodes": 4, "final_episodes": 4, "total_steps"',
    )
    exec(compile(source, "train.py", "exec"), {})
    assert len(list(folder.glob("runs/*/*/report.html"))) == 2
