"""Configs of pomdp-baselines: their keys, flat or in groups, as settings of a run.

    env:                                        env: (what makes AntDir-v0)
      env_name: AntDir-v0                       num_envs: 6
      max_rollouts_per_task: 2                  learner: sac
      num_parallel_workers: 6           ──►     trials: {episodes: 2}
    train:                                      sac: {episodes: 25, updates: 0.02}
      num_rollouts_per_iter: 25
      num_updates_per_iter: 0.02

A setting under its own name wins over theirs.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from corral.engine.adapters.env_names import resolve_env
from corral.engine.adapters.trials import step_limit
from corral.errors import OptionError
from corral.train.recipes import ENVS

# Groups of their files.
GROUPS = ("env", "train", "eval", "policy")
LEARNERS = {"sac": "sac", "td3": "td3", "sacd": "sac"}
ARCHITECTURES = {
    "mlp": {"architecture": "markov"},
    "lstm": {"architecture": "memory", "memory": "lstm"},
    "gru": {"architecture": "memory", "memory": "gru"},
    "lstm-mlp": {"architecture": "memory_markov", "memory": "lstm"},
    "gru-mlp": {"architecture": "memory_markov", "memory": "gru"},
}


def _count(value: Any) -> Any:
    """`1e6`, which YAML reads as text."""
    try:
        return int(float(value))
    except (TypeError, ValueError):
        return value


def _positive(value: Any) -> Any:
    """None for -1, which stands for "no limit" or "never"."""
    return None if value == -1 else value


def _device(number: Any) -> str:
    """The GPU of this number. With 0, theirs use the CPU if there is no GPU."""
    if number < 0:
        return "cpu"
    return f"cuda:{number}" if number else "auto"


# Their key -> ours; `learner` stands for the learner's group.
SETTINGS = {
    "env_name": "env",
    "num_parallel_workers": "num_envs",
    "max_rollouts_per_task": "trials.episodes",
    "num_train_tasks": "trials.train_tasks",
    "num_eval_tasks": "trials.eval_tasks",
    "oracle": "trials.oracle",
    "log_interval": "evaluate_every",
    "save_interval": "checkpoint_every",
    "cuda": "device",
    "num_rollouts_per_iter": "learner.episodes",
    "num_init_rollouts_pool": "learner.random_episodes",
    "num_updates_per_iter": "learner.updates",
    "buffer_size": "learner.replay_size",
    "sampled_seq_len": "learner.sequence_length",
    "action_embedding_size": "learner.action_embedding",
    "observ_embedding_size": "learner.obs_embedding",
    "reward_embedding_size": "learner.reward_embedding",
    "rnn_hidden_size": "learner.memory_size",
    "dqn_layers": "learner.hidden",
    "target_noise_clip": "learner.noise_clip",
    **{
        name: f"learner.{name}"
        for name in (
            *("batch_size", "lr", "gamma", "tau", "exploration_noise"),
            *("target_noise", "alpha_lr", "target_entropy"),
        )
    },
}
# How values change.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "log_interval": _positive,
    "save_interval": _positive,
    "cuda": _device,
    "buffer_size": _count,
    "sampled_seq_len": _positive,
}
OTHERS = (
    *("env_type", "algo_name", "seq_model", "num_iters", "sac", "td3", "sacd"),
    *("entropy_alpha", "automatic_entropy_tuning"),
)
# Keys that change nothing here.
IGNORED = (
    *("num_tasks", "separate", "policy_layers", "sample_weight_baseline"),
    *("eval_stochastic", "log_tensorboard"),
)
KNOWN = (*SETTINGS, *OTHERS, *IGNORED)
# Keys that do not show by themselves that a file is theirs.
AMBIGUOUS = ("batch_size", "lr", "gamma", "tau", "oracle", "sac", "td3")


def is_theirs(values: Mapping[str, Any]) -> bool:
    """Whether any key is one of pomdp-baselines."""
    grouped = any(isinstance(values.get(group), Mapping) for group in GROUPS)
    return grouped or any(key in KNOWN and key not in AMBIGUOUS for key in values)


def translated(
    values: Mapping[str, Any], recipe: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the values with our names.

    Args:
        values: of a file or command line.
        recipe: the defaults under them.
        where: the file's name, for errors.
    """
    if not is_theirs(values):
        return dict(values)
    theirs, ours = _apart(values, where)
    algorithm = theirs.get("algo_name")
    name = ours.get("learner", recipe.get("learner"))
    learner = LEARNERS.get(algorithm, algorithm) if algorithm else name or "sac"
    theirs |= theirs.pop(algorithm or learner, {})
    # Of `sacd` it is a share of the largest entropy.
    share = theirs.pop("target_entropy", None) if algorithm == "sacd" else None
    new: dict[str, Any] = {learner: {}}
    for key, value in theirs.items():
        if value is not None:
            _put(new, learner, key, value, where)
    _put_the_rest(new, learner, theirs)
    if new[learner] or algorithm:
        new["learner"] = learner
    else:
        del new[learner]
    merged = _over(new, ours)
    if share is not None:
        with _opened(merged, recipe) as env:
            largest = math.log(env.action_space.n)
        merged[learner] = {"target_entropy": share * largest, **merged[learner]}
    if "num_iters" in theirs and "total_steps" not in ours:
        merged["total_steps"] = _total_steps(theirs, merged, recipe, where)
    return merged


def _apart(
    values: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return their keys, without groups, and ours."""
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    for key, value in values.items():
        if key in GROUPS and isinstance(value, Mapping):
            _check_group(key, value, where)
            theirs |= value
        elif key in KNOWN and key not in LEARNERS:
            theirs[key] = value
        else:  # `sac:` at the top of a file is our group, in `policy:` it is theirs
            ours[key] = value
    return theirs, ours


def _check_group(group: str, values: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        if key in KNOWN:
            continue
        near = difflib.get_close_matches(str(key), KNOWN, n=1)
        meant = f"did you mean {group}.{near[0]}?" if near else _KEYWORDS
        raise OptionError(
            f"{where}: unknown key {group}.{key} (with value {value!r}); {meant}"
        )


_KEYWORDS = "keyword arguments of the env go into env_kwargs"


def _put(new: dict[str, Any], learner: str, key: str, value: Any, where: str) -> None:
    if key == "seq_model":
        if value not in ARCHITECTURES:
            raise OptionError(
                f"{where}: seq_model is {value!r}; choose one of "
                f"{', '.join(ARCHITECTURES)}"
            )
        new[learner] |= ARCHITECTURES[value]
    elif key in SETTINGS:
        group, _, last = SETTINGS[key].rpartition(".")
        group = learner if group == "learner" else group
        value = CHANGES[key](value) if key in CHANGES else value
        (new.setdefault(group, {}) if group else new)[last] = value


def _put_the_rest(new: dict[str, Any], learner: str, theirs: Mapping[str, Any]) -> None:
    """Put what follows from several keys, or from none of them alone."""
    if "num_init_rollouts_pool" in theirs:
        new[learner]["random_steps"] = 0
    if theirs.get("automatic_entropy_tuning") is False:
        new[learner]["alpha"] = theirs.get("entropy_alpha")
    if "num_eval_tasks" in theirs:
        new["evaluate_episodes"] = theirs["num_eval_tasks"]
    if theirs.get("env_type", "meta") != "meta":
        new.pop("trials", None)
    if isinstance(new.get("env"), str):
        new["env"] = ENVS.get(new["env"], new["env"])


def _over(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def _opened(values: Mapping[str, Any], recipe: Mapping[str, Any]) -> Any:
    """Make the env, for a `with` block."""
    env = values.get("env", recipe.get("env", ""))
    kwargs = dict(values.get("env_kwargs", {}))
    return closing(resolve_env(env, kwargs, syntax="yaml").factory())


def _total_steps(
    theirs: Mapping[str, Any],
    values: Mapping[str, Any],
    recipe: Mapping[str, Any],
    where: str,
) -> int:
    """`num_iters` in env steps: all trials, at their longest."""
    with _opened(values, recipe) as env:
        steps = step_limit(env)
    if steps is None:
        raise OptionError(
            f"{where}: num_iters is {theirs['num_iters']}, and episodes of {env} "
            "have no limit of steps to count them by; set total_steps instead"
        )
    group = {**recipe.get("trials", {}), **values.get("trials", {})}
    per_iteration = theirs.get("num_rollouts_per_iter", 1)
    trials = theirs["num_iters"] * per_iteration
    trials += theirs.get("num_init_rollouts_pool", 0)
    return int(trials * steps * group.get("episodes", 1))
