"""Where the official model, routes and costs are, if they are; and routes on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="tinyphysics needs onnxruntime")
pytest.importorskip("onnxruntime", reason="tinyphysics needs onnxruntime")

from corral.zoo.tinyphysics import load_route, write_route

BESIDE = Path(__file__).parents[4] / "shared" / "tinyphysics"


@pytest.fixture
def official(monkeypatch):
    """Work where the official data is: its routes are called data/NAME there."""
    place = Path(os.environ.get("CORRAL_TINYPHYSICS") or BESIDE)
    if not (place / "tinyphysics.onnx").exists():
        pytest.skip("no official model and routes; set CORRAL_TINYPHYSICS")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def data(tmp_path):
    """A directory of five routes."""
    directory = tmp_path / "data"
    directory.mkdir()
    for number in range(5):
        route = load_route(f"synthetic:{number:05d}")
        write_route(route, directory / f"{number:05d}.csv")
    return directory
