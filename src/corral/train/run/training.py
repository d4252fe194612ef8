"""The training loop.

    collect ─► learn ─► log ─► evaluate ─► checkpoint ─┐
       ▲                                               │
       └───────────────────────────────────────────────┘

A checkpoint ends the running episodes, and every slot goes on with a seed made from
(run, slot, update). So a run that goes on from its last checkpoint does what it would
have done without the interruption, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from corral.engine.pool import Pool
from corral.engine.worker.seeds import EvaluationSeed
from corral.errors import CorralError, Fault, FaultError, RunFailed, TrainingDiverged
from corral.learners.protocol import Gathered, Rows
from corral.rollouts.normalise import not_finite
from corral.train.recipes.config import wants_of
from corral.train.recipes.resolve import CHECKPOINTS_PER_RUN
from corral.train.run import report
from corral.train.run.adaptation import adaptation_of
from corral.train.run.checkpoint import Checkpoint, Progress
from corral.train.run.directory import RECENT_EPISODES, RunDirectory, write_text
from corral.train.run.episode_video import BackgroundVideo, VideoScene
from corral.train.run.failure import RunFailure
from corral.train.run.outputs import Outputs
from corral.train.run.parts import Parts, is_better, is_enough, means_of, row_of
from corral.train.run.replay_files import ReplayFiles, replay_of
from corral.train.run.stop_signals import StopSignals
from corral.train.run.time_split import TimeSplit, compared
from corral.train.run.training_videos import TrainingVideos
from corral.train.sinks import jsonl
from corral.train.sinks.console import clock

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
        self.background_video = BackgroundVideo()
        self.training_videos = TrainingVideos(parts, directory, outputs)
        # Rows about the latest episodes, whose means are shown and written.
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT_EPISODES)
        # Restarts of envs and workers, and those of them that ended a process.
        self._restarts = self._lost_processes = 0
        # Restarts before the latest update.
        self._restarts_before = 0
        self._signals = StopSignals()
        self._time_split = TimeSplit(parts.pool, parts.act_in)
        # Steps when this program began, and before the latest update.
        self._began_at = self._steps_before = progress.steps
        self._latest: dict[str, float] = {}
        # The latest update after which this program has evaluated.
        self._evaluated: int | None = None
        rows = isinstance(wants_of(parts.config), Rows)
        # Slots whose episodes a checkpoint truncates.
        self._slots = frozenset(range(parts.pool.num_envs) if rows else ())
        begun = not progress.update  # else some of the way is behind it already
        # Slots in which no episode has ended since the last checkpoint.
        self._unended = set(self._slots) if begun else set()
        parts.watch = self._watch
        self._watch(parts.pool)

    def run(self) -> int:
        """Train to the end, or to Ctrl-C; return the exit status."""
        config, progress = self.config, self.progress
        text = f"return: the mean of the last {RECENT_EPISODES} episodes of training"
        self.outputs.console.say(text, "dim")
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
        with self._time_split.spent_on("learning"), _naming_culprits(rollout):
            learnt = self.parts.learner.update(rollout)
        self.progress.update += 1
        self._steps_before = self.progress.steps
        self.progress.steps += rollout.reward.size
        return {f"learn/{name}": value for name, value in learnt.items()}

    def log(self, rollout: Gathered, metrics: dict[str, float]) -> None:
        """Write what was measured, and the statistics of the latest episodes."""
        with self._time_split.spent_on("saving"):
            steps = self.progress.steps
            rows = [row_of(episode) for episode in rollout.episodes]
            self.recent.extend(rows)
            self._unended -= {episode.slot for episode in rollout.episodes}
            means = means_of(self.recent)
            restarts = self._restarts - self._restarts_before
            self._restarts_before = self._restarts
            counts = {"faults": len(getattr(rollout, "faults", ()))}
            counts["restarts"] = restarts
            means |= {name: float(count) for name, count in counts.items() if count}
            metrics |= {f"episode/{name}": value for name, value in means.items()}
            metrics |= self._time_split.sample(steps - self._began_at)
            self._latest |= metrics
            jsonl.append(self.directory.episodes, rows, steps)
            self.outputs.write(metrics, steps)
            self.training_videos.look(steps, self._restarts)

    def evaluate(self) -> None:
        """Run validation episodes; keep the policy if it is the best so far."""
        with self._time_split.spent_on("evaluating"):
            results = self.parts.validate()
        progress, metric = self.progress, self.config.best_metric
        self._restarts_before = self._restarts  # not to be counted as the next update's
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
                self._record_video(f"update-{progress.update:06}")

    def checkpoint(self) -> None:
        """End the running episodes, and save everything the run needs to continue."""
        with self._time_split.spent_on("saving"):
            self.outputs.cut_episodes(self._unended)
            self._unended = set(self._slots)
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
        steps, say = self.progress.steps, self.outputs.console.say
        if measured := self._time_split.sample(steps - self._began_at, ending=True):
            self.outputs.write(measured, steps)
        if self._evaluated != self.progress.update:
            self.evaluate()
        self._save_last()
        say(f"Trained {steps:,} steps in {clock(seconds)}.", "bold")
        self.training_videos.end(steps, self._restarts)
        self._wait_for_videos()  # before anything else is timed
        facts: dict[str, Any] = {"state": "done", "seconds": seconds, "split": split}
        facts |= self._compared(seconds - self.progress.seconds, split)
        if self.directory.best.exists():
            self.parts.load(Checkpoint.load(self.directory.best))
        facts |= self._judged()
        for path in self.parts.learner.export(self.directory.checkpoints):
            say(f"Also        {path}")
        if self.config.video != "never":
            self._record_video("best")
            self._wait_for_videos()
        self.outputs.share_videos(steps)
        self.outputs.share_model(steps)
        self._note(**facts)
        self.outputs.finished()
        return DONE

    def interrupt(self) -> int:
        """Save where it stopped, and say how to continue; skip unfinished videos."""
        self.background_video.close()
        self.outputs.failed_video(self.background_video.trouble)
        self.save(self.directory.interrupted)
        self.training_videos.end(self.progress.steps, self._restarts)
        self.outputs.share_model(self.progress.steps)
        self._note(state="interrupted", seconds=self.seconds)
        self.outputs.interrupted(self.progress.update, self.progress.steps)
        return INTERRUPTED

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
        steps, say = self.progress.steps - self._began_at, self.outputs.console.say
        if not steps or self._lost_processes or self.parts.batched:
            return {}  # in this process, such an env would be the end of the run
        try:
            text = compared(self.parts, steps, seconds, split)
        except FaultError as error:  # a single env is not restarted
            reason = str(error).partition("\n")[0]
            say(f"The speed of one env was not measured: {reason}", "dim")
            return {}
        say(text)
        return {"faster": text}

    def _record_video(self, name: str) -> None:
        """Record a video of the policy as it is now; training does not wait for it."""
        try:
            scene = VideoScene.of(self.parts, self.parts.seed(EvaluationSeed.VIDEO))
            self.directory.videos.mkdir(exist_ok=True)
            if scene.tasks is not None:
                self.directory.update_about(video_task=scene.task_text)
            self.background_video.record(scene, self.directory.videos / f"{name}.gif")
        except Exception as error:  # a run does not fail because of a video
            self.background_video.note_failure(error)
        self.outputs.failed_video(self.background_video.trouble)

    def _wait_for_videos(self) -> None:
        """Wait for videos; Ctrl-C skips them and nothing else."""
        say, video = self.outputs.console.say, self.background_video
        try:
            if video.busy:
                say("Recording a video of the policy… (Ctrl-C skips it)", "dim")
            video.wait()
        except KeyboardInterrupt:
            video.close()
            say("The video was skipped.", "yellow")
        self.outputs.failed_video(video.trouble)

    def _watch(self, pool: Pool) -> None:
        """Report every restart of a pool at once: an update may take minutes."""
        pool.call_on_restart(self._restarted)
        for fault in pool.faults:
            self._restarted(fault)

    def _restarted(self, fault: Fault) -> None:
        self._restarts += 1
        self._lost_processes += fault.kind != "raised"
        self.outputs.write_fault(fault, self._restarts, self.progress.steps)

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
            self.background_video.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except CorralError:
            if kind is None:
                raise


@contextmanager
def _naming_culprits(rollout: Gathered) -> Iterator[None]:
    """Where learning diverges, name the env whose values are not finite."""
    try:
        yield
    except TrainingDiverged as error:
        in_rows = rollout.reward.ndim == 2  # whole episodes do not say their slots
        seen = getattr(rollout, "obs", ()) if in_rows else ()
        said = in_rows and not_finite(seen, rollout.reward, rollout.valid)
        if not said:
            raise
        raise TrainingDiverged(f"{error}. {said[0].upper()}{said[1:]}") from error
