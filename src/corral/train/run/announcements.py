"""What a run prints on the console: results, warnings, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from corral.rollouts.evaluation import Evaluation
from corral.rollouts.number_format import number, rate, score
from corral.train.recipes.config import RunConfig
from corral.train.run.directory import RunDirectory
from corral.train.run.failure import RunFailure, written_about
from corral.train.run.parts import CUT_KEY, FAILED_KEY
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

    # Evaluations ----------------------------------------------------------------------

    def evaluation(
        self, steps: int, results: Mapping[str, float], improved: bool
    ) -> None:
        """Print the results of an evaluation, and warnings about it."""
        config, metric = self.config, self.config.best_metric
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
        if slots:
            config, every = self.config, self.config.checkpoint_every or 1
            rows = every * (config.steps_per_update or 0) // config.num_envs
            text = (
                f"Episodes are cut short: in slot {min(slots)} none has ended in "
                f"{rows:,} steps, and a checkpoint ends all "
                "running episodes. If episodes are longer, their later steps are never "
                f"seen: raise checkpoint_every (now {every} updates)."
            )
            self._say_once("cut", text, "yellow")

    def failed_video(self, trouble: str | None) -> None:
        """Show the first reason."""
        if trouble is not None:
            self._say_once("video", f"No video: {trouble}.", "dim")

    def _say_once(self, subject: str, text: str, style: str) -> None:
        if subject not in self._told:
            self._told.add(subject)
            self.console.say(text, style)

    # The end --------------------------------------------------------------------------

    def finished(self) -> None:
        """Print where the report is and how to evaluate."""
        self.console.say(f"Report      {self.directory.report}", "cyan")
        self.console.say(f"Evaluate    {self.typed('eval')}", "cyan")

    def interrupted(self, update: int, steps: int) -> None:
        """Print how to continue after Ctrl-C."""
        say, updates = self.console.say, self.config.updates
        count = "" if updates is None else f" of {updates}"
        said = f"Stopped after update {update}{count} ({steps:,} steps)"
        say(f"{said}; everything is saved.", "yellow")
        say(f"Continue    {self.typed('train', '--resume')}", "cyan")
        if self.directory.last.exists():
            say(
                "            (bit-equal to a run without the stop, from its last "
                f"checkpoint: --resume {self.directory.last})"
            )

    def stopped_at_once(self, trained: bool) -> None:
        """Print how to continue after a second Ctrl-C, or one at the end."""
        lines = [f"Continue    {self.typed('train', '--resume')}"]
        lines = ["Stopped at once.", *self._what_is_left([], lines, trained)]
        self.console.say("\n".join(lines), "yellow")

    def failure(self, failure: RunFailure, trained: bool) -> str:
        """Return the text of the error that ended the run: what is saved, what next."""
        written = written_about(self.directory, failure.error, self.signed)
        lines = failure.next_steps(self.directory)
        lines = self._what_is_left(written, lines, trained)
        return "\n".join([failure.description(), *lines])

    def _what_is_left(
        self, written: list[str], lines: list[str], trained: bool
    ) -> list[str]:
        """Lines about checkpoints and files, then about what to do next."""
        directory = self.directory
        moments = (directory.interrupted, directory.last, directory.best)
        saved = ", ".join(str(one) for one in moments if one.exists())
        if trained:
            left = "All updates are done; the last evaluation and the report are not."
            lines = [left, *lines, f"Evaluate    {self.typed('eval')}"]
        return [*([f"Saved       {saved}"] if saved else []), *written, *lines]

    def typed(self, *words: str) -> str:
        """Return a command line about this run."""
        trust = [] if self.signed else ["--trust"]
        return shlex.join(["corral", *words, str(self.directory.path), *trust])


def spoken_time(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
