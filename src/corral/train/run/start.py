"""Start a run: new, with the weights of another run, or resumed."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium

from corral.errors import CheckpointError, FaultError, OptionError
from corral.learners.registry import learner_class
from corral.train.recipes.config import RunConfig, WandbSettings
from corral.train.recipes.resolve import checked, complete, put, resolve
from corral.train.run import machine, outputs, signed_config
from corral.train.run.checkpoint import (
    Checkpoint,
    Progress,
    checkpoint_at,
    load_learner,
)
from corral.train.run.directory import (
    RECENT_EPISODES,
    RunDirectory,
    create,
    find,
    lock,
    register,
    register_path,
    remove_drafts,
)
from corral.train.run.failure import RunFailure, another_run, written_about
from corral.train.run.outputs import Outputs
from corral.train.run.parts import Parts, build_run
from corral.train.run.replay_files import ReplayFiles, replay_of
from corral.train.run.training import Training
from corral.train.sinks import jsonl
from corral.train.sinks.console import ConsoleSink


def begin(
    source: str | Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    out: Path | None = None,
    init_from: Path | None = None,
    wandb: bool = False,
    command: Sequence[str] = (),
) -> Training:
    """Start a new run of a recipe, a YAML file, or what such a file holds."""
    config = _with_wandb(resolve(source, settings), wandb)
    weights = init_from and checkpoint_at(init_from, "best", "interrupted", "last")
    with in_the_users_words(config, command):
        parts = build_run(config)
    with ExitStack() as on_error:
        on_error.callback(parts.close)
        if weights is not None:
            _start_with(parts, weights, settings)
        directory = create(config.name, out)
        locked = on_error.enter_context(lock(directory))
        directory.update_about(**_about(parts, command))
        unsigned = signed_config.write(directory, config)
        line = f"Writing to {directory.path}"
        began = Progress(update=0, steps=0, seconds=0.0, best=None, results={})
        sinks = _outputs(parts, directory, command, line, unsigned)
        training = Training(parts, directory, sinks, began, locked)
        on_error.pop_all()
        on_error.callback(training.close)
        if weights is None:
            parts.warm_up(training.outputs.console.say)
        training.save(directory.last)  # so that every run can be resumed
        on_error.pop_all()
    return training


def resume(
    path: Path,
    settings: Mapping[str, Any],
    *,
    wandb: bool = False,
    trust: bool = False,
    command: Sequence[str] = (),
) -> Training:
    """Resume the run in a directory from its checkpoint.

    Args:
        path: a run's directory, or a checkpoint in it.
        settings: dotted keys -> new values.
        wandb: log to Weights & Biases as well.
        trust: run the code that its config names, even if it is not signed by you.
        command: the command line; empty if called from Python.
    """
    directory = find(path)
    before = signed_config.read_to_run(directory, trust)
    with ExitStack() as on_error:
        locked = on_error.enter_context(lock(directory))
        config = changed(directory, before, settings, command)
        config = _with_wandb(config, wandb)
        source = checkpoint_at(path, "interrupted", "last", "best")
        moment = Checkpoint.load(source)
        _refuse_done(directory, config, moment)
        with in_the_users_words(config, command, directory):
            parts = build_run(config)
            on_error.callback(parts.close)
            load_moment(parts, moment, source)
            files = ReplayFiles(directory.replay, replay_of(parts.learner))
            files.load(moment.replay, source)
            if moment.update:  # else the first episodes are those of a new run
                parts.lead(moment.steps)
                parts.end_episodes(moment.update)
        progress = Progress.model_validate(dict(moment))
        ranking = ("best_metric", "best_is")
        if any(getattr(before, key) != getattr(config, key) for key in ranking):
            progress.best = None
            directory.update_about(best=None)
        _clear(directory, config, moment.steps)
        unsigned = signed_config.write(directory, config)
        count = "" if config.updates is None else f" of {config.updates}"
        line = f"Resuming from {source}: update {moment.update}{count}"
        sinks = _outputs(parts, directory, command, line, unsigned)
        training = Training(parts, directory, sinks, progress, locked)
        training.replay_files = files
        recent = jsonl.read(directory.episodes)[-RECENT_EPISODES:]
        training.episodes.recent.extend(recent)
        on_error.pop_all()
    return training


def _with_wandb(config: RunConfig, asked: bool) -> RunConfig:
    """The config with W&B, if that is asked for; MissingExtra if it is absent."""
    if asked and config.wandb is None:
        config = config.model_copy(update={"wandb": WandbSettings()})
    if config.wandb is not None:
        from corral.train.sinks import wandb as _  # noqa: F401
    return config


def _refuse_done(
    directory: RunDirectory, config: RunConfig, moment: Checkpoint
) -> None:
    trained = moment.steps >= config.total_steps
    if trained and directory.read_about().get("state") == "done":
        longer = ["--resume", str(directory.path), "--total-steps"]
        typed = shlex.join(["corral", "train", *longer, str(2 * moment.steps)])
        raise OptionError(
            f"{directory.path} is done: {moment.steps:,} of {config.total_steps:,} "
            f"steps. To train it longer: {typed}"
        )


def _clear(directory: RunDirectory, config: RunConfig, steps: int) -> None:
    """Remove what came after a checkpoint, and what ended the run."""
    outputs.cut(directory, steps)
    for folder in directory.folders():
        remove_drafts(folder)
    directory.error.unlink(missing_ok=True)
    directory.update_about(
        state="began",
        result="",
        total_steps=config.total_steps,
        charts=learner_class(config.learner).charts,
        final=None,
        adaptation=None,
        final_std=None,
    )


def _outputs(
    parts: Parts,
    directory: RunDirectory,
    command: Sequence[str],
    line: str,
    unsigned: str,
) -> Outputs:
    """Open the sinks, print what the run is, and register it."""
    config = parts.config
    steps = (config.updates or 0) * (config.steps_per_update or 0)
    console = ConsoleSink(steps or config.total_steps)
    sinks = Outputs(directory, config, console, command, not unsigned)
    console.say(f"{_title(config)}; {_where(parts)}", "bold")
    if remark := parts.remark():
        console.say(remark)
    console.say(line)
    asked, used, envs = config.rollout_size, config.steps_per_update, config.num_envs
    if asked is not None and asked != used:
        text = f"rollout_size {asked} is shared by {envs} envs: {used} rows per update"
        console.say(text, "dim")
    replay = replay_of(parts.learner)
    if replay is not None:
        size = f"{replay.capacity:,} transitions, {replay.gib:.2f} GiB"
        console.say(f"replay: {size}", "dim")
    if unsigned:
        console.say(
            f"This run is not signed: {unsigned}. To evaluate or resume it, add "
            "--trust.",
            "yellow",
        )
    try:
        register(directory)  # so that `corral list` finds it from any directory
    except OSError as error:
        folder = shlex.quote(str(directory.path.parent))
        console.say(
            f"Only `corral list --runs {folder}` finds this run: {register_path()} "
            f"cannot be written ({error.strerror or error})",
            "yellow",
        )
    return sinks


# Where it was left --------------------------------------------------------------------


def changed(
    directory: RunDirectory,
    config: RunConfig,
    settings: Mapping[str, Any],
    command: Sequence[str] = (),
) -> RunConfig:
    """Return the config with new settings; refuse those that change the training."""
    where = str(directory.config)
    values = config.model_dump()
    for key, value in settings.items():
        put(values, key, value, where)
    new = complete(checked(values, where))
    then, now = (dict(_flat(one.model_dump())) for one in (config, new))
    for key, value in now.items():
        free = key.partition(".")[0] in config.changeable
        if value != then.get(key) and not free:
            why = REASONS.get(key, "the numbers of its training depend on it")
            again = another_run(str(directory.path), {key: value}, typed=bool(command))
            raise OptionError(
                f"a resumed run cannot change {key} from {then.get(key)!r} to "
                f"{value!r}: {why}. Start another run with its weights: {again}"
            )
    return new


# Why a resumed run cannot change a setting, where that is special.
REASONS = {
    "name": "it is the name of its folder, which can be moved instead",
    "checkpoint_every": "a checkpoint ends the running episodes, so the numbers of its "
    "training depend on it",
}


def _flat(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{group}{key}.")
        else:
            yield f"{group}{key}", value


@contextmanager
def in_the_users_words(
    config: RunConfig, command: Sequence[str], directory: RunDirectory | None = None
) -> Iterator[None]:
    """Say where in the user's code an env failed, and which command to run next."""
    try:
        yield
    except FaultError as error:
        if not command:
            raise
        signed = "--trust" not in command
        failure = RunFailure(error, config, command, signed)
        lines = [failure.description()]
        if directory is not None:
            lines += written_about(directory, error, signed)
        lines += failure.next_steps(directory)
        error.args = ("\n".join(lines), *error.args[1:])
        raise
    except OptionError as error:
        if command:  # `backend="process"` is Python
            error.args = (_KEYWORD.sub(r"--set \1=\2", str(error)), *error.args[1:])
        raise


_KEYWORD = re.compile(r'\b(\w+)="(\w+)"')


def load_moment(parts: Parts, moment: Checkpoint, path: Path) -> None:
    """Load learner and normalisers from a checkpoint of the same env."""
    moment.check(parts.config.env, parts.pool.spec, path)
    with _fitting(path):
        parts.load(moment)


@contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """Add the path to errors about a checkpoint that does not fit."""
    try:
        yield
    except (CheckpointError, OptionError) as error:
        raise CheckpointError(f"{path} does not fit: {error}") from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged: {type(error).__name__} {error}. Use another "
            f"checkpoint of {path.parent}, or start a new run"
        ) from error


def _start_with(parts: Parts, path: Path, settings: Mapping[str, Any]) -> None:
    """Load weights and scales of another run; optimiser and schedules begin anew."""
    group = f"{learner_class(parts.config.learner).group}."
    given = {key.removeprefix(group) for key in settings if key.startswith(group)}
    learner, moment = load_learner(path)
    normalisers = parts.normalisers() if moment is None else moment.normalisers
    if moment is not None:
        moment.check(moment.env, parts.pool.spec, path)
    with _fitting(path):
        scaled = "obs" in normalisers
        if scaled != ("obs" in parts.normalisers()):
            then = str(scaled).lower()
            raise OptionError(
                f"it was trained with normalise_obs: {then}; begin the same way: --set "
                f"normalise_obs={then}"
            )
        parts.learner.begin_with(learner, given)
        parts.load_normalisers(normalisers)


# Words --------------------------------------------------------------------------------


def _title(config: RunConfig) -> str:
    title = learner_class(config.learner).title
    return (
        f"{config.name}: {title} on {config.env}, {config.total_steps:,} steps, "
        f"seed {config.seed}"
    )


def _where(parts: Parts) -> str:
    layout, envs = parts.pool.layout, parts.pool.num_envs
    if parts.config.cluster is not None:
        return f"{envs} envs on {layout.reason}; the policy acts there"
    if layout.backend == "serial":
        return f"{envs} envs in this process"
    plural = {"process": "es", "thread": "s"}[layout.backend]
    chosen = "the policy acts in the workers" if parts.act_in == "workers" else ""
    acting = layout.acting or chosen
    return (
        f"{envs} envs in {layout.workers} {layout.backend}"
        f"{plural if layout.workers > 1 else ''}{f'; {acting}' if acting else ''}"
    )


def _about(parts: Parts, command: Sequence[str]) -> dict[str, Any]:
    facts, spec = machine.facts(), parts.pool.spec
    registered = gymnasium.registry.get(spec.id or "")
    learner = learner_class(parts.config.learner)
    versions = machine.versions(learner.packages)
    return {
        "state": "began",
        "began_at": time.time(),
        "total_steps": parts.config.total_steps,
        "title": _title(parts.config),
        "subtitle": f"{_where(parts)}; {time.strftime('%Y-%m-%d %H:%M')}",
        "command": list(command),
        "threshold": registered and registered.reward_threshold,
        "charts": learner.charts,
        "facts": {
            "observations": str(spec.observation_space),
            "actions": str(spec.action_space),
            "layout": str(parts.pool.layout),
            "machine": f"{facts['processor']}, {facts['cores']} usable cores",
            "versions": ", ".join(f"{name} {text}" for name, text in versions.items()),
            "python": facts["python"],
        },
    }
