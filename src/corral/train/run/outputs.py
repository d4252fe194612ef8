"""Where a run's metrics go, and what it prints: results, warnings, the next command.

Metrics go to the run's files, to the terminal, and to W&B if asked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from corral.errors import Fault, FaultError
from corral.rollouts.evaluation import Evaluation
from corral.rollouts.number_format import number, rate, score
from corral.train.recipes.config import RunConfig
from corral.train.run.directory import RECENT_EPISODES, RunDirectory, write_text
from corral.train.run.failure import RunFailure, written_about
from corral.train.run.parts import CUT_KEY, FAILED_KEY
from corral.train.sinks import Sink, VideoSink, jsonl
from corral.train.sinks.console import ConsoleSink, clock
from corral.train.sinks.tensorboard import TensorboardSink

if TYPE_CHECKING:
    from corral.train.sinks.wandb import WandbSink

# Characters of an error's text that a line keeps.
MAX_ERROR_CHARACTERS = 200


class Outputs:
    """Every sink of one run, and the texts on its console.

    Args:
        directory: of the run.
        config: of the run.
        console: prints.
        command: the command line; empty if the run was started from Python.
        signed: whether the run can be opened again without --trust.
    """

    def __init__(
        self,
        directory: RunDirectory,
        config: RunConfig,
        console: ConsoleSink,
        command: Sequence[str] = (),
        signed: bool = True,
    ) -> None:
        self.console = console
        self._directory, self._config = directory, config
        self.command, self.signed = command, signed
        self._sinks: list[Sink] = [TensorboardSink(directory.tensorboard), console]
        self._wandb = None if config.wandb is None else _wandb(directory, config)
        if self._wandb is not None:
            self._sinks.insert(0, self._wandb)
        # Videos that were there before, or were uploaded.
        self._shared_videos = set(_videos(directory))
        # Messages that are shown only once, and were.
        self._told: set[str] = set()

    def began(self) -> None:
        """Print what the figure beside the bar is."""
        text = f"return: the mean of the last {RECENT_EPISODES} episodes of training"
        self.console.say(text, "dim")

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Write metrics of one moment."""
        jsonl.append(self._directory.metrics, [metrics], step)
        for sink in self._sinks:
            sink.write(metrics, step)

    def video(self, name: str, path: Path, step: int) -> None:
        """Print where a video is, and pass it on to the sinks that take videos."""
        self.console.say(f"Video       {path}", "dim")
        for sink in self._sinks:
            kept = sink is self._wandb and not self._uploads_videos
            if isinstance(sink, VideoSink) and not kept:
                sink.video(name, path, step)

    def write_fault(self, fault: Fault, count: int, step: int) -> None:
        """Print and write a restart, with the number of restarts so far."""
        self.console.say(line_of(fault, count), "yellow")
        names = ["kind", "command", "slot", "worker", "seed"]
        names += ["site", "node"] if fault.site is not None else []
        text = f"{fault.error_text or fault.signal_name or ''}"
        row = {
            "count": count,
            **{name: getattr(fault, name) for name in names},
            "error": fault.error_type,
            "text": text[:MAX_ERROR_CHARACTERS],
        }
        jsonl.append(self._directory.faults, [row], step)

    @property
    def _uploads_videos(self) -> bool:
        return getattr(self._config.wandb, "videos", False)

    def share_videos(self, step: int) -> None:
        """Log new videos to W&B, if it is on."""
        if self._wandb is None or not self._uploads_videos:
            return
        for path in _videos(self._directory):
            if path not in self._shared_videos:
                self._shared_videos.add(path)
                self._wandb.video(path.stem, path, step)

    def share_model(self, step: int) -> None:
        """Log checkpoints, config and exported files to W&B, if it is on."""
        if self._wandb is None or not getattr(self._config.wandb, "artifacts", False):
            return
        found = sorted(self._directory.checkpoints.glob("*.*"))
        files = [path for path in (self._directory.config, *found) if path.is_file()]
        about = {"env": self._config.env, "steps": step}
        self._wandb.write_model(self._config.name, files, about)

    def close(self) -> None:
        """Close every sink, also if one of them cannot be closed."""
        with ExitStack() as closing:
            for sink in reversed(self._sinks):
                closing.callback(sink.close)

    # Evaluations ----------------------------------------------------------------------

    def evaluation(
        self, steps: int, results: Mapping[str, float], improved: bool
    ) -> None:
        """Print the results of an evaluation, and warnings about it."""
        config, metric = self._config, self._config.best_metric
        text = score(results["eval/return"], results["eval/return_std"])
        if "eval/success_rate" in results:
            text += f", success {rate(results['eval/success_rate'])}"
        if metric in results and metric not in ("eval/return", "eval/success_rate"):
            text += f", {metric} {number(results[metric])}"
        mark = "  best so far" if improved else ""
        self.console.say(f"step {steps}  evaluated {text}{mark}")
        texts = {
            CUT_KEY: f"were cut after {config.evaluate_length:,} steps "
            "(evaluate_length). If the env never ends one, give it a time limit.",
            FAILED_KEY: "failed each time they were run, and do not count.",
        }
        for key, text in texts.items():
            if count := int(results.get(f"eval/{key}", 0)):
                of_all = f"{count} of the {config.evaluate_episodes} episodes"
                self.console.say(f"{of_all} {text}", "yellow")

    def final_evaluation(self, result: Evaluation, more: Mapping[str, float]) -> str:
        """Print the result of the best policy; return the text."""
        text = (
            f"Best policy: return {score(result.mean, result.std)} over "
            f"{self._config.final_episodes} new episodes."
        )
        if result.success_rate is not None:
            text += f" Success rate: {rate(result.success_rate)}."
        if result.failed:
            text += f" {len(result.failed)} of them failed, and do not count."
        text += "".join(f" {name}: {number(value)}." for name, value in more.items())
        self.console.say(text, "bold green")
        return text

    # What the user should know once ---------------------------------------------------

    def cut_episodes(self, slots: Collection[int]) -> None:
        """Warn once that no episode ended in these slots between two checkpoints."""
        if slots:
            config, every = self._config, self._config.checkpoint_every or 1
            rows = every * (config.steps_per_update or 0) // config.num_envs
            text = (
                f"Episodes are cut short: in slot {min(slots)} none has ended in "
                f"{rows:,} steps, and every checkpoint ends all running episodes. The "
                "policy never learns from the later steps of longer episodes: raise "
                f"checkpoint_every (now {every} updates)."
            )
            self._say_once("cut", text, "yellow")

    def recording_video(self) -> None:
        """Print what the run waits for."""
        self.console.say("Recording a video of the policy… (Ctrl-C skips it)", "dim")

    def skipped_video(self) -> None:
        """Print that Ctrl-C ended the wait."""
        self.console.say("The video was skipped.", "yellow")

    def failed_video(self, trouble: str | None) -> None:
        """Show the first reason."""
        if trouble is not None:
            self._say_once("video", f"No video: {trouble}.", "dim")

    def _say_once(self, subject: str, text: str, style: str) -> None:
        if subject not in self._told:
            self._told.add(subject)
            self.console.say(text, style)

    # The end --------------------------------------------------------------------------

    def trained(self, steps: int, seconds: float) -> None:
        """Print how long the updates took."""
        self.console.say(f"Trained {steps:,} steps in {clock(seconds)}.", "bold")

    def compared(self, text: str) -> None:
        """Print the run's speed beside that of one env."""
        self.console.say(text)

    def not_compared(self, error: FaultError) -> None:
        """Print why the speed of one env is not known."""
        reason = str(error).partition("\n")[0]
        self.console.say(f"The speed of one env was not measured: {reason}", "dim")

    def exported(self, paths: Iterable[Path]) -> None:
        """Print which files the learner wrote beside its checkpoints."""
        for path in paths:
            self.console.say(f"Also        {path}")

    def finished(self) -> None:
        """Print where the report is and how to evaluate."""
        self.console.say(f"Report      {self._directory.report}", "cyan")
        self.console.say(f"Evaluate    {self.typed('eval')}", "cyan")

    def interrupted(self, update: int, steps: int) -> None:
        """Print how to continue after Ctrl-C."""
        say, updates = self.console.say, self._config.updates
        count = "" if updates is None else f" of {updates}"
        said = f"Stopped after update {update}{count} ({steps:,} steps)"
        say(f"{said}; everything is saved.", "yellow")
        say(f"Continue    {self.typed('train', '--resume')}", "cyan")
        if self._directory.last.exists():
            say(
                "            (bit-equal to a run without the stop, from its last "
                f"checkpoint: --resume {self._directory.last})"
            )

    def stopped_at_once(self, trained: bool) -> None:
        """Print how to continue after a second Ctrl-C, or one at the end."""
        lines = [f"Continue    {self.typed('train', '--resume')}"]
        lines = ["Stopped at once.", *self._what_is_left([], lines, trained)]
        self.console.say("\n".join(lines), "yellow")

    def failure(self, failure: RunFailure, trained: bool) -> str:
        """Return the text of the error that ended the run: what is saved, what next."""
        written = written_about(self._directory, failure.error, self.signed)
        lines = failure.next_steps(self._directory)
        lines = self._what_is_left(written, lines, trained)
        return "\n".join([failure.description(), *lines])

    def _what_is_left(
        self, written: list[str], lines: list[str], trained: bool
    ) -> list[str]:
        """Lines about checkpoints and files, then about what to do next."""
        directory = self._directory
        moments = (directory.interrupted, directory.last, directory.best)
        saved = ", ".join(str(one) for one in moments if one.exists())
        if trained:
            left = "All updates are done; the last evaluation and the report are not."
            lines = [left, *lines, f"Evaluate    {self.typed('eval')}"]
        return [*([f"Saved       {saved}"] if saved else []), *written, *lines]

    def typed(self, *words: str) -> str:
        """Return a command line about this run."""
        trust = [] if self.signed else ["--trust"]
        return shlex.join(["corral", *words, str(self._directory.path), *trust])


def _videos(directory: RunDirectory) -> list[Path]:
    """One file for each video."""
    found = (directory.videos.glob(f"*.{kind}") for kind in ("gif", "mp4"))
    by_name = {path.stem: path for one in found for path in sorted(one)}
    return [by_name[name] for name in sorted(by_name)]


def _wandb(directory: RunDirectory, config: RunConfig) -> WandbSink:
    from corral.train.sinks.wandb import WandbSink

    assert config.wandb is not None
    asked = config.wandb.model_dump(exclude={"videos", "artifacts", "project", "name"})
    path, run_id = directory.path.resolve(), directory.read_about().get("wandb")
    name = f"{path.parent.name}-{path.name}"
    if run_id is None:
        # Unique: another run may have a folder of the same name elsewhere.
        plain = re.sub(r"[\W_]", "-", name)[-40:]
        run_id = f"{plain}-{os.urandom(4).hex()}".lstrip("-")
        directory.update_about(wandb=run_id)
    return WandbSink(
        config.wandb.project,
        config.wandb.name or name,
        config.model_dump(mode="json"),
        path,
        run_id,
        **{key: value for key, value in asked.items() if value},
    )


def cut(directory: RunDirectory, step: int) -> None:
    """Remove what was written after a step, since the run continues from there."""
    for path in (directory.metrics, directory.episodes, directory.faults):
        if path.exists():
            kept = [line for line in jsonl.read(path) if line["step"] <= step]
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def line_of(fault: Fault, count: int) -> str:
    """Return one line: what was restarted, why, and the number of restarts."""
    slots = f"slot {fault.slot}" if fault.slot is not None else "all slots"
    places = [] if fault.kind == "node" else [f"{slots} of worker {fault.worker}"]
    if fault.site is not None:
        places += [f"site {fault.site}", f"node {fault.node}"]
    code = fault.signal_name or f"exit code {fault.exit_code}"
    limit = "" if fault.limit is None else f" within {fault.limit:g} s"
    text = " ".join((fault.error_text or "").split())
    reasons = {
        "died": f"its process ended in {fault.command} by {code}",
        "hung": f"no answer to {fault.command}{limit}",
        "raised": f"{fault.error_type} in {fault.command}: {text}",
        "node": text,
    }
    reason = reasons[fault.kind][:MAX_ERROR_CHARACTERS]
    return f"Restarted   {', '.join(places)}: {reason} ({count} so far)"
