"""Videos of slot 0's own training episodes, in a run that they do not change."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from PIL import Image
from test_resuming import learnt, same

from corral.errors import OptionError
from corral.train.run import training_videos
from corral.train.run.start import begin
from corral.train.sinks import encode_video, jsonl
from corral.train.sinks.frame_file import FrameFile, frames_in

pytest.importorskip("imageio_ffmpeg", reason="MP4s need imageio-ffmpeg")

import imageio_ffmpeg

OFTEN = {"record_every_steps": 100}


def videos(directory, kind="gif"):
    return sorted((directory.videos / "training").glob(f"*.{kind}"))


def pictures(path, height=400, width=600):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path)]
    raw = [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    found = subprocess.run(raw, capture_output=True, check=True).stdout
    return np.frombuffer(found, np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize(
    "place", [{"backend": "serial"}, {"backend": "process", "workers": 2}]
)
def test_a_recorded_run_is_bit_equal_to_one_that_is_not(train, place, capsys):
    plain, recorded = (
        train(out="plain", settings=place),
        train(out="recorded", settings={**place, **OFTEN}),
    )
    assert same(learnt(plain), learnt(recorded))
    assert jsonl.read(recorded.episodes) == jsonl.read(plain.episodes)
    films, gifs = videos(recorded, "mp4"), videos(recorded)
    assert [one.stem for one in films] == [one.stem for one in gifs]
    assert films[0].stem == "step-000000000"
    assert f"Video       {films[0]}" in capsys.readouterr().out
    assert not list(gifs[0].parent.glob("*.frames"))


def test_a_video_has_every_frame_of_the_episode_in_full_size(train):
    directory = train(settings={**OFTEN, "backend": "serial"})
    length = next(
        row["length"] for row in jsonl.read(directory.episodes) if row["slot"] == 0
    )
    film = pictures(videos(directory, "mp4")[0])
    assert len(film) == length + 1
    with Image.open(videos(directory)[0]) as gif:
        assert gif.size == (600, 400)
        gif.seek(gif.n_frames - 1)
        last = np.asarray(gif.convert("RGB"), np.int64)
    assert np.abs(last - film[-1]).mean() < 3.0, "both show the same"


def test_every_third_episode_of_slot_0(train):
    settings = {"record_every_episodes": 3, "record_formats": ["gif"]}
    directory = train(settings={**settings, "backend": "serial", "video": "never"})
    assert not videos(directory, "mp4")
    count = sum(row["slot"] == 0 for row in jsonl.read(directory.episodes))
    # Episodes that a checkpoint cut off are in none of its rows.
    assert 1 <= len(videos(directory)) <= count // 3 + 4, "not while one is encoded"


def test_without_an_encoder_there_are_gifs_and_it_is_said(train, monkeypatch, capsys):
    monkeypatch.setattr(training_videos, "has_mp4", lambda: False)
    directory = train(settings={**OFTEN, "backend": "serial"})
    assert videos(directory) and not videos(directory, "mp4")
    assert "GIFs; an MP4 needs imageio-ffmpeg: pip install 'corral[video]'" in (
        capsys.readouterr().out
    )
    asked = {**OFTEN, "record_formats": ["mp4"]}
    with pytest.raises(OptionError, match="record_formats has mp4, and an MP4 needs"):
        train(out="other", settings=asked)


def test_an_env_that_cannot_draw_is_refused(train):
    with pytest.raises(OptionError, match=r'render_mode="rgb_array".* is None'):
        train(settings={**OFTEN, "env": "run_envs:Counting", "backend": "serial"})


DIM = """
import gymnasium

class Dim(gymnasium.Wrapper):
    def render(self):
        raise RuntimeError("no light")

def make(render_mode=None):
    return Dim(gymnasium.make("CartPole-v1", render_mode=render_mode))
"""


def test_a_render_that_fails_costs_the_video_and_not_the_run(train, here, capsys):
    (here / "dim_envs.py").write_text(DIM)
    settings = {**OFTEN, "env": "dim_envs:make", "backend": "serial", "video": "never"}
    directory = train(settings=settings)
    assert "No video: RuntimeError: no light." in capsys.readouterr().out
    assert not videos(directory)


@pytest.mark.parametrize("view", ["flattened", "shared"])
def test_agents_of_a_team_are_recorded_together(tmp_path, view):
    pytest.importorskip("pettingzoo", reason="the grid world needs PettingZoo")
    pytest.importorskip("stable_baselines3", reason="its recipe needs SB3")
    settings = {
        **{"view": view, "num_envs": 2, "backend": "serial", "total_steps": 256},
        **{"ppo.n_steps": 64, "ppo.batch_size": 64, "ppo.n_epochs": 1},
        **{"evaluate_episodes": 1, "final_episodes": 0, "video": "never"},
        **{"record_every_episodes": 1, "record_formats": ["gif"]},
    }
    with begin("grid_world", settings, out=tmp_path / "run") as training:
        assert training.run() == 0
    assert videos(training.directory)


class Shelf:
    """A sink that keeps what it is given."""

    def __init__(self):
        self.kept = []

    def write(self, metrics, step):
        pass

    def video(self, name, path, step):
        self.kept.append((name, path.name, step))

    def close(self):
        pass


def test_sinks_that_take_videos_get_each_once(tmp_path):
    from small_runs import SMALL

    shelf, settings = Shelf(), {**SMALL, **OFTEN, "backend": "serial"}
    with begin("cartpole", settings, out=tmp_path / "run") as training:
        training.outputs._sinks.append(shelf)
        assert training.run() == 0
    films = videos(training.directory, "mp4")
    steps = [int(film.stem.removeprefix("step-")) for film in films]
    pairs = zip(films, steps, strict=True)
    assert shelf.kept == [("training", film.name, step) for film, step in pairs]


def test_frames_come_back_as_they_were_and_odd_sizes_can_be_encoded(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (3, 31, 45, 3), np.uint8)
    file = FrameFile(tmp_path / "one.frames")
    for frame in frames:
        file.add(frame)
    file.close()
    assert (np.stack(list(frames_in(file.path))) == frames).all()
    encode_video.encode_mp4(file.path, tmp_path / "one.mp4", 10.0)
    assert len(pictures(tmp_path / "one.mp4", 32, 46)) == 3
