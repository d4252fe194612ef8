"""A run with `wandb:` in its config, offline, and what its file then holds.

`make integrations` runs this where wandb is installed.
"""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("wandb", reason="wandb is not installed")

import wandb
from wandb.proto import wandb_internal_pb2

from corral.errors import OptionError
from corral.train.recipes.resolve import resolve

GROUP = {
    "project": "walking",
    "entity": "my-team",
    "tags": ["cnn", "first"],
    "group": "small",
    "notes": "to be read",
    "mode": "offline",
}
SETTINGS = {
    "env": "run_envs:Endless",
    "wandb": GROUP,
    "video": "end",
    "evaluate_length": 12,
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)


def records(path):
    """The records of an offline run: a log in LevelDB's format, of protobufs."""
    data, place, parts = path.read_bytes(), 7, []
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


def found_in(run):
    wandb.teardown()  # its service writes what is left
    (file,) = (run.path / "wandb").glob("offline-run-*/*.wandb")
    by_kind: dict[str, list] = {}
    for record in records(file):
        kind = record.WhichOneof("record_type")
        by_kind.setdefault(kind, []).append(getattr(record, kind))
    return by_kind


def keys_of(history):
    return {item.key or item.nested_key[0] for item in history.item}


def test_project_config_metrics_videos_and_model_are_logged(train):
    run = train({}, settings=SETTINGS)
    found = found_in(run)
    about = found["run"][0]
    assert (about.project, about.entity) == ("walking", "my-team")
    assert set(about.tags) == {"cnn", "first"}
    assert (about.run_group, about.notes) == ("small", "to be read")
    config = {item.key: item.value_json for item in about.config.update}
    assert config["env"] == '"run_envs:Endless"' and config["num_envs"] == "2"
    keys = set().union(*map(keys_of, found["history"]))
    assert {"eval/return", "learn/policy_loss", "videos/best"} <= keys
    (model,) = found["artifact"]
    assert (model.type, model.name) == ("model", "run_envs-Endless")
    stored = {entry.path for entry in model.manifest.contents}
    assert {"config.yaml", "best.pt", "last.pt"} <= stored
    assert list((run.path / "wandb").glob("offline-run-*/files/media/videos/**/*.gif"))


def test_episode_and_agent_metrics_are_logged(train, here):
    text = (here / "run_envs.py").read_text()
    more = """
class Agents(Counting):
    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "scout": {"found": 2}, "cook": {"found": 4}}
"""
    (here / "run_envs.py").write_text(text + more)
    run = train({}, settings={**SETTINGS, "env": "run_envs:Agents", "video": "never"})
    keys = set().union(*map(keys_of, found_in(run)["history"]))
    assert {"episode/return", "episode/length", "episode/info/cost"} <= keys
    assert {"episode/info/scout/found", "episode/info/cook/found"} <= keys


def test_a_resumed_run_goes_on_in_the_same_wandb_run(train, go_on):
    run = train({}, settings={**SETTINGS, "total_steps": 96, "video": "never"})
    go_on(run.path, total_steps=128)
    files = (run.path / "wandb").glob("offline-run-*/*.wandb")
    assert len({file.name for file in files}) == 1


def test_videos_and_models_can_be_left_out(train):
    group = {"mode": "offline", "videos": False, "artifacts": False}
    run = train({}, settings={**SETTINGS, "wandb": group, "record_every_episodes": 1})
    found = found_in(run)
    assert "artifact" not in found
    keys = set().union(*map(keys_of, found["history"]))
    assert not any(key.startswith("videos/") for key in keys)


def test_a_misspelt_key_is_told():
    with pytest.raises(OptionError, match=r"unknown key wandb\.projekt"):
        resolve({"env": "CartPole-v1", "wandb": {"projekt": "x"}}, {})
