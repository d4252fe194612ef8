"""Print every setting of a config, with its type, its default and its meaning.

    corral config                     all settings, and the groups of all learners
    corral config cartpole            those of a recipe
    corral config my_config.yaml      those of a file, with the defaults filled in

What it prints is YAML: `corral config cartpole > mine.yaml`, edit, and train it.
"""

from __future__ import annotations

import argparse

from corral.train.commands.requirements import TRAINING, Need

SUMMARY = "print every setting with its type, default and meaning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `corral config`."""
    text = "recipe or config file (default: all settings)"
    parser.add_argument("source", nargs="?", metavar="RECIPE|CONFIG.yaml", help=text)


def need(arguments: argparse.Namespace) -> Need:
    """Return the packages that settings are defined with."""
    return Need(("train",), TRAINING)


def run(arguments: argparse.Namespace) -> int:
    """Print; return the exit status."""
    from corral.train.recipes.setting_list import every_setting, settings_of

    source = arguments.source
    print(every_setting() if source is None else settings_of(source))
    return 0
