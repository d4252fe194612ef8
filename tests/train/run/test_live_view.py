"""A trained policy can be watched: in a window, or the user learns why not."""

import sys

import pytest

from corral.cli.main import main
from corral.train.run.loaded_run import LoadedRun
from corral.train.sinks import window

pygame = pytest.importorskip("pygame", reason="it opens the window")

SHORT = {"total_steps": 32, "final_episodes": 0, "evaluate_length": 12}
DRAWN = {**SHORT, "env": "run_envs:Endless"}


@pytest.fixture
def frames(monkeypatch):
    """A display that nobody sees; returns the frames that were shown."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown, show = [], window.Window.show

    def noted(self, frame, rate):
        shown.append((frame.shape, rate))
        show(self, frame, 10_000)

    monkeypatch.setattr(window.Window, "show", noted)
    return shown


def test_frames_are_shown_as_the_episodes_are_played(train, frames):
    run = train(settings=DRAWN)
    with LoadedRun(run.path, num_envs=1) as loaded:
        seen = loaded.show(2, seed=5)
        assert seen.returns.tolist() == loaded.evaluate(2, seed=5).returns.tolist()
    assert frames == [((8, 8, 3), 20.0)] * 24


def test_an_env_that_has_a_window_opens_its_own(train, frames, capsys):
    run = train(settings=SHORT)
    assert main(["eval", str(run.path), "--render", "--episodes", "1"]) == 0
    assert "over 1 episode" in capsys.readouterr().out
    assert not frames


def test_closing_the_window_ends_it(train, frames, capsys, monkeypatch):
    run = train(settings=DRAWN)

    def closed():
        return [pygame.event.Event(pygame.QUIT)]

    monkeypatch.setattr(pygame.event, "get", closed)
    assert main(["eval", str(run.path), "--render"]) == 0
    assert "The window was closed." in capsys.readouterr().out
    assert len(frames) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="others always have a display")
def test_without_a_display_one_line_says_so(train, capsys, monkeypatch):
    run = train(settings=DRAWN)
    for name in window.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    assert main(["eval", str(run.path), "--render"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("corral eval: --render opens a window, and there is no ")
    assert said.endswith("use --video FILE\n") and said.count("\n") == 1


def test_a_display_that_does_not_answer_is_an_error_and_no_traceback(
    train, capsys, monkeypatch
):
    run = train(settings=DRAWN)
    monkeypatch.setenv("SDL_VIDEODRIVER", "no_such_driver")
    assert main(["eval", str(run.path), "--render"]) == 2
    assert "a window cannot be opened here: " in capsys.readouterr().err


def test_an_env_that_cannot_be_drawn_is_refused(train, capsys, frames):
    run = train(settings={**SHORT, "env": "run_envs:Counting"})
    assert main(["eval", str(run.path), "--render"]) == 2
    assert "renders neither to human nor to rgb_array" in capsys.readouterr().err


def test_one_env_is_shown(train, capsys, frames):
    run = train(settings=DRAWN)
    assert main(["eval", str(run.path), "--render", "--num-envs", "4"]) == 2
    assert "leave out --num-envs" in capsys.readouterr().err
