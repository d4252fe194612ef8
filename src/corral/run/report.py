"""The page about a run: how it learnt, and where its time went.

Made from the run's files alone, so it can be made again, or while the run goes on.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corral.reports.charts import COLORS, INK, Bar, Curve, bars, histogram, lines
from corral.reports.page import Page
from corral.run.accounts import PARTS
from corral.run.directory import RunDirectory
from corral.sinks import jsonl

STEPS = "env steps"
PERCENT = 100.0
FINE, COARSE = 200, 60
"""Points of a line at most; where there are more of them, their means are drawn."""
PART_COLORS = {
    "env": COLORS["green"],
    "policy": COLORS["purple"],
    "learning": COLORS["blue"],
    "waiting": COLORS["gray"],
    "copying": COLORS["orange"],
    "evaluating": COLORS["gold"],
    "saving": COLORS["cyan"],
}
LOSSES = ("learn/policy_loss", "learn/value_loss", "learn/explained_variance")

Lines = Sequence[Mapping[str, Any]]


def page(directory: RunDirectory) -> str:
    """The whole file."""
    about = directory.told()
    metrics = jsonl.read(directory.metrics) if directory.metrics.exists() else []
    episodes = jsonl.read(directory.episodes) if directory.episodes.exists() else []
    built = Page(about.get("title", directory.path.name), about.get("subtitle", ""))
    if about.get("result"):
        built.callout(about["result"], about.get("again", ""))
    _add_curve(built, metrics, episodes, about)
    _add_lengths(built, episodes)
    _add_learner(built, metrics)
    _add_time(built, metrics, about)
    _add_use(built, metrics)
    _add_video(built, directory)
    _add_facts(built, directory, about)
    return built.render()


# How it learnt ------------------------------------------------------------------------


def _add_curve(
    built: Page, metrics: Lines, episodes: Lines, about: Mapping[str, Any]
) -> None:
    training = _points(episodes, "return")
    evaluated = [line for line in metrics if line.get("eval/return") is not None]
    shown = []
    if training:
        points = _thin(training, COARSE)
        shown.append(Curve("while training", points, COLORS["gray"], "-", ""))
    if evaluated:
        points = _points(evaluated, "eval/return")
        shown.append(Curve("evaluated", points, COLORS["blue"]))
    if not shown:
        return
    built.heading("Learning curve")
    spread, level = list(_spread(evaluated)), about.get("threshold")
    built.figure(
        lines(shown, STEPS, "return", spread=spread, level=level),
        "while training: episodes as they ended, with exploring actions. evaluated: "
        "the policy's most likely actions on other episodes; the shade is one standard "
        "deviation. Dotted: what the env's authors call solved, if they say so.",
    )


def _spread(evaluated: Lines) -> Iterator[tuple[float, float, float]]:
    for line in evaluated:
        mean, spread = line["eval/return"], line.get("eval/return_std") or 0.0
        yield line["step"], mean - spread, mean + spread


def _add_lengths(built: Page, episodes: Lines) -> None:
    lengths = [float(line["length"]) for line in episodes]
    if len(lengths) < 2:
        return
    half = len(lengths) // 2
    built.heading("Episode lengths")
    groups = {"first half": lengths[:half], "second half": lengths[half:]}
    colors = {"first half": COLORS["gray"], "second half": COLORS["blue"]}
    svg = histogram(groups, colors, "steps in an episode", "% of the episodes")
    built.figure(svg, f"{len(lengths):,} episodes ended while training.")


def _add_learner(built: Page, metrics: Lines) -> None:
    for name, title, caption in (
        ("learn/entropy", "entropy", "How undecided the policy still is."),
        (
            "learn/kl",
            "KL",
            "How far each update moved the policy from the one that collected.",
        ),
    ):
        points = _points(metrics, name)
        if points:
            built.heading(title[0].upper() + title[1:])
            line = Curve(title, _thin(points), COLORS["purple"], "-", "")
            built.figure(lines([line], STEPS, title), caption)
    rows = [
        (name.partition("/")[2].replace("_", " "), *_ends(_points(metrics, name)))
        for name in LOSSES
        if _points(metrics, name)
    ]
    if rows:
        built.heading("Losses")
        built.table(["", "first", "median", "last"], rows, texts=(0,))


def _ends(points: Sequence[tuple[float, float]]) -> tuple[str, str, str]:
    values = [value for _, value in points]
    middle = sorted(values)[len(values) // 2]
    return f"{values[0]:.4g}", f"{middle:.4g}", f"{values[-1]:.4g}"


# Where the time went ------------------------------------------------------------------


def _add_time(built: Page, metrics: Lines, about: Mapping[str, Any]) -> None:
    split = about.get("split") or _latest_split(metrics)
    if not split:
        return
    built.heading("Where the time went")
    parts = {part: PERCENT * split.get(part, 0.0) for part in PARTS}
    svg = bars({"": [Bar("", parts)]}, PART_COLORS, "% of the run", PERCENT)
    built.figure(
        svg,
        "env: the envs' own steps and resets, shared out over the workers. policy: "
        "choosing actions and keeping rows. waiting: for the slowest worker, and to be "
        "woken. copying: everything else between the two.",
    )
    shares = [(part, f"{parts[part]:.1f}%") for part in PARTS]
    built.table([part for part, _ in shares], [[text for _, text in shares]])
    if about.get("faster"):
        built.paragraph(about["faster"])


def _latest_split(metrics: Lines) -> dict[str, float]:
    for line in reversed(metrics):
        if line.get("time/env") is not None:
            return {part: line[f"time/{part}"] for part in PARTS}
    return {}


def _add_use(built: Page, metrics: Lines) -> None:
    kinds = (
        ("use/cpu", "CPU, of all usable cores", COLORS["green"]),
        ("use/gpu", "GPU", COLORS["orange"]),
        ("use/gpu_memory", "GPU memory", COLORS["gold"]),
    )
    shown = [
        Curve(title, [(x, PERCENT * y) for x, y in points], color, "-", "")
        for name, title, color in kinds
        if (points := _points(metrics, name))
    ]
    if not shown:
        return
    built.heading("CPU and GPU")
    means = [f"{curve.name}: {_mean(curve.points):.0f}% busy" for curve in shown]
    if len(shown) == 1:
        means.append("no GPU was used")
    if len(shown[0].points) > 1:
        built.figure(lines(shown, STEPS, "% busy", floor=0.0))
    built.paragraph("; ".join(means) + ". Workers included.", soft=True)
    _add_speed(built, _points(metrics, "speed/steps_per_second"))


def _add_speed(built: Page, speed: list[tuple[float, float]]) -> None:
    built.heading("Speed")
    if len(speed) > 1:
        line = Curve("speed", speed, INK, "-", "")
        built.figure(lines([line], STEPS, "env steps per second", floor=0.0))
    built.paragraph(
        f"{_mean(speed):,.0f} steps/s while collecting and learning; evaluations and "
        "checkpoints left out.",
        soft=True,
    )


def _mean(points: Sequence[tuple[float, float]]) -> float:
    return sum(value for _, value in points) / len(points)


# The rest -----------------------------------------------------------------------------


def _add_video(built: Page, directory: RunDirectory) -> None:
    videos = sorted(directory.videos.glob("*.gif"))
    if not videos:
        return
    shown = directory.videos / "best.gif"
    if shown not in videos:
        shown = videos[-1]
    built.heading("What it does")
    data = base64.b64encode(shown.read_bytes()).decode()
    picture = f'<img alt="one episode" src="data:image/gif;base64,{data}">'
    built.figure(picture, f"One episode: {shown.name}")


def _add_facts(built: Page, directory: RunDirectory, about: Mapping[str, Any]) -> None:
    built.heading("The run")
    built.facts({name: str(text) for name, text in about.get("facts", {}).items()})
    if about.get("command"):
        built.code(shlex.join(about["command"]))
    built.heading("Every setting")
    built.code(directory.config.read_text(encoding="utf-8").rstrip())


def _points(metrics: Lines, name: str) -> list[tuple[float, float]]:
    return [
        (line["step"], line[name]) for line in metrics if line.get(name) is not None
    ]


def _thin(
    points: Sequence[tuple[float, float]], most: int = FINE
) -> list[tuple[float, float]]:
    """No more points than a picture can show."""
    size = -(-len(points) // most)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [
        (group[-1][0], sum(value for _, value in group) / len(group))
        for group in groups
    ]
