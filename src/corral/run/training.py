"""The training loop.

    collect ─► learn ─► log ─► evaluate ─► checkpoint ─┐
       ▲                                               │
       └───────────────────────────────────────────────┘

A checkpoint ends the running episodes, and every slot goes on with a seed made from
(run, slot, update). So a run that goes on from its last checkpoint does what it would
have done without the interruption, bit for bit.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from corral.errors import CorralError, TrainingDiverged
from corral.recipes.parts import Parts
from corral.rollouts.rollout import Rollout
from corral.run import report
from corral.run.accounts import Accounts
from corral.run.checkpoint import Checkpoint
from corral.run.directory import RunDirectory
from corral.run.drafts import replacing, write_text
from corral.run.evaluation import FINAL, VIDEO, Best, Evaluator, try_to_film
from corral.run.outputs import Outputs
from corral.run.speed import compare

DONE, INTERRUPTED = 0, 130
RECENT = 100
"""Episodes that the running return is the mean of."""


@dataclass(slots=True)
class Progress:
    """How far a run has come."""

    update: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Training took before this program went on with it."""
    results: dict[str, float] = field(default_factory=dict)
    """The latest evaluation."""


class Training:
    """One run, from where it is to its end."""

    def __init__(
        self,
        parts: Parts,
        directory: RunDirectory,
        outputs: Outputs,
        progress: Progress,
        best: Best,
    ) -> None:
        self.parts = parts
        self.config = parts.config
        self.directory = directory
        self.outputs = outputs
        self.progress = progress
        self.best = best
        self.evaluator = Evaluator(parts)
        self.recent: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._accounts = Accounts(parts.pool)
        self._began_at = progress.steps
        self._latest: dict[str, float] = {}
        self._stop = False

    def run(self) -> int:
        """Train to the end, or to Ctrl-C; returns the exit status."""
        config, progress = self.config, self.progress
        with self._saying_what_is_kept():
            with self.outputs.console.watching(progress.steps), self._minding_ctrl_c():
                while progress.update < config.updates and not self._stop:
                    rollout = self.collect()
                    metrics = self.learn(rollout)
                    self.log(rollout, metrics)
                    if self._is_due(config.evaluate_every):
                        self.evaluate()
                    if self._is_due(config.checkpoint_every):
                        self.checkpoint()
                    if self.best.is_enough:
                        break
            is_over = progress.update >= config.updates or self.best.is_enough
            return self.finish() if is_over else self.interrupt()

    # The loop's verbs -----------------------------------------------------------------

    def collect(self) -> Rollout:
        """Act in every env, so many steps."""
        return self.parts.collector.collect(self.config.ppo.n_steps)

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """Update the policy."""
        with self._accounts.spent_on("learning"), _naming_rewards(rollout):
            learnt = self.parts.learner.update(rollout)
        self.progress.update += 1
        self.progress.steps += rollout.reward.size
        return {f"learn/{name}": value for name, value in learnt.items()}

    def log(self, rollout: Rollout, metrics: dict[str, float]) -> None:
        """Write what was measured, and the statistics of the latest episodes."""
        with self._accounts.spent_on("saving"):
            steps = self.progress.steps
            self.recent.extend((e.return_, e.length) for e in rollout.episodes)
            if self.recent:
                returns, lengths = zip(*self.recent, strict=True)
                metrics["episode/return"] = float(np.mean(returns))
                metrics["episode/length"] = float(np.mean(lengths))
            metrics |= self._accounts.sample(steps - self._began_at)
            self._latest |= metrics
            self.outputs.write_episodes(rollout.episodes, steps)
            self.outputs.write(metrics, steps)

    def evaluate(self) -> None:
        """Run validation episodes; keep the policy if it is the best so far."""
        with self._accounts.spent_on("evaluating"):
            results = self.evaluator.validate()
        self.progress.results = results
        with self._accounts.spent_on("saving"):
            self.outputs.write(results, self.progress.steps)
            if self.best.improved(self._latest | results):
                self._moment().save(self.directory.best)
            self._say_results(results)
            if self.config.video == "evaluations":
                self._film(f"update-{self.progress.update:06}")

    def checkpoint(self) -> None:
        """End the running episodes, and keep everything the run needs to go on."""
        with self._accounts.spent_on("saving"):
            self.parts.collector.end_episodes(self.progress.update)
            self._moment().save(self.directory.last)
            self.directory.interrupted.unlink(missing_ok=True)

    def _is_due(self, every: int | None) -> bool:
        return self.progress.update % (every or 1) == 0

    def _moment(self) -> Checkpoint:
        spec, progress = self.parts.pool.spec, self.progress
        return Checkpoint(
            env=self.config.env,
            observation_space=str(spec.observation_space),
            action_space=str(spec.action_space),
            update=progress.update,
            steps=progress.steps,
            seconds=self.seconds,
            learner=self.parts.learner.state_dict(),
            normalisers=self.parts.normalisers(),
            best=self.best.value,
            results=progress.results,
        )

    @property
    def seconds(self) -> float:
        """Training took so long, interruptions left out."""
        return self.progress.seconds + self._accounts.seconds

    # The end --------------------------------------------------------------------------

    def finish(self) -> int:
        """Evaluate the best policy, film it, write the report, and say it all."""
        say = self.outputs.console.say
        seconds, split = self.seconds, self._accounts.split()
        steps = self.progress.steps
        measured = self._accounts.sample(steps - self._began_at, ending=True)
        if measured:
            self.outputs.write(measured, steps)
        if not self._is_due(self.config.evaluate_every):
            self.evaluate()
        if not self._is_due(self.config.checkpoint_every):
            self._moment().save(self.directory.last)
        say(f"Trained {steps:,} steps in {_clock(seconds)}.", "bold")
        facts: dict[str, Any] = {"state": "done", "seconds": seconds, "split": split}
        facts |= self._compared(split)
        self._load_best()
        facts |= self._judged()
        if self.config.video != "never":
            self._film("best")
        self.directory.tell(**facts)
        self._write_report()
        say(f"Report      {self.directory.report}", "cyan")
        say(f"Evaluate    corral eval {self.directory.path}", "cyan")
        return DONE

    def interrupt(self) -> int:
        """Save where it stopped, and say how to go on."""
        path, say = self.directory.path, self.outputs.console.say
        self._moment().save(self.directory.interrupted)
        self.directory.tell(state="interrupted", seconds=self.seconds)
        self._write_report()
        say(
            f"Stopped after update {self.progress.update} of {self.config.updates} "
            f"({self.progress.steps:,} steps); everything is saved.",
            "yellow",
        )
        say(f"Go on       corral train --resume {path}", "cyan")
        if self.directory.last.exists():
            say(
                "            (bit-equal to a run without the stop, from its last "
                f"checkpoint: --resume {self.directory.last})"
            )
        return INTERRUPTED

    def _load_best(self) -> None:
        if self.directory.best.exists():
            best = Checkpoint.load(self.directory.best)
            self.parts.learner.load_state_dict(best.learner)
            self.parts.load_normalisers(best.normalisers)

    def _judged(self) -> dict[str, Any]:
        """The best policy on episodes that had no part in choosing it."""
        count = self.config.final_episodes
        if not count:
            return {"best": self.best.value}
        result = self.evaluator.episodes(count, self.evaluator.seed(FINAL))
        text = (
            f"The best policy returns {result.mean:,.1f} ± {result.std:,.1f} over "
            f"{count} fresh episodes."
        )
        self.outputs.console.say(text, "bold green")
        again = f"corral eval {self.directory.path}"
        final, spread = float(result.mean), float(result.std)
        return {
            "best": self.best.value,
            "final": final,
            "final_std": spread,
            "result": text,
            "again": again,
        }

    def _compared(self, split: dict[str, float]) -> dict[str, Any]:
        """How much faster it was than one env."""
        seconds = self._accounts.seconds
        learning = seconds * split["learning"]
        collecting = seconds * sum(
            split[part] for part in ("env", "policy", "waiting", "copying")
        )
        steps = self.progress.steps - self._began_at
        if not steps:
            return {}
        text = str(compare(self.parts, steps, collecting, learning))
        self.outputs.console.say(text)
        return {"faster": text}

    def _film(self, name: str) -> None:
        gif, reason = try_to_film(self.parts, self.evaluator.seed(VIDEO))
        if gif is None:
            self.outputs.console.say(f"No video: {reason}.", "dim")
            return
        self.directory.videos.mkdir(exist_ok=True)
        with replacing(self.directory.videos / f"{name}.gif") as file:
            file.write(gif)

    def _write_report(self) -> None:
        write_text(self.directory.report, report.page(self.directory))

    def _say_results(self, results: dict[str, float]) -> None:
        steps, mean = self.progress.steps, results["eval/return"]
        mark = "  best so far" if self.best.value == mean else ""
        self.outputs.console.say(
            f"{steps:>11,}  evaluated {mean:,.1f} ± {results['eval/return_std']:,.1f}"
            f"{mark}"
        )

    # Troubles -------------------------------------------------------------------------

    @contextmanager
    def _saying_what_is_kept(self) -> Iterator[None]:
        """Whatever goes wrong: what was saved before is still there, so say where."""
        try:
            yield
        except CorralError as error:
            kept = [p for p in (self.directory.last, self.directory.best) if p.exists()]
            advice = _kept(kept, self.directory.path)
            self._note_failure(error)
            error.args = (f"{error.args[0]}. {advice}", *error.args[1:])
            raise

    def _note_failure(self, error: CorralError) -> None:
        try:
            state = "diverged" if isinstance(error, TrainingDiverged) else "failed"
            self.directory.tell(state=state, result=str(error))
            self._write_report()
        except (CorralError, OSError):
            pass  # the disk may be what is wrong; the error itself is on its way

    @contextmanager
    def _minding_ctrl_c(self) -> Iterator[None]:
        """The first one ends the loop after its update; the second one the program.

        SIGTERM, as schedulers send it, is taken for the first.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._asked_to_stop)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True

    # Ending ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close envs and sinks."""
        try:
            self.evaluator.close()
            self.parts.pool.close()
        finally:
            self.outputs.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CorralError:
            if error is None:
                raise


@contextmanager
def _naming_rewards(rollout: Rollout) -> Iterator[None]:
    """Where learning fails, say which env gave a reward that cannot be learnt from."""
    try:
        yield
    except TrainingDiverged as error:
        bad = np.argwhere(~np.isfinite(rollout.reward) & rollout.valid)
        if not len(bad):
            raise
        row, slot = bad[0]
        raise TrainingDiverged(
            f"{error}. The env of slot {slot} gave the reward "
            f"{rollout.reward[row, slot]} in row {row} of the rollout"
        ) from error


def _kept(paths: list[Path], run: Path) -> str:
    if not paths:
        return "Nothing had been saved yet"
    names = " and ".join(str(path) for path in paths)
    return f"Kept: {names}. To go on from there: corral train --resume {run}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
