"""A replay is in files beside the checkpoints, and comes back from them bit for bit."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from test_resuming import lead, learnt, same

from corral.errors import CheckpointError, OptionError, WriteFailed
from corral.rollouts.replay import Replay, SequenceReplay
from corral.train.run import replay_files
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.replay_files import ReplayFiles
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl

COLUMNS = {"obs": 2, "reward": 1}
SOURCE = Path("last.pt")


def filled(replay, rows, start=0):
    values = np.arange(start, start + rows)
    replay.add({"obs": np.stack([values, -values], 1), "reward": values / 7})
    return replay


def back(files, like, names):
    """What a new program restores."""
    replay = Replay(like.capacity, like.columns)
    replay.load_state_dict(like.state_dict())
    ReplayFiles(files, replay).load(names, SOURCE)
    return replay


def held(replay):
    return replay.rows(replay.total - len(replay), replay.total)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "replay"


def test_every_save_adds_a_file_with_the_new_rows_alone(folder):
    replay = filled(Replay(100, COLUMNS), 30)
    files = ReplayFiles(folder, replay)
    assert len(files.save()) == 1
    assert len(files.save()) == 1
    names = (filled(replay, 20, 30), files.save())[1]
    assert [name[:25] for name in names] == [
        "000000000000-000000000030",
        "000000000030-000000000050",
    ]
    assert json.loads((folder / "header.json").read_text()) == {
        "columns": COLUMNS,
        "capacity": 100,
        "dtype": "float32",
    }
    assert (held(back(folder, replay, names)) == held(replay)).all()


@pytest.mark.parametrize("capacity", [10, 25, 64])
def test_a_full_ring_comes_back_whatever_was_overwritten(folder, capacity, monkeypatch):
    monkeypatch.setattr(replay_files, "MAX_ROWS", 7)
    replay = Replay(capacity, COLUMNS)
    files = ReplayFiles(folder, replay)
    rng, total = np.random.default_rng(capacity), 0
    for rows in rng.integers(1, 30, size=12):
        filled(replay, rows, total)
        total += rows
        names = files.save()
        files.remove_old()
        assert sorted(names) == sorted(p.name for p in folder.glob("*.npy"))
        assert (held(back(folder, replay, names)) == held(replay)).all()


def test_episodes_of_sequences_come_back(folder):
    replay = SequenceReplay(40, COLUMNS, window=4)
    for length in (12, 15, 9, 11):
        filled(replay, length)
    names = ReplayFiles(folder, replay).save()
    other = SequenceReplay(40, COLUMNS, window=4)
    other.load_state_dict(replay.state_dict())
    ReplayFiles(folder, other).load(names, SOURCE)
    ours, theirs = (one.sample(8, np.random.default_rng(3)) for one in (replay, other))
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_rows_of_a_save_that_no_checkpoint_lists_do_no_harm(folder):
    replay = filled(Replay(100, COLUMNS), 30)
    names = ReplayFiles(folder, replay).save()
    ahead = back(folder, replay, names)
    lost = ReplayFiles(folder, ahead)
    lost.load(names, SOURCE)
    filled(ahead, 10, 900)
    lost.save()  # and the program was killed
    again = back(folder, replay, names)
    files = ReplayFiles(folder, again)
    files.load(names, SOURCE)
    filled(again, 10, 30)
    names = files.save()
    files.remove_old()
    assert len(list(folder.glob("*.npy"))) == 2
    assert (held(back(folder, again, names)) == held(again)).all()


def test_damaged_files_are_told(folder):
    replay = filled(Replay(100, COLUMNS), 30)
    (name,) = ReplayFiles(folder, replay).save()
    path, whole = folder / name, (folder / name).read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(CheckpointError, match=r"cut short or damaged.*--init-from"):
        back(folder, replay, [name])
    path.write_bytes(whole[:-4] + b"abcd")
    with pytest.raises(CheckpointError, match="not those that were saved"):
        back(folder, replay, [name])
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        back(folder, replay, [name])
    with pytest.raises(CheckpointError, match="not the name of a replay file"):
        back(folder, replay, ["../../secret.npy"])
    with pytest.raises(CheckpointError, match=r"last.pt has no replay: only last.pt"):
        back(folder, replay, [])


def test_rows_that_no_listed_file_has_are_told(folder):
    replay = filled(Replay(100, COLUMNS), 30)
    names = ReplayFiles(folder, replay).save()
    filled(replay, 5, 30)
    with pytest.raises(CheckpointError, match="rows up to 30 of 35"):
        back(folder, replay, names)


def test_files_of_another_env_are_told(folder):
    replay = filled(Replay(100, COLUMNS), 30)
    names = ReplayFiles(folder, replay).save()
    other = Replay(100, {"obs": 1, "reward": 2})
    other.load_state_dict(replay.state_dict())
    with pytest.raises(
        CheckpointError, match=r"another env or learner.*'obs': 2.*'obs'"
    ):
        ReplayFiles(folder, other).load(names, SOURCE)
    (folder / "header.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"header.json cannot be read: it is"):
        back(folder, replay, names)


def test_a_full_disk_leaves_what_was_there(folder, monkeypatch):
    replay = filled(Replay(100, COLUMNS), 30)
    files = ReplayFiles(folder, replay)
    names = files.save()
    before = held(replay)
    state = replay.state_dict()
    filled(replay, 10, 30)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteFailed, match="cannot be written: No space left"):
            files.save()
    assert len(list(folder.iterdir())) == 2
    earlier = Replay(100, COLUMNS)
    earlier.load_state_dict(state)
    ReplayFiles(folder, earlier).load(names, SOURCE)
    assert (held(earlier) == before).all()
    names = files.save()
    assert (held(back(folder, replay, names)) == held(replay)).all()


# In a run -----------------------------------------------------------------------------

SMALL = {
    "env": "corral.zoo.meta.pendulum_v:make",
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 1600,
    "evaluate_every": 2,
    "evaluate_episodes": 1,
    "evaluate_length": 20,
    "final_episodes": 0,
    "checkpoint_every": 2,
    "video": "never",
}
NETS = {"hidden": [8], "batch_size": 4, "replay_size": 500, "updates": 2}
MARKOV = {**NETS, "rows": 40, "random_steps": 60}
MEMORY = {
    **NETS,
    **{"architecture": "memory", "memory_size": 4, "sequence_length": 8},
    **{"random_steps": 0, "random_episodes": 1},
}
KINDS = {
    (learner, architecture, overlap): {
        **SMALL,
        "learner": learner,
        learner: {**nets, "overlap": overlap},
    }
    for learner in ("sac", "td3")
    for architecture, nets in (("markov", MARKOV), ("memory", MEMORY))
    for overlap in (0, 1)
}


@pytest.fixture
def source():
    def write(kind):
        import yaml

        Path("config.yaml").write_text(yaml.safe_dump(KINDS[kind]))
        return "./config.yaml"

    return write


# Any two of learner, architecture and overlap: the others are those of both.
PAIRS = {("sac", "memory", 0), ("sac", "markov", 1)}
PAIRS |= {("td3", "memory", 1), ("td3", "markov", 0)}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(one, marks=() if one in PAIRS else pytest.mark.slow)
        for one in KINDS
    ],
    ids=str,
)
def test_two_updates_and_two_more_are_four(kind, source):
    whole = lead(begin(source(kind), {}, out=Path("whole")), 4)
    parts = lead(begin(source(kind), {}, out=Path("parts")), 3)
    assert Checkpoint.load(parts.last).update == 2
    with resume(parts.path, {}) as training:
        lead(training, 4)
        resumed = training.parts.learner.replay
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert same(ours.learner, theirs.learner)
    assert ours.replay == theirs.replay
    assert sorted(ours.replay) == sorted(p.name for p in parts.replay.glob("*.npy"))
    assert ours.results == theirs.results
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)
    assert learnt(parts) == learnt(whole)
    assert len(resumed) <= 500


FIRST = ("sac", "markov", 0)


def test_after_ctrl_c_both_checkpoints_have_their_rows(source):
    with begin(source(FIRST), {}, out=Path("run")) as training:
        lead(training, 3)
        training.interrupt()
    run = training.directory
    for path, update in ((run.last, 2), (run.interrupted, 3)):
        with resume(path, {}) as training:
            assert training.progress.update == update
            replay = training.parts.learner.replay
            assert replay.total == update * 80
            assert held(replay).any(axis=1).all()


def test_a_kill_between_the_rows_and_their_checkpoint_loses_nothing(
    source, monkeypatch
):
    whole = lead(begin(source(FIRST), {}, out=Path("whole")), 4)

    def killed(moment, path):
        raise KeyboardInterrupt

    with begin(source(FIRST), {}, out=Path("run")) as training:
        lead(training, 3)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Checkpoint, "save", killed)
            training.save(training.directory.last)
    run = training.directory
    assert len(list(run.replay.glob("*.npy"))) == 2
    assert len(Checkpoint.load(run.last).replay) == 1
    with resume(run.path, {}) as training:
        lead(training, 4)
    ours, theirs = Checkpoint.load(run.last), Checkpoint.load(whole.last)
    assert same(ours.learner, theirs.learner)
    assert ours.replay == theirs.replay
    assert len(list(run.replay.glob("*.npy"))) == 2


def test_the_size_of_the_replay_is_told_and_has_a_limit(source, capsys):
    with begin(source(FIRST), {}, out=Path("run")):
        pass
    assert "replay: 500 transitions, 0.00 GiB" in capsys.readouterr().out
    huge = {"sac.replay_size": 10**9, "sac.replay_max_gib": 2.0}
    with pytest.raises(OptionError, match="GiB, and the limit is 2 GiB"):
        begin(source(FIRST), huge, out=Path("huge"))


def test_an_evaluation_needs_no_replay(source):
    run = lead(begin(source(FIRST), {}, out=Path("run")), 2)
    for path in run.replay.iterdir():
        path.unlink()
    for which in ("best", "last"):
        with LoadedRun(run.path, which) as loaded:
            assert len(loaded.evaluate(1, 0)) == 1
            assert "_rows" not in vars(loaded.parts.learner.replay)
    with pytest.raises(CheckpointError, match=r"header.json cannot be read: No such"):
        resume(run.path, {})
    with pytest.raises(CheckpointError, match=r"best.pt has no replay"):
        resume(run.best, {})
