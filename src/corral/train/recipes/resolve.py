"""A recipe's defaults, a file and single settings -> one checked config.

An error names the key, its value, and the key that was probably meant.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

from corral.errors import OptionError, requires
from corral.learners.protocol import Learner
from corral.learners.registry import LEARNERS, learner_class
from corral.train.recipes import MODULES, RECIPES, defaults_file
from corral.train.recipes import trials as trial_settings
from corral.train.recipes.config import RunConfig, with_group
from corral.train.recipes.pomdp_names import translated

with requires("configs need pyyaml: pip install 'corral[train]'"):
    import yaml
    from pydantic import BaseModel, ValidationError

CHECKPOINTS_PER_RUN = 10
MAX_NAME_CHARACTERS = 200
# Names of other libraries, and US spellings, that are accepted for a setting.
ALIASES = {
    "activation_fn": "activation",
    "autoreset_mode": "autoreset",
    "env_wrapper": "wrappers",
    "env_id": "env",
    "learning_rate": "lr",
    "n_envs": "num_envs",
    "n_eval_episodes": "evaluate_episodes",
    "n_timesteps": "total_steps",
    "net_arch": "hidden",
    "normalize_advantage": "normalise_advantage",
    "normalize_obs": "normalise_obs",
    "normalize_reward": "normalise_reward",
    "num_workers": "workers",
    "total_timesteps": "total_steps",
    "wrapper": "wrappers",
}
# Settings that hold other functions' arguments, which no alias renames.
FREE_KEYS = ("env_kwargs", "network_kwargs", "shared")
# Settings of learners that rollout_size decides.
ROWS_SETTINGS = ("n_steps", "rows")


def resolve(source: str | Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """The config of a recipe or a YAML file, with these settings on top.

    Args:
        source: `cartpole`, the path of a YAML file, or what such a file holds.
        settings: dotted keys -> values: `{"num_envs": 4, "ppo.lr": 1e-4}`.

    Returns:
        A `RunConfig` with the learner's group; `Config` if the learner is PPO.
    """
    where = source if isinstance(source, str) else "config"
    if not isinstance(source, str):
        values = copy.deepcopy(dict(source))
    else:
        values = load(Path(source)) if _is_file(source) else {"recipe": source}
    for key, value in settings.items():
        put(values, key, value, where)
    rows = {key.rpartition(".")[2] for key in settings} & set(ROWS_SETTINGS)
    if rows and "rollout_size" not in settings:
        values["rollout_size"] = None  # the one that was typed wins
    return complete(checked(values, where))


def recipe_module(name: str) -> ModuleType | None:
    """The code of a recipe: its own settings and `build`; None if it has none.

    "" stands for no recipe.
    """
    _check_recipe(name)
    return importlib.import_module(MODULES[name]) if name in MODULES else None


def _check_recipe(name: str) -> None:
    if name and str(name) not in RECIPES:  # a file may hold anything in its place
        near = difflib.get_close_matches(str(name), RECIPES, n=1)
        meant = f"; did you mean {near[0]}?" if near else "."
        raise OptionError(
            f"there is no recipe {name!r}{meant} There are {', '.join(RECIPES)}; "
            "anything else is the path of a YAML file"
        )


def recipe_defaults(name: str) -> dict[str, Any]:
    """The settings of a recipe."""
    _check_recipe(name)
    return load(defaults_file(name)) if name else {}


def kind_of(
    recipe: str, learner: str | None = None, trials: bool = False
) -> type[RunConfig]:
    """The class of a recipe's config, with its learner's group or another one's."""
    module, own = recipe_module(recipe), recipe_defaults(recipe)
    base: type[RunConfig] = RunConfig if module is None else module.Config
    if trials or trial_settings.GROUP in own:
        base = trial_settings.with_trials(base)
    found = _learner(learner, own)
    return with_group(base, found.group, found.Config)


def _learner(chosen: str | None, defaults: Mapping[str, Any]) -> type[Learner]:
    plain = RunConfig.model_fields["learner"].default
    return learner_class(str(chosen or defaults.get("learner", plain)))


def complete(config: RunConfig) -> RunConfig:
    """Fill in what follows from the rest, so that it is written down as well."""
    if not config.env:
        raise OptionError(
            "env is missing: name a Gymnasium id, module:id or module:function, as in "
            "`env: CartPole-v1` or --set env=CartPole-v1"
        )
    if config.memory_limit is not None and config.isolation != "slot":
        raise OptionError(
            f"memory_limit is {config.memory_limit}, which needs a process for every "
            f"env, and isolation is {config.isolation}: set isolation: slot as well "
            "(--set isolation=slot)"
        )
    config = _on_cluster(_with_rollout_size(config))
    updates = config.updates
    tenth = None if updates is None else -(-updates // CHECKPOINTS_PER_RUN)
    plain = re.sub(r"[^\w.-]", "-", config.env).strip("-.")
    name = config.name or config.recipe or plain or "run"
    check_name(name)
    return config.model_copy(
        update={
            "name": name,
            "evaluate_every": config.evaluate_every or tenth,
            "checkpoint_every": config.checkpoint_every or tenth,
        }
    )


def _on_cluster(config: RunConfig) -> RunConfig:
    """On a cluster the policy acts beside the envs, which is written down as well."""
    if config.cluster is None:
        return config
    if config.curriculum:
        raise OptionError(
            "curriculum changes envs of this process, and cluster has them elsewhere: "
            "leave out curriculum or cluster"
        )
    if config.mode != "sync":
        raise OptionError(
            f"mode is {config.mode!r}, which is for a policy in the caller, and with "
            "cluster it acts beside the envs: set mode: sync"
        )
    return config.model_copy(update={"act_in": "workers"})


def _with_rollout_size(config: RunConfig) -> RunConfig:
    """Share rollout_size among the envs, as the learner's own setting."""
    size, group = config.rollout_size, learner_class(config.learner).group
    if size is None:
        return config
    settings = getattr(config, group)
    name = next((one for one in ROWS_SETTINGS if hasattr(settings, one)), None)
    if name is None:
        raise OptionError(
            f"rollout_size is {size}, and learner: {config.learner} collects whole "
            "episodes, or has no setting for its rows; leave it out"
        )
    rows = size // config.num_envs
    if not rows:
        raise OptionError(
            f"rollout_size is {size}, less than one row for each of the "
            f"{config.num_envs} envs (num_envs)"
        )
    return config.model_copy(update={group: settings.model_copy(update={name: rows})})


def check_name(name: str) -> None:
    """Refuse a name that is not a folder inside runs/."""
    parts = name.split("/")
    plain = all(part.strip() and not part.startswith((".", "~")) for part in parts)
    plain = plain and name.isprintable() and "\\" not in name and name[1:2] != ":"
    short = max(len(part.encode()) for part in parts) <= MAX_NAME_CHARACTERS
    if not (plain and short):
        raise OptionError(
            f"name is {name[:80]!r}; a name is a folder inside runs/: a relative path "
            f"of parts that are not empty, have at most {MAX_NAME_CHARACTERS} bytes "
            "and begin with neither `.` nor `~`. Choose another name, or write "
            "elsewhere with --out DIRECTORY"
        )


# Files --------------------------------------------------------------------------------


def load(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file."""
    return parsed(text_of(path), str(path))


def text_of(path: Path) -> str:
    """The text of a YAML file, exactly."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not YAML: {error}") from None


def parsed(text: str, where: str) -> dict[str, Any]:
    """The keys and values of YAML from a file."""
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise OptionError(f"{where} is not YAML: {error}") from None
    if not isinstance(values, dict | None):
        raise OptionError(
            f"{where} holds {values!r:.60}; it must be `key: value` lines"
        )
    return values or {}


def dump(config: RunConfig) -> str:
    """The config as YAML, every setting in it."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    return text


def setting(text: str) -> tuple[str, Any]:
    """`ppo.lr=1e-4` as key and value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--set {text}: write key=value, as in --set ppo.lr=1e-4")
    with suppress(yaml.YAMLError):
        return key.strip(), yaml.safe_load(value)
    return key.strip(), value


def _is_file(source: str) -> bool:
    path = Path(source)
    looks_so = path.suffix in (".yaml", ".yml") or len(path.parts) > 1
    if looks_so and not path.is_file():
        raise OptionError(f"there is no file {source}")
    return looks_so


# Values -------------------------------------------------------------------------------


def checked(values: Mapping[str, Any], where: str) -> RunConfig:
    """The config, or an OptionError that names every key that is wrong."""
    recipe = values.get("recipe") or ""
    defaults = recipe_defaults(recipe)
    values = trial_settings.with_group_written_out(translated(values, defaults, where))
    trials = values.get(trial_settings.GROUP) is not None
    kind = kind_of(recipe, values.get("learner"), trials)
    group = _learner(values.get("learner"), defaults).group
    own = {key.rpartition(".")[2] for key in known_keys(kind)}
    others = {key: name for key, name in ALIASES.items() if key not in own}
    values = _grouped(_both_normalised(values), kind, group, others)
    # A recipe may have settings for several learners; the other groups are left out.
    defaults = {key: defaults[key] for key in defaults if key in kind.model_fields}
    given = values.get(group)
    if isinstance(given, Mapping) and not given.keys().isdisjoint(ROWS_SETTINGS):
        defaults.pop("rollout_size", None)  # which would set these
    try:
        merged = _merged(_merged(kind().model_dump(), defaults), values, others)
        return kind.model_validate(merged)
    except ValidationError as error:
        wrong = _joined(_explained(kind, one) for one in error.errors())
        raise OptionError(f"{where}: " + "; ".join(wrong)) from None


def _grouped(
    values: Mapping[str, Any],
    kind: type[BaseModel],
    group: str,
    aliases: Mapping[str, str],
) -> dict[str, Any]:
    """Settings of the learner that stand beside its group, moved into it."""
    known: Any = kind.model_fields[group].annotation
    flat: dict[str, Any] = {}
    for given, value in values.items():
        key = aliases.get(given, given)
        if key not in kind.model_fields and key in known.model_fields:
            flat[given] = value
    inside = values.get(group) or {}
    for given, value in flat.items():
        key = aliases.get(given, given)
        if isinstance(inside, Mapping) and key in inside:
            raise OptionError(
                f"{given} is given twice: {value!r} and {group}.{key}: {inside[key]!r}"
            )
    left = {key: value for key, value in values.items() if key not in flat}
    return {**left, group: {**inside, **flat}} if flat else left


def _both_normalised(values: Mapping[str, Any]) -> dict[str, Any]:
    """`normalize: true`, as RL Zoo writes it, for observations and rewards."""
    rest = dict(values)
    for name in ("normalize", "normalise"):
        if isinstance(value := rest.get(name), bool):
            del rest[name]
            rest = {"normalise_obs": value, "normalise_reward": value, **rest}
    return rest


def _merged(
    under: Mapping[str, Any], over: Mapping[str, Any], aliases: Mapping[str, str] = {}
) -> dict[str, Any]:
    merged = dict(under)
    for given, value in over.items():
        key = aliases.get(given, given)
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(below, value, {} if key in FREE_KEYS else aliases)
        merged[key] = value
    return merged


def put(values: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set what a dotted key names."""
    *groups, last = key.split(".")
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise OptionError(
                f"{where}: {key} cannot be set: {group} is {values!r}, not a group"
            )
    values.pop(last, None)  # of a setting and its other names, the last one counts
    values[last] = value


def _joined(texts: Iterable[tuple[str, str]]) -> list[str]:
    """One text for each value, with all that it could have been."""
    found: dict[str, list[str]] = {}
    for said, why in texts:
        found.setdefault(said, []).append(why)
    return [
        f"{said}{', or: '.join(dict.fromkeys(all_))}" for said, all_ in found.items()
    ]


def _written_key(place: Sequence[Any], known: Collection[str]) -> str:
    """The key and the places in its list, without names of types; "" if unknown."""
    for end in (3, 2, 1):
        if (key := ".".join(map(str, place[:end]))) in known:
            inside = [str(one) for one in place[end:] if isinstance(one, int)]
            return ".".join([key, *inside])
    return ""


def _explained(kind: type[BaseModel], error: Mapping[str, Any]) -> tuple[str, str]:
    """The value that is wrong, and why."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        # A place in a union has the names of types behind the key.
        key = _written_key(error["loc"], set(known_keys(kind))) or key
        return f"{key} is {error['input']!r}: ", str(error["msg"])
    if key in LEARNERS:
        why = f"; these are settings of learner: {key}, and this run has another one"
        return f"unknown key {key} (with value {error['input']!r})", why
    known = list(dict.fromkeys([*known_keys(kind), trial_settings.GROUP]))
    name = key.rpartition(".")[2]
    # As it was written, or in another group: lr -> ppo.lr.
    name = ALIASES.get(name, name)
    near = difflib.get_close_matches(key, known, n=1) or [
        one
        for one in known
        if difflib.get_close_matches(name, [one.rpartition(".")[2]])
    ]
    meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(known)}"
    return f"unknown key {key} (with value {error['input']!r})", meant


def known_keys(kind: type[BaseModel], group: str = "") -> Iterator[str]:
    """Yield every dotted key of a model, those of optional groups too."""
    for name, field in kind.model_fields.items():
        inner = group_model(field.annotation)
        if inner is not None:
            yield from known_keys(inner, f"{group}{name}.")
        if inner is not field.annotation:  # it may be a plain value, or be left out
            yield f"{group}{name}"


def group_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a group of settings, also if it is optional."""
    union = get_origin(annotation) is types.UnionType
    for one in get_args(annotation) if union else (annotation,):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None
