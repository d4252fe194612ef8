"""The training loop.

    collect ─► learn ─► log ─► evaluate ─► checkpoint ─┐
       ▲                                               │
       └───────────────────────────────────────────────┘

A checkpoint ends the running episodes, and every slot goes on with a seed made from
(run, slot, update). So a run that goes on from its last checkpoint does what it would
have done without the interruption, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from corral.engine.worker.seeds import EvaluationSeed
from corral.errors import CorralError, FaultError, RunFailed, TrainingDiverged
from corral.learners.protocol import Gathered, Rows
from corral.train.recipes.config import wants_of
from corral.train.recipes.resolve import CHECKPOINTS_PER_RUN
from corral.train.run import report
from corral.train.run.adaptation import adaptation_of
from corral.train.run.checkpoint import Checkpoint, Progress
from corral.train.run.directory import RunDirectory, write_text
from corral.train.run.episode_log import EpisodeLog
from corral.train.run.failure import RunFailure, naming_culprits
from corral.train.run.outputs import Outputs
from corral.train.run.parts import Parts, is_better, is_enough
from corral.train.run.policy_videos import PolicyVideos
from corral.train.run.replay_files import ReplayFiles, replay_of
from corral.train.run.restarts import Restarts
from corral.train.run.stop_signals import StopSignals
from corral.train.run.time_split import TimeSplit, compared
from corral.train.run.training_videos import TrainingVideos

DONE, INTERRUPTED = 0, 130


class Training:
    """One run, from where it is to its end.

    Args:
        parts: what it is made of.
        directory: of the run.
        outputs: where its metrics go, and what it says on the console.
        progress: how far it has come.
        lock: on the directory; released at the end.
    """

    def __init__(
        self,
        parts: Parts,
        directory: RunDirectory,
        outputs: Outputs,
        progress: Progress,
        lock: ExitStack,
    ) -> None:
        self.parts = parts
        self.config = parts.config
        self.directory = directory
        self.outputs = outputs
        self.progress = progress
        self._lock = lock
        self.replay_files = ReplayFiles(directory.replay, replay_of(parts.learner))
        self.policy_videos = PolicyVideos(parts, directory, outputs)
        self.training_videos = TrainingVideos(parts, directory, outputs)
        # Checkpoints truncate the episodes of learners that collect rows.
        rows = isinstance(wants_of(parts.config), Rows)
        slots = range(parts.pool.num_envs if rows else 0)
        self.episodes = EpisodeLog(directory, slots, resumed=progress.update > 0)
        self._signals = StopSignals()
        self._time_split = TimeSplit(parts.pool, parts.act_in)
        # Steps when this program began, and before the latest update.
        self._began_at = self._steps_before = progress.steps
        self._latest: dict[str, float] = {}
        # The latest update after which this program has evaluated.
        self._evaluated: int | None = None
        self._restarts = Restarts(outputs, progress)
        self._restarts.watch(parts.pool)
        parts.watch = self._restarts.watch

    def run(self) -> int:
        """Train to the end, or to Ctrl-C; return the exit status."""
        config, progress = self.config, self.progress
        self.outputs.began()
        # What came before, such as cloning, is not counted as collecting.
        progress.seconds += self._time_split.seconds
        self._time_split = TimeSplit(self.parts.pool, self.parts.act_in)
        with self._saying_what_is_kept():
            self.training_videos.begin(progress.steps)
            with self.outputs.console.watching(progress.steps), self._signals.heeded():
                while not self._is_trained and not self._signals.came:
                    rollout = self.collect()
                    metrics = self.learn(rollout)
                    self.log(rollout, metrics)
                    if self._is_trained:
                        self._save_last()  # the evaluation that follows may fail
                    if self._is_due(config.evaluate_every):
                        self.evaluate()
                    if self._is_due(config.checkpoint_every):
                        self.checkpoint()
                    if self._is_over:
                        break
            return self.finish() if self._is_over else self.interrupt()

    # The loop's verbs -----------------------------------------------------------------

    def collect(self) -> Gathered:
        """Collect what the learner wants."""
        count = wants_of(self.config).count
        self.parts.lead(self.progress.steps)
        rollout: Gathered = self.parts.collect(count)
        # A learner that collects by itself may learn at the same time.
        self._time_split.own["learning"] += getattr(rollout, "learning_seconds", 0.0)
        return rollout

    def learn(self, rollout: Gathered) -> dict[str, float]:
        """Update the policy."""
        with self._time_split.spent_on("learning"), naming_culprits(rollout):
            learnt = self.parts.learner.update(rollout)
        self.progress.update += 1
        self._steps_before = self.progress.steps
        self.progress.steps += rollout.reward.size
        return {f"learn/{name}": value for name, value in learnt.items()}

    def log(self, rollout: Gathered, metrics: dict[str, float]) -> None:
        """Write what was measured, and the statistics of the latest episodes."""
        with self._time_split.spent_on("saving"):
            steps = self.progress.steps
            self.episodes.add(rollout.episodes, steps)
            means = self.episodes.means()
            counts = {"faults": len(getattr(rollout, "faults", ()))}
            counts["restarts"] = self._restarts.take_new()
            means |= {name: float(count) for name, count in counts.items() if count}
            metrics |= {f"episode/{name}": value for name, value in means.items()}
            metrics |= self._time_split.sample(steps - self._began_at)
            self._latest |= metrics
            self.outputs.write(metrics, steps)
            self.training_videos.look(steps, self._restarts.count)

    def evaluate(self) -> None:
        """Run validation episodes; keep the policy if it is the best so far."""
        with self._time_split.spent_on("evaluating"):
            results = self.parts.validate()
        progress, metric = self.progress, self.config.best_metric
        self._restarts.take_new()  # not to be counted as the next update's
        progress.results = results
        self._evaluated = progress.update
        with self._time_split.spent_on("saving"):
            self.outputs.write(results, progress.steps)
            known = self._latest | results
            improved = is_better(self.config, known, progress.best)
            if improved:
                progress.best = known[metric]
                self.save(self.directory.best)
                spread = results["eval/return_std"] if metric == "eval/return" else None
                self.directory.update_about(
                    best=progress.best, best_metric=metric, best_std=spread
                )
            self.outputs.evaluation(progress.steps, results, improved)
            self.outputs.share_videos(progress.steps)
            if self.config.video == "evaluations":
                self.policy_videos.record(f"update-{progress.update:06}")

    def checkpoint(self) -> None:
        """End the running episodes, and save everything the run needs to continue."""
        with self._time_split.spent_on("saving"):
            self.outputs.cut_episodes(self.episodes.take_unended())
            self.parts.lead(self.progress.steps)  # before the next episodes begin
            self.parts.end_episodes(self.progress.update)
            self._save_last()
            self._save_history()

    def _save_history(self) -> None:
        """Keep this checkpoint beside last and best, and remove the oldest ones."""
        keep, folder = self.config.keep_checkpoints, self.directory.history
        if not keep:
            return
        folder.mkdir(exist_ok=True)
        self.save(folder / f"update-{self.progress.update:06}.pt")
        for old in sorted(folder.glob("update-*.pt"))[:-keep]:
            old.unlink()

    def _save_last(self) -> None:
        self.save(self.directory.last)
        self.directory.interrupted.unlink(missing_ok=True)
        # A fault came after the checkpoint before this one: the run is past it now.
        self.directory.fault.unlink(missing_ok=True)
        self.replay_files.remove_old()

    @property
    def _is_trained(self) -> bool:
        """Whether all updates are done."""
        return self.progress.steps >= self.config.total_steps

    @property
    def _is_over(self) -> bool:
        """Whether all updates are done, or the best policy is good enough."""
        return self._is_trained or is_enough(self.config, self.progress.best)

    def _is_due(self, every: int | None) -> bool:
        """Whether it is time: after so many updates, or each tenth of the run."""
        if every is not None:
            return self.progress.update % every == 0
        tenth = self.config.total_steps / CHECKPOINTS_PER_RUN
        return self.progress.steps // tenth > self._steps_before // tenth

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        parts, spec = self.parts, self.parts.pool.spec
        Checkpoint(
            **dict(self.progress) | {"seconds": self.seconds},
            env=self.config.env,
            observation_space=str(spec.observation_space),
            action_space=str(spec.action_space),
            learner=parts.learner.state_dict(),
            normalisers=parts.normalisers(),
            recipe_state=parts.recipe_state(),
            replay=self.replay_files.save() if self._continues(path) else [],
        ).save(path)

    def _continues(self, path: Path) -> bool:
        """Whether the run continues from this checkpoint, and so needs its replay."""
        directory = self.directory
        return path != directory.best and path.parent != directory.history

    @property
    def seconds(self) -> float:
        """Seconds of training, without interruptions."""
        return self.progress.seconds + self._time_split.seconds

    # The end --------------------------------------------------------------------------

    def finish(self) -> int:
        """Evaluate the best policy, record its video, write the report."""
        seconds, split = self.seconds, self._time_split.split()
        steps = self.progress.steps
        if measured := self._time_split.sample(steps - self._began_at, ending=True):
            self.outputs.write(measured, steps)
        if self._evaluated != self.progress.update:
            self.evaluate()
        self._save_last()
        self.outputs.trained(steps, seconds)
        self.training_videos.end(steps, self._restarts.count)
        self.policy_videos.wait()  # before anything else is timed
        facts: dict[str, Any] = {"state": "done", "seconds": seconds, "split": split}
        facts |= self._compared(seconds - self.progress.seconds, split)
        facts |= self._show_best()
        self.outputs.share_videos(steps)
        self.outputs.share_model(steps)
        self._note(**facts)
        self.outputs.finished()
        return DONE

    def interrupt(self) -> int:
        """Save where it stopped, and say how to continue; skip unfinished videos."""
        self.policy_videos.skip()
        self.save(self.directory.interrupted)
        self.training_videos.end(self.progress.steps, self._restarts.count)
        self.outputs.share_model(self.progress.steps)
        self._note(state="interrupted", seconds=self.seconds)
        self.outputs.interrupted(self.progress.update, self.progress.steps)
        return INTERRUPTED

    def _show_best(self) -> dict[str, Any]:
        """Load, judge and export the best policy, and record its video."""
        if self.directory.best.exists():
            self.parts.load(Checkpoint.load(self.directory.best))
        facts = self._judged()
        self.outputs.exported(self.parts.learner.export(self.directory.checkpoints))
        if self.config.video != "never":
            self.policy_videos.record("best")
            self.policy_videos.wait()
        return facts

    def _judged(self) -> dict[str, Any]:
        """The best policy on episodes that had no part in choosing it."""
        count, known = self.config.final_episodes, {"best": self.progress.best}
        if not count:
            return known
        result = self.parts.evaluate(count, self.parts.seed(EvaluationSeed.FINAL))
        text = self.outputs.final_evaluation(result, self.parts.measured(result))
        return known | {
            "final": float(result.mean),
            "final_std": float(result.std),
            "result": text,
            "again": self.outputs.typed("eval"),
            **adaptation_of(self.parts, result),
        }

    def _compared(self, seconds: float, split: dict[str, float]) -> dict[str, Any]:
        """Compare the run's speed with that of one env."""
        steps = self.progress.steps - self._began_at
        if not steps or self._restarts.lost_processes or self.parts.batched:
            return {}  # in this process, such an env would be the end of the run
        try:
            text = compared(self.parts, steps, seconds, split)
        except FaultError as error:  # a single env is not restarted
            self.outputs.not_compared(error)
            return {}
        self.outputs.compared(text)
        return {"faster": text}

    # Troubles -------------------------------------------------------------------------

    @contextmanager
    def _saying_what_is_kept(self) -> Iterator[None]:
        """Explain any error: what happened, where it is written, how to continue."""
        try:
            yield
        except KeyboardInterrupt:  # the second one, or one while it was finishing
            with suppress(CorralError, OSError):
                self._note(state="interrupted", seconds=self.seconds)
            self.outputs.stopped_at_once(self._is_trained)
            raise
        except Exception as error:
            command, signed = self.outputs.command, self.outputs.signed
            failure = RunFailure(error, self.config, command, signed)
            state = "diverged" if isinstance(error, TrainingDiverged) else "failed"
            with suppress(CorralError, OSError):  # the disk may be what is wrong
                self._note(state=state, result=failure.description())
            message = self.outputs.failure(failure, self._is_trained)
            if not isinstance(error, CorralError):
                raise RunFailed(message) from error
            error.args = (message, *error.args[1:])
            raise

    def _note(self, **facts: Any) -> None:
        """Write facts about the run, and its report."""
        self.directory.update_about(**facts)
        write_text(self.directory.report, report.page(self.directory))

    # Ending ---------------------------------------------------------------------------

    def close(self) -> None:
        """Abort the video that is being recorded; close envs and sinks."""
        with ExitStack() as closing:
            closing.callback(self.outputs.close)
            closing.callback(self._lock.close)
            closing.callback(self.parts.close)
            self.policy_videos.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except CorralError:
            if kind is None:
                raise
