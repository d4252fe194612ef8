"""Public names as text: one line for a name, one for a parameter, nothing else.

What the guides import, with members and signatures; what public functions return, by
its members; and every command with its options. Annotations are left out: they name
classes that are nobody's to import.
"""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import corral
from tests.guard import envs
from tests.guard.leading import Plain
from tests.guard.training import corral_command

MODULES: dict[str, tuple[str, ...]] = {
    "corral": (),
    "corral.errors": (),
    "corral.dropin": (),
    "corral.testing": (),
    "corral.doctor": (),
    "corral.meta": ("torch",),
    "corral.learners.ppo": ("torch", "pydantic"),
    "corral.learners.returns": (),
    "corral.recipes.config": ("torch", "pydantic"),
    "corral.zoo.box_jump": ("pettingzoo", "Box2D"),
    "corral.zoo.grid_world": ("pettingzoo",),
    "corral.zoo.tinyphysics": ("onnxruntime",),
    "corral.zoo.positions": (),
    "corral.zoo.bullet_pendulum": ("pybullet",),
    "corral.zoo.upkie": ("pybullet", "upkie"),
}
"""Modules that guides import or name -> the packages that they need."""
CHOSEN = {
    "corral.learners.ppo": ("PPO", "PPOConfig"),
    "corral.learners.returns": ("gae",),
    "corral.recipes.config": ("Config",),
    "corral.zoo.positions": ("make",),
    "corral.zoo.bullet_pendulum": ("make",),
    "corral.zoo.upkie": ("make",),
}
"""Those that guides show, of modules without `__all__`."""
POOL = (
    *("answers", "ask_async", "check_actions", "close_timeout"),
    *("debug", "drain", "envs"),
    *("fault_count", "observe", "question_count", "restarts_workers", "sample_task"),
    *("send_count", "send_raw", "shards", "specs", "step_all", "waiting"),
    "with_options",
)
INTERNAL: dict[str, tuple[str, ...]] = {
    "corral.Pool": POOL,
    "Pool()": POOL,
    "corral.FlattenedAgents": ("agent_view", "set_wrapper_attr"),
    "corral.ObsNorm": ("dtype_of",),
    "corral.StandIn": ("assemble", "decoder", "encoder", "plain", "split", "walker"),
    "corral.errors": ("EpisodeRecord", "RemoteTraceback"),
    "corral.learners.ppo.PPOConfig": ("check_length",),
    "corral.recipes.config.Config": ("changeable",),
    "make_multi()": ("reset_groups", "step_groups", "team"),
    "make_multi().groups[name]": ("leaves", "mask_by_info", "mask_in_obs"),
    "make_shared_policy().pool": (
        "last",
        "pool",
        "shards",
        "step_all",
        "team",
        "waiting",
    ),
    "make_sb3()": ("begin_at", "last_step", "waiting"),
    "stats()": ("overlapped",),
}
"""Names without an underscore that no guide shows: free to change."""


def module_names(module: str) -> list[str]:
    """All lines about one module."""
    found = importlib.import_module(module)
    if module == "corral.errors":
        chosen = [
            name
            for name, one in vars(found).items()
            if inspect.isclass(one) and one.__module__ == module
            if name not in INTERNAL[module]
        ]
    else:
        chosen = list(CHOSEN.get(module) or found.__all__)
    labels = [f"{module}.{name}" for name in sorted(chosen)]
    lines: list[str] = []
    for label in labels:
        if label in APART:
            lines.append(f"{label}: see there")
        else:
            lines += _lines(label, getattr(found, label.rpartition(".")[2]))
    return lines


def name_apart(label: str) -> list[str]:
    """All lines about a name that needs another library."""
    module, _, name = label.rpartition(".")
    return list(_lines(label, getattr(importlib.import_module(module), name)))


APART = {
    "corral.dropin.AsyncPettingZooVecEnv": "agilerl",
    "corral.dropin.DummyVecEnv": "stable_baselines3",
    "corral.dropin.SubprocVecEnv": "stable_baselines3",
}
"""Names in files of their own -> the library that they need."""


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _lines(label: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class_lines(label, value)
    elif callable(value):
        yield from _signature_lines(label, value)
    elif inspect.ismodule(value):
        yield f"{label}: module"
    else:
        yield f"{label}: {type(value).__name__}"


def _class_lines(label: str, kind: type) -> Iterator[str]:
    if getattr(kind, "_is_protocol", False):
        yield f"{label}: protocol"
    elif issubclass(kind, BaseException) and not _has_own_init(kind):
        yield f"{label}: exception"
    elif hasattr(kind, "model_fields"):
        yield f"{label}: model"
        for name, field in kind.model_fields.items():
            default = field.get_default(call_default_factory=True)
            yield f"    {name} = {_default(default)}"
    else:
        yield from _signature_lines(label, kind)
    bases = [base.__name__ for base in kind.__mro__[1:] if _counts(base)]
    if bases:
        yield f"    is a: {', '.join(bases)}"
    for name in sorted(_members(kind)):
        if name not in INTERNAL.get(label, ()):
            member = inspect.getattr_static(kind, name)
            yield from (f"  {line}" for line in _member_lines(f".{name}", member))


def _has_own_init(kind: type) -> bool:
    first = next(base for base in kind.__mro__ if "__init__" in vars(base))
    return first.__module__.startswith("corral")


def _counts(base: type) -> bool:
    """Whether users may ask `isinstance` about it: errors, and others' classes."""
    if base.__module__ == "corral.errors":
        return True
    known = (object, Exception, BaseException)
    return not base.__module__.startswith(("corral", "typing")) and base not in known


def _members(kind: type) -> set[str]:
    """Those without an underscore that our own classes define."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("corral")]
    names = {name for base in ours for name in vars(base) if not name.startswith("_")}
    fields = getattr(kind, "model_fields", {})
    return {
        name for name in names if name not in fields and not name.startswith("model_")
    }


def _member_lines(label: str, member: Any) -> Iterator[str]:
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if inspect.isfunction(member):
        yield from _signature_lines(label, member)
    else:
        yield label


def _signature_lines(label: str, value: Any) -> Iterator[str]:
    parameters = [
        one
        for one in inspect.signature(value).parameters.values()
        if not one.name.startswith("_") and one.name not in ("self", "cls")
    ]
    shown = [_parameter(one) for one in parameters]
    kinds = [one.kind for one in parameters]
    keyword = inspect.Parameter.KEYWORD_ONLY
    if keyword in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(keyword), "*")
    text = f"{label}({', '.join(shown)})"
    if len(text) <= 88:
        yield text
    else:
        yield f"{label}("
        yield from (f"    {one}," for one in shown)
        yield ")"


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    if one.default is one.empty:
        return f"{stars}{one.name}"
    return f"{one.name}={_default(one.default)}"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{value.name}"
    if hasattr(type(value), "model_fields"):
        return "..."  # a model of its own, with lines of its own
    text = repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text) if "corral." not in text else "..."


# What functions return ----------------------------------------------------------------


def returned_names(label: str, value: Any) -> list[str]:
    """The members of a value whose class has no public name."""
    theirs = {
        name
        for base in type(value).__mro__
        if not base.__module__.startswith("corral")
        for name in dir(base)
    }
    own = {name for name in dir(value) if not name.startswith("_")} - theirs
    return [f"{label}.{name}" for name in sorted(own - {*INTERNAL.get(label, ())})]


def all_returned() -> list[str]:
    """Of the values that public functions and methods return."""
    serial = {"backend": "serial"}
    lines: list[str] = []
    with corral.Pool(envs.Walk, 2, seed=1, **serial) as pool:
        step, stats = pool.reset(), pool.stats()
        kept = corral.Trajectories(pool, 1)
        kept.received(step)
        pool.send(zeros := np.zeros(2, np.int64))
        kept.sent(zeros)
        lines += returned_names("Pool()", pool)
        lines += returned_names("Pool().layout", pool.layout)
        lines += returned_names("stats()", stats)
        lines += returned_names("stats().workers[0]", stats.workers[0])
        lines += returned_names("step.infos", step.infos)
        lines += returned_names(
            "Trajectories.received()", kept.received(pool.recv())[0]
        )
        rollout = corral.collect(pool, Plain(), 12)
        lines += returned_names("rollout.episodes[0]", rollout.episodes[0])
        worker = pool.apply(_worker)[0]
        lines += returned_names("this_worker()", worker)
    makers = {
        "make()": corral.make(envs.Walk, 2, **serial),
        "make_async()": corral.make_async(envs.Walk, 2, **serial),
        "make_multi()": corral.make_multi(envs.Crowd, 2, **serial),
        "make_shared_policy()": corral.make_shared_policy(envs.Pair, 2, **serial),
    }
    lines += returned_names(
        "make_multi().groups[name]", makers["make_multi()"].groups["eye"]
    )
    lines += returned_names(
        "make_shared_policy().pool", makers["make_shared_policy()"].pool
    )
    for label, made in makers.items():
        lines += returned_names(label, made)
        made.close()
    return lines


def returned_sb3() -> list[str]:
    venv = corral.make_sb3(envs.Walk, 2, backend="serial")
    venv.close()
    return returned_names("make_sb3()", venv)


def _worker(env: Any) -> Any:
    return corral.this_worker()


# The command line ---------------------------------------------------------------------

COMMANDS = ("", "train", "eval", "export", "config", "list", "bench", "doctor")


def command_names(command: str) -> list[str]:
    """What a command takes, out of its own help; the sentences are free to change."""
    with mock.patch.dict(os.environ, COLUMNS="500"):
        status, shown = corral_command(*command.split(), "--help")
    assert status == 0, shown
    taken, part = [], ""
    for line in shown.splitlines():
        if re.match(r"\S.*:$", line):
            part = line
        found = re.match(r" {2,4}(-\S.*?|\S+)(?: {2,}|$)", line)
        if found and (found[1].startswith("-") or part == "positional arguments:"):
            taken.append(f"corral {command} {found[1]}".replace("  ", " "))
    return taken


def files() -> dict[str, Callable[[], list[str]]]:
    """File -> what gives its lines; only those whose packages are installed."""
    found: dict[str, Callable[[], list[str]]] = {
        "returned": all_returned,
        "command_line": all_commands,
    }
    for module, needs in MODULES.items():
        if all(_installed(name) for name in needs):
            found[module] = functools.partial(module_names, module)
    for label, needed in APART.items():
        if _installed(needed):
            found[label] = functools.partial(name_apart, label)
    if _installed("stable_baselines3"):
        found["returned_sb3"] = returned_sb3
    return found


def all_commands() -> list[str]:
    return [line for command in COMMANDS for line in command_names(command)]
