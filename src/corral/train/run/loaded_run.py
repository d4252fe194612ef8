"""A run opened again, to evaluate its policy on new episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from corral.core import EnvSpec
from corral.errors import OptionError
from corral.learners.registry import learner_class
from corral.rollouts.evaluation import Evaluation
from corral.train.recipes.config import RunConfig
from corral.train.run import signed_config
from corral.train.run.checkpoint import Checkpoint, checkpoint_at
from corral.train.run.directory import find
from corral.train.run.episode_video import VideoScene
from corral.train.run.outputs import line_of
from corral.train.run.parts import Parts, build_run, setup_for
from corral.train.run.start import changed, in_the_users_words, load_moment
from corral.train.run.team_learners import make_learner

# Those to take if the asked one is missing, in this order.
CHECKPOINTS = ("best", "last", "interrupted")


class LoadedRun:
    """The policy of a checkpoint, and envs to evaluate it in.

    Args:
        path: a run's directory, or a checkpoint in it.
        which: best or last, where a directory is named.
        num_envs: how many envs; as many as the run had if None.
        workers: as the run's if None.
        trust: run the code that its config names, even if it is not signed by you.
        settings: dotted keys -> values, as a resumed run may change them.
        command: the command line; empty if called from Python.
    """

    def __init__(
        self,
        path: Path,
        which: str = "best",
        num_envs: int | None = None,
        workers: int | None = None,
        trust: bool = False,
        settings: Mapping[str, Any] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        directory = self.directory = find(path)
        config = signed_config.read_to_run(directory, trust)
        config = changed(directory, config, settings or {}, command)
        self._command = command
        self.path = checkpoint_at(path, which, *CHECKPOINTS)
        sizes = {
            "num_envs": num_envs or config.num_envs,
            "workers": workers or config.workers,
            "cluster": None,  # evaluations run on this machine
            "repeat": 1,  # evaluations have no groups, so any number of envs will do
        }
        self.config: RunConfig = config.model_copy(update=sizes)
        moment = Checkpoint.load(self.path)
        self.update = moment.update
        with in_the_users_words(self.config, command):
            self.parts: Parts = build_run(self.config)
        with ExitStack() as on_error:
            on_error.callback(self.parts.close)
            load_moment(self.parts, moment, self.path)
            on_error.pop_all()

    def evaluate(
        self, episodes: int, seed: int, stochastic: bool = False
    ) -> Evaluation:
        """Run exactly this many episodes."""
        with in_the_users_words(self.config, self._command):
            return self.parts.evaluate(episodes, seed, stochastic)

    def show(
        self, episodes: int, seed: int, stochastic: bool = False
    ) -> Evaluation | None:
        """Play episodes in a window; None if the user closed it."""
        from corral.train.run.live_view import show

        with in_the_users_words(self.config, self._command):
            return show(self.parts, episodes, seed, stochastic)

    def restarts(self) -> list[str]:
        """Return a line for each restart of an env or worker, the latest if many."""
        pool = self.parts.evaluation_pool
        if pool is None:
            return []
        first = pool.fault_count - len(pool.faults) + 1
        return [line_of(fault, n) for n, fault in enumerate(pool.faults, first)]

    def video(self, seed: int) -> bytes:
        """Record one episode as a GIF."""
        return VideoScene.of(self.parts, seed).record()

    def __enter__(self) -> LoadedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.parts.close()


def load_policy(path: Path, spec: EnvSpec, which: str = "best") -> Any:
    """Return the policy of a run by itself, for envs of your own.

    It takes its most likely actions. Nothing that the run names is run: config and
    checkpoint are read as data.

    Args:
        path: a run's directory, or a checkpoint in it.
        spec: of the envs, as `pool.spec`; they have to be the kind it was trained in.
        which: best or last, where a directory is named.
    """
    chosen = checkpoint_at(path, which, *CHECKPOINTS)
    config, moment = signed_config.read(find(path)), Checkpoint.load(chosen)
    kind = learner_class(config.learner)
    if kind.needs_pool or config.normalise_obs:
        raise OptionError(
            f"the policy of {chosen} needs other parts of its run (learner: "
            f"{config.learner}, normalise_obs: {config.normalise_obs}): use corral eval"
        )
    moment.check(moment.env, spec, chosen)
    learner = make_learner(config, setup_for(config, None, spec, "cpu"))
    learner.load_state_dict(moment.learner)
    return learner.policy.deterministic()
