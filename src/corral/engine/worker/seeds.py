"""Seeds: one number for any list of integers, and seeding the global generators.

Every seed of an episode is made here from (root, slot, episode), and that of an item of
`run_episodes` from (root, item). A domain says that a seed is for something else. All
domains are named below, and so are the numbers that other generators combine with the
seed of a run. They never change: with others, no run could be repeated. Learners,
cloning and the order of TinyPhysics' routes draw from the run's seed itself, the noise
of SAC and TD3 from the next one.

Seeds of lists with another length, or with a domain that is larger than any episode's
number, are apart. Four domains are small, and runs were made with them:

    NUMBERED, RETRIES   (root, 3, NUMBERED) is also the seed of slot 3's episode 4. But
                        these are roots: nothing draws from them, only from seeds that
                        are hashed from them.
    TASKS               of items, (root, item, TASKS), is also the seed of episode 1 of
                        the slot with that number, in a pool with the same root seed.
    WORKERS             of a worker's `rng`, (root, first slot, WORKERS), is also the
                        seed of episode 2 of its first slot.
"""

from __future__ import annotations

import enum
import operator
import random
import sys
from hashlib import blake2b
from typing import Any

import numpy as np

# No slot, item or episode has so high a number.
_BEYOND_NUMBERS = 1 << 62


class SeedDomain(enum.IntEnum):
    """What a seed is for, if it is not for the env of a slot's episode.

    Attributes:
        TASKS: (root, slot, episode), or (root, item): draws the task of an episode
            that was given none.
        WORKERS: (root, first slot): the worker's `rng`, and the globals of its
            replacements. (root), then the generation: the root of a site of a cluster
            that was started again.
        RESTARTS: (root, slot, episode), then how often the episode was begun again.
        NUMBERED: (root, number): the root of the episodes after `end_episodes(number)`.
        RETRIES: (root): the root of the next episodes, if beginning these fails.
        COPIES: (seed of an episode, copy): the policy's draws in a copy of that
            episode.
        UNSEEDED: (root, slot): the policy's draws in a slot whose episodes have no
            seed, until one has.
    """

    TASKS = 1
    WORKERS = 2
    RESTARTS = 3
    NUMBERED = 4
    RETRIES = 5
    COPIES = 6
    UNSEEDED = _BEYOND_NUMBERS + 7


class EvaluationSeed(enum.IntEnum):
    """(seed of a run): what the seeds of its evaluations are for.

    Attributes:
        VALIDATION: Episodes that choose the best policy while it is trained.
        FINAL: Episodes that judge the best policy at the end.
        VIDEO: The episode of the video.
    """

    VALIDATION = 1
    FINAL = 2
    VIDEO = 3


class RunGenerator(enum.IntEnum):
    """`default_rng([seed of a run, this])`: what a generator beside the envs is for.

    Attributes:
        REPLAY: Chooses the rows that a learner's updates see.
        TASK_TABLE: Draws the tables of tasks to train and to test on.
    """

    REPLAY = 1
    TASK_TABLE = 7


def episode_seed(root: int, *parts: int) -> int:
    """A seed below 2**63 for these integers, the same one for ever.

    >>> episode_seed(0, 3, 7) == episode_seed(0, 3, 7) != episode_seed(0, 37)
    True
    """
    # Hexadecimal text: integers of any size and sign, and no two lists alike.
    text = ",".join([f"{operator.index(part):x}" for part in (root, *parts)])
    digest = blake2b(text.encode(), digest_size=8, person=b"corral")
    return int.from_bytes(digest.digest(), "little") >> 1


def copy_seed(seed: int, copy: int) -> int:
    """The seed of the policy's draws in a copy of an episode; the first has its own."""
    return episode_seed(seed, copy, SeedDomain.COPIES) if copy else seed


def seed_globals(seed: int) -> None:
    """Seed `random`, `numpy.random` and, where it is imported, torch on all devices."""
    python, numpy, torch_seed = generator_seeds(seed)
    random.seed(python)
    np.random.seed(numpy)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(torch_seed)


def generator_seeds(seed: int) -> tuple[int, list[int], int]:
    """The seeds of `random`, `numpy.random` and torch.

    Each gets another number: `random` and `numpy.random` are the same algorithm and
    would draw the same stream.
    """
    python, number, torch = (episode_seed(seed, part) for part in range(3))
    return python, [number & 0xFFFFFFFF, number >> 32], torch
