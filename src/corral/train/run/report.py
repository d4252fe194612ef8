"""The page about a run: how it learnt, and where its time went.

Made from the run's files alone, so it can be made again, or while the run goes on.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from corral.rollouts.number_format import number
from corral.train.reports.adaptation import add_adaptation
from corral.train.reports.charts import COLORS, INK, Curve, histogram, lines
from corral.train.reports.page import Draw, Page
from corral.train.run.directory import RECENT_EPISODES, RunDirectory
from corral.train.run.time_split import TIME_PARTS
from corral.train.sinks import jsonl

PERCENT = 100.0
# Of a line, at most.
MAX_POINTS = 200
# Pictures of infos, at most.
MAX_INFO_CHARTS = 12
# Part of the time -> its colour, and what it is.
TIME_CHARTS = {
    "env": (COLORS["green"], "steps and resets of the envs, divided by the workers"),
    "policy": (COLORS["purple"], "choosing actions and storing rows"),
    "learning": (COLORS["blue"], "updates of the policy"),
    "waiting": (COLORS["gray"], "waiting for the slowest worker, and waking up"),
    "copying": (COLORS["orange"], "everything else between program and workers"),
    "evaluating": (COLORS["gold"], "evaluation episodes"),
    "saving": (COLORS["cyan"], "checkpoints, metrics, copies of the policy for videos"),
}

Lines = Sequence[Mapping[str, Any]]
Points = list[tuple[float, float]]


def page(directory: RunDirectory) -> str:
    """The whole file."""
    about = directory.read_about()
    metrics, episodes = map(jsonl.read, (directory.metrics, directory.episodes))
    built = Page(about.get("title", directory.path.name), about.get("subtitle", ""))
    if about.get("result"):
        built.callout(about["result"], about.get("again", ""))
    _add_returns(built, metrics, about)
    add_adaptation(built, about.get("adaptation") or {}, _by_episode(metrics))
    _add_episodes(built, metrics)
    _add_lengths(built, episodes)
    _add_learner(built, metrics, about.get("charts") or {})
    _add_time(built, metrics, about)
    _add_use(built, metrics)
    _add_video(built, directory, about)
    _add_facts(built, directory, about)
    return built.render()


# How it learnt ------------------------------------------------------------------------


def _add_returns(built: Page, metrics: Lines, about: Mapping[str, Any]) -> None:
    shown = _both(metrics, "return")
    if not shown:
        return
    built.heading("Learning curve")
    deviations = dict(_points(metrics, "eval/return_std"))
    spread = [
        (step, mean - deviations.get(step, 0.0), mean + deviations.get(step, 0.0))
        for step, mean in _points(metrics, "eval/return")
    ]
    level = about.get("threshold")
    said = (
        f"Training: mean of the last {RECENT_EPISODES} episodes, with exploration, as "
        "on the console."
    )
    if spread:
        said += (
            " Evaluation: mean over separate episodes with deterministic actions; the "
            "shade is one standard deviation of the episodes."
        )
    if level is not None:
        said += f" Dotted: the env counts as solved at {number(level)}."
    built.picture(_drawn(shown, "return", spread=spread, level=level), said)


def _by_episode(metrics: Lines) -> list[Points]:
    """The returns of evaluations in the first, second, ... episode of a trial."""
    names = dict.fromkeys(key for line in metrics for key in line)
    count = sum(re.fullmatch(r"eval/return_\d+", name) is not None for name in names)
    keys = [f"eval/return_{place}" for place in range(1, count + 1)]
    return [_picked(_points(metrics, key)) for key in keys]


def _both(metrics: Lines, name: str, times: float = 1.0) -> list[Curve]:
    """How it went in training and in evaluations."""
    kinds = (
        ("training", f"episode/{name}", COLORS["gray"], ""),
        ("evaluation", f"eval/{name}", COLORS["blue"], "o"),
    )
    return [
        Curve(title, _picked(points), color, "-", marker)
        for title, key, color, marker in kinds
        if (points := _points(metrics, key, times))
    ]


def _add_episodes(built: Page, metrics: Lines) -> None:
    """Success, length, and what infos say."""
    keys = dict.fromkeys(key for line in metrics for key in line)
    names = [key.partition("/info/")[2] for key in keys if "/info/" in key]
    names = [name for name in dict.fromkeys(names) if _both(metrics, f"info/{name}")]
    success, length = _both(metrics, "success_rate", PERCENT), _both(metrics, "length")
    shown = [
        ("Success rate", _drawn(success, "% of the episodes", floor=0.0), success),
        ("Episode length", _drawn(length, "steps"), length),
    ]
    for name in names[:MAX_INFO_CHARTS]:
        curves = _both(metrics, f"info/{name}")
        shown.append((name, _drawn(curves, name), curves))
    if not any(curves for _, _, curves in shown):
        return
    built.heading("Episodes")
    built.paragraph(
        f"Training: mean of the last {RECENT_EPISODES} episodes. Evaluation: mean over "
        "its episodes. Other names are entries of the info that ends an episode.",
        soft=True,
    )
    built.grid((title, draw, "") for title, draw, curves in shown if curves)
    if left_out := ", ".join(names[MAX_INFO_CHARTS:]):
        built.paragraph(f"Also in metrics.jsonl: {left_out}.", soft=True)


def _add_lengths(built: Page, episodes: Lines) -> None:
    lengths = [float(line["length"]) for line in episodes]
    if len(lengths) < 2:
        return
    half = len(lengths) // 2
    built.heading("Distribution of episode lengths")
    groups = {"first half": lengths[:half], "second half": lengths[half:]}
    colors = dict(zip(groups, (COLORS["gray"], COLORS["blue"]), strict=True))
    built.picture(
        partial(histogram, groups, colors, "steps in an episode", "% of the episodes"),
        f"All {len(lengths):,} episodes of training, in the order in which they ended.",
    )


def _add_learner(built: Page, metrics: Lines, charts: Mapping[str, Any]) -> None:
    """The learner's metrics: those it has captions for, else all of them."""
    keys = dict.fromkeys(key for line in metrics for key in line)
    own = [key.removeprefix("learn/") for key in keys if key.startswith("learn/")]
    shown, size = [], 1
    for name, (title, caption) in (charts or {key: (key, "") for key in own}).items():
        if points := _points(metrics, f"learn/{name}"):
            size = -(-len(points) // MAX_POINTS)
            line = Curve(title, _averaged(points, size), COLORS["purple"], "-", "")
            shown.append((title, _drawn([line], ""), caption))
    if shown:
        built.heading("Losses and policy")
        each = "one update" if size == 1 else f"the mean of {size} updates"
        built.paragraph(f"Each point is {each}.", soft=True)
        built.grid(shown)


def _drawn(shown: Sequence[Curve], y_label: str, **options: Any) -> Draw:
    return partial(lines, shown, "env steps", y_label, start=0.0, **options)


# Where the time went ------------------------------------------------------------------


def _add_time(built: Page, metrics: Lines, about: Mapping[str, Any]) -> None:
    split = about.get("split")
    if not split:  # the run goes on: the latest sample
        measured = [line for line in metrics if line.get("time/env") is not None]
        split = {part: measured[-1][f"time/{part}"] for part in TIME_PARTS if measured}
    if not split:
        return
    built.heading("Where the time went")
    built.shares(
        [(part, split.get(part, 0.0), *TIME_CHARTS[part]) for part in TIME_PARTS]
    )
    if about.get("faster"):
        built.paragraph(about["faster"])


def _add_use(built: Page, metrics: Lines) -> None:
    kinds = (
        ("use/cpu", "CPU, of all usable cores", COLORS["green"]),
        ("use/gpu", "GPU", COLORS["orange"]),
        ("use/gpu_memory", "GPU memory", COLORS["gold"]),
    )
    shown = [
        Curve(title, points, color, "-", "")
        for name, title, color in kinds
        if (points := _points(metrics, name, PERCENT))
    ]
    speed = _points(metrics, "speed/steps_per_second")
    if not shown or not speed:
        return
    built.heading("Speed, CPU and GPU")
    means = [f"{curve.name}: {_mean(curve.points):.0f}% busy" for curve in shown]
    if len(shown) == 1:
        means.append("no GPU was used")
    built.paragraph(
        f"{_mean(speed):,.0f} steps/s while collecting and learning, without "
        f"evaluations and checkpoints. {'; '.join(means)}. Workers included.",
        soft=True,
    )
    if len(speed) > 1:
        line = Curve("speed", speed, INK, "-", "")
        built.grid(
            [
                ("Speed", _drawn([line], "env steps per second", floor=0.0), ""),
                ("CPU and GPU", _drawn(shown, "% busy", floor=0.0), ""),
            ]
        )


def _mean(points: Sequence[tuple[float, float]]) -> float:
    return fmean(value for _, value in points)


# The rest -----------------------------------------------------------------------------


def _add_video(built: Page, directory: RunDirectory, about: Mapping[str, Any]) -> None:
    best = directory.videos / "best.gif"
    videos = [best] if best.exists() else sorted(directory.videos.glob("*.gif"))
    for video in videos[-1:]:
        built.heading("Video")
        data = base64.b64encode(video.read_bytes()).decode()
        picture = f'<img alt="one episode" src="data:image/gif;base64,{data}">'
        known = about.get("video_task")
        task = f" of task {known}" if known else ""
        caption = f"One episode{task}, deterministic actions: {video.name}"
        built.figure(picture, caption)


def _add_facts(built: Page, directory: RunDirectory, about: Mapping[str, Any]) -> None:
    built.heading("The run")
    built.facts({name: str(text) for name, text in about.get("facts", {}).items()})
    if about.get("command"):
        built.code(shlex.join(about["command"]))
    built.heading("Every setting")
    lines = directory.config.read_text(encoding="utf-8").splitlines()
    built.code("\n".join(line for line in lines if not line.startswith("#")))


def _points(metrics: Lines, name: str, times: float = 1.0) -> Points:
    known = [line for line in metrics if line.get(name) is not None]
    return [(line["step"], times * line[name]) for line in known]


def _picked(points: Points) -> Points:
    """No more than a picture can show: values as they are, the last among them."""
    size = -(-len(points) // MAX_POINTS)
    return points[::-1][::size][::-1]


def _averaged(points: Points, size: int) -> Points:
    """The means of so many at a time."""
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [(group[-1][0], _mean(group)) for group in groups]
