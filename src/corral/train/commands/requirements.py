"""What a command needs beyond a plain `pip install corral`, checked before it begins.

    Need(("bench",), ("psutil", "rich")).check()
    Need(("train",), TRAINING) + Need(("mujoco",), ("mujoco",))

The error names every module that is missing, and extras that bring all of them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.errors import MissingExtra
from corral.learners.registry import EXTRAS as LEARNER_EXTRAS
from corral.train.recipes import EXTRAS
from corral.train.run.directory import CONFIG_FILE

# What every training imports.
TRAINING = ("matplotlib", "psutil", "pydantic", "rich", "tensorboard", "torch", "yaml")
# An extra -> the modules that a training with it imports.
MODULES: Mapping[str, tuple[str, ...]] = {
    "box_jump": ("Box2D", "pettingzoo"),
    "bullet": ("pybullet", "stable_baselines3"),
    "mujoco": ("mujoco",),
    "multi": ("pettingzoo",),
    "sb3": ("stable_baselines3",),
    "sb3_contrib": ("sb3_contrib", "stable_baselines3"),
    "tinyphysics": ("onnx", "onnxruntime"),
    "train": TRAINING,
    "upkie": ("pybullet", "stable_baselines3", "upkie"),
    "wandb": ("wandb",),
}
# An extra -> the extras that come along with it.
WITHIN = {
    "box_jump": {"bench", "multi", "train"},
    "bullet": {"bench", "sb3", "train"},
    "sb3_contrib": {"sb3"},
    "tinyphysics": {"bench", "train"},
    "train": {"bench"},
    "upkie": {"bench", "bullet", "sb3", "train"},
    "wandb": {"bench", "train"},
}


@dataclass(frozen=True, slots=True)
class Need:
    """Extras that are enough, and the modules that are imported of them."""

    extras: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def __add__(self, other: Need) -> Need:
        return Need(self.extras + other.extras, self.modules + other.modules)

    def check(self) -> None:
        """Raise MissingExtra if a module is not installed."""
        find = importlib.util.find_spec
        missing = [name for name in sorted(set(self.modules)) if find(name) is None]
        if missing:
            said = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
            raise MissingExtra(f"{said} not installed: {self.command}")

    @property
    def command(self) -> str:
        """The command to install them; quoted, since some shells expand brackets."""
        along = set().union(*(WITHIN.get(extra, set()) for extra in self.extras))
        named = sorted(set(self.extras) - along)
        return f"pip install 'corral[{','.join(named)}]'"


def training(*extras: str) -> Need:
    """To train, and more."""
    needs = (Need((extra,), MODULES[extra]) for extra in extras)
    return sum(needs, Need(("train",), TRAINING))


def training_of(recipe: str, learner: str | None = None) -> Need:
    """To train by a recipe; by none, if it is empty."""
    return training(*EXTRAS.get(recipe, ()), *LEARNER_EXTRAS.get(learner or "", ()))


def training_in(config: Path, learner: str | None = None) -> Need:
    """To train what a config file names.

    Its text is searched, since what parses it may be what is missing.
    """
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return training_of("", learner)  # the command itself reports a missing file
    return training_of(_value(text, "recipe"), learner or _value(text, "learner"))


def config_near(path: Path) -> Path:
    """The config of a run that is named by its directory or a file in it."""
    places = [place / CONFIG_FILE for place in (path, *path.parents[:3])]
    return next((place for place in places if place.is_file()), places[0])


def _value(text: str, key: str) -> str:
    found = re.search(rf"^{key}:[ \t]*['\"]?([\w-]+)", text, flags=re.M)
    return found[1] if found else ""
