"""Metrics arrive where they were sent, in order, whole, and with nothing made up."""

import json
import os
import resource
from types import SimpleNamespace

import pytest

from corral.errors import WriteFailed
from corral.train.run.directory import RunDirectory
from corral.train.run.outputs import Outputs
from corral.train.sinks.jsonl import append, read


def test_each_write_is_a_line_that_is_there_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read(path) == []
    append(path, [{"episode/return": 1.5}], 100)
    assert read(path) == [{"step": 100, "episode/return": 1.5}]
    append(path, [{"learn/kl": 0.25}], 200)
    assert [line["step"] for line in read(path)] == [100, 200]


def test_a_number_that_is_not_finite_is_null_and_the_file_stays_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, [{"loss": float("nan"), "other": float("inf")}], 1)
    line = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert line == {"step": 1, "loss": None, "other": None}


def test_a_line_cut_short_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize("line", [b"5", b"[]", b"{}", b"\xff\x00", b"null"])
def test_a_line_of_another_kind_is_left_out(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    assert read(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_with_the_path():
    with pytest.raises(WriteFailed, match="/dev/full cannot be written: No space left"):
        append("/dev/full", [{"x": 1.0}], 1)


def test_a_line_that_fits_in_part_is_told_at_once(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(WriteFailed, match=r"jsonl cannot be written: File"):
            append(tmp_path / "metrics.jsonl", [{"x": 1.0}], 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Kept:
    def __init__(self, error=None):
        self.rows, self.closed, self.error = [], 0, error

    def write(self, metrics, step):
        self.rows.append((dict(metrics), step))

    def close(self):
        self.closed += 1
        if self.error:
            raise self.error


def test_outputs_hand_everything_to_each_sink(tmp_path):
    outputs, (first, second) = made_outputs(tmp_path, Kept(), Kept())
    outputs.write({"x": 1.0}, 5)
    assert first.rows == second.rows == [({"x": 1.0}, 5)]
    outputs.close()


def test_outputs_close_every_sink_and_then_tell(tmp_path):
    kept = Kept(OSError("first")), Kept(OSError("second"))
    outputs, (first, second) = made_outputs(tmp_path, *kept)
    with pytest.raises(OSError, match="second"):
        outputs.close()
    assert first.closed == second.closed == 1


def made_outputs(tmp_path, *sinks):
    outputs = Outputs(RunDirectory(tmp_path), SimpleNamespace(wandb=None), Kept())
    outputs._sinks += sinks
    return outputs, sinks


def test_tensorboard_reads_what_was_written(tmp_path):
    from corral.train.sinks.tensorboard import TensorboardSink

    sink = TensorboardSink(tmp_path)
    sink.write({"episode/return": 1.5, "lost": float("nan")}, 100)
    sink.write({"episode/return": 2.5}, 200)
    sink.close()
    assert scalars(tmp_path) == [
        ("episode/return", 100, 1.5),
        ("episode/return", 200, 2.5),
    ]


def scalars(folder):
    from tensorboard.backend.event_processing.event_file_loader import (
        LegacyEventFileLoader,
    )

    (path,) = folder.iterdir()
    return [
        (value.tag, event.step, value.simple_value)
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


def test_wandb_is_opened_once_and_gets_everything(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from corral.train.sinks.wandb import WandbSink

    place = (tmp_path, "first")
    sink = WandbSink("corral", "first", {"seed": 3}, *place, mode="offline")
    assert wandb.run is not None and wandb.run.config["seed"] == 3
    sink.write({"episode/return": 1.5}, 100)
    sink.write({"learn/kl": 0.1}, 200)  # a step is complete when the next one begins
    assert wandb.run.summary["episode/return"] == 1.5
    sink.close()
    assert wandb.run is None
    assert list(tmp_path.rglob("run-first.wandb"))
