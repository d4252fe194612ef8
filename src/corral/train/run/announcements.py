"""What a run prints on the console: results, warnings, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral.rollouts.evaluation import Evaluation
from corral.rollouts.number_format import number, rate, score
from corral.train.recipes.config import RunConfig
from corral.train.run.directory import RunDirectory
from corral.train.run.evaluation import CUT_KEY, FAILED_KEY, RECENT_EPISODES
from corral.train.run.failure import RunFailure, written_about
from corral.train.sinks.console import ConsoleSink


@dataclass(slots=True)
class Announcements:
    """The lines of one run.

    Args:
        console: prints them.
        config: of the run.
        directory: of the run.
        command: the command line; empty if the run was started from Python.
        signed: whether the run can be opened again without --trust.
    """

    console: ConsoleSink
    config: RunConfig
    directory: RunDirectory
    command: Sequence[str] = ()
    signed: bool = True
    _told: set[str] = field(default_factory=set)
    """Messages that are shown only once, and were."""

    def beginning(self) -> None:
        """Explain the figures on the console."""
        text = f"return: the mean of the last {RECENT_EPISODES} episodes of training"
        self.console.say(text, "dim")

    # Evaluations ----------------------------------------------------------------------

    def evaluation(
        self, steps: int, results: Mapping[str, float], improved: bool
    ) -> None:
        """Print the results of an evaluation, and warnings about it."""
        metric = self.config.best_metric
        mark = "  best so far" if improved else ""
        success = results.get("eval/success_rate")
        named = "" if success is None else f", success {rate(success)}"
        if metric in results and metric not in ("eval/return", "eval/success_rate"):
            named += f", {metric} {number(results[metric])}"
        shown = score(results["eval/return"], results["eval/return_std"])
        self.console.say(f"step {steps}  evaluated {shown}{named}{mark}")
        self._unended_evaluation(results)

    def _unended_evaluation(self, results: Mapping[str, float]) -> None:
        """Warn about episodes that were truncated or failed."""
        config = self.config
        cut, failed = (
            int(results.get(f"eval/{name}", 0)) for name in (CUT_KEY, FAILED_KEY)
        )
        if cut:
            self.console.say(
                f"{cut} of the {config.evaluate_episodes} episodes were cut after "
                f"{config.evaluate_length:,} steps (evaluate_length). If the env never "
                "ends one, give it a time limit.",
                "yellow",
            )
        if failed:
            self.console.say(
                f"{failed} of the {config.evaluate_episodes} episodes failed each time "
                "they were run, and do not count.",
                "yellow",
            )

    def final_evaluation(self, result: Evaluation, more: Mapping[str, float]) -> str:
        """Print the result of the best policy; return the text."""
        text = (
            f"Best policy: return {score(result.mean, result.std)} over "
            f"{self.config.final_episodes} new episodes."
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
        if not slots or "cut" in self._told:
            return
        self._told.add("cut")
        every = self.config.checkpoint_every or 1
        self.console.say(
            f"Episodes are cut short: in slot {min(slots)} none has ended in "
            f"{every * self._rows_per_update:,} steps, and a checkpoint ends all "
            "running episodes. If episodes are longer, their later steps are never "
            f"seen: raise checkpoint_every (now {every} updates).",
            "yellow",
        )

    @property
    def _rows_per_update(self) -> int:
        return (self.config.steps_per_update or 0) // self.config.num_envs

    def failed_video(self, trouble: str | None) -> None:
        """Show the first reason; the number of failed videos follows at the end."""
        if trouble is not None and "video" not in self._told:
            self._told.add("video")
            self.console.say(f"No video: {trouble}.", "dim")

    # The end --------------------------------------------------------------------------

    def trained(self, steps: int, seconds: float) -> None:
        """Print that all updates are done."""
        self.console.say(f"Trained {steps:,} steps in {_clock(seconds)}.", "bold")

    def exported(self, paths: Sequence[Path]) -> None:
        """Print the files that were exported for other programs."""
        for path in paths:
            self.console.say(f"Also        {path}")

    def finished(self, failed_videos: int) -> None:
        """Print where the report is and how to evaluate."""
        if failed_videos > 1:
            self.console.say(f"{failed_videos} videos could not be recorded.", "dim")
        self.console.say(f"Report      {self.directory.report}", "cyan")
        self.console.say(f"Evaluate    {self.typed('eval')}", "cyan")

    def interrupted(self, update: int, steps: int) -> None:
        """Print how to continue after Ctrl-C."""
        say = self.console.say
        count = "" if self.config.updates is None else f" of {self.config.updates}"
        say(
            f"Stopped after update {update}{count} "
            f"({steps:,} steps); everything is saved.",
            "yellow",
        )
        say(f"Go on       {self.typed('train', '--resume')}", "cyan")
        if self.directory.last.exists():
            say(
                "            (bit-equal to a run without the stop, from its last "
                f"checkpoint: --resume {self.directory.last})"
            )

    def stopped_at_once(self, trained: bool) -> None:
        """Print how to continue after a second Ctrl-C, or one at the end."""
        lines = [f"Go on       {self.typed('train', '--resume')}"]
        lines = [*self._kept(), *self._with_what_is_left(lines, trained)]
        self.console.say("\n".join(["Stopped at once.", *lines]), "yellow")

    def failure(self, failure: RunFailure, trained: bool) -> str:
        """Return the text of the error that ended the run: what is kept, what next."""
        written = written_about(self.directory, failure.error, self.signed)
        lines = failure.resuming(self.directory)
        lines = [*self._kept(), *written, *self._with_what_is_left(lines, trained)]
        return "\n".join([failure.description(), *lines])

    def _kept(self) -> list[str]:
        directory = self.directory
        moments = (directory.interrupted, directory.last, directory.best)
        kept = [str(one) for one in moments if one.exists()]
        return [f"Kept        {', '.join(kept)}"] if kept else []

    def _with_what_is_left(self, lines: list[str], trained: bool) -> list[str]:
        if not trained:
            return lines
        left = "All updates are done; the last evaluation and the report are not."
        return [left, *lines, f"Evaluate    {self.typed('eval')}"]

    def typed(self, *words: str) -> str:
        """Return a command line about this run."""
        trust = [] if self.signed else ["--trust"]
        return shlex.join(["corral", *words, str(self.directory.path), *trust])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
