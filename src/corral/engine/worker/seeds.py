"""Seeds: one number for any list of integers, and seeding the global generators.

Every seed of an episode is made here from (root, slot, episode), and that of an item of
`run_episodes` from (root, item). A domain or a function says that a seed is for
something else. All of them are named below, and so are the numbers that other
generators combine with the seed of a run. They never change: with others, no run could
be repeated.

Not made here: weights, the order of minibatches, cloning and the split of TinyPhysics'
routes draw from the run's seed itself; the APIs of other libraries give slot i the seed
`seed + i`, as these do; `rollouts.policy_rng` hashes an episode's seed in another way.

Seeds of lists with another length, or with a number that is larger than any episode's,
are apart. The others coincide where the numbers are equal, and runs were made with
them. Of one root:

    (root, n)       `item_seed` of item n, `collection_root` of turn n, `agent_seed` of
                    agent n, `disturbance_seed` of call n,
                    `slot_generators_seed` of slot n,
                    `worker_globals_seed` of the worker whose first slot is n,
                    `sampler_seed` of space n (the root is hashed from seed and slot),
                    EvaluationSeed n (1 to 3), RETRIES (n = 5),
                    GlobalGenerator n (0 to 2), of a seed of `generator_seeds`.
    (root, n, m)    the seed of slot n's episode m,
                    TASKS of item n (m = 1),
                    WORKERS of first slot n, for a worker's `rng` (m = 2),
                    WORKERS of a site's generation m (n = 2),
                    RESTARTS of a site's generation n (m = 3),
                    NUMBERED n (m = 4),
                    COPIES of copy n (m = 6; the root is the seed of an episode).
    (root, n, 2, 1) TASKS of slot n's episode 2, and the globals of the first
                    replacement of the worker whose first slot is n.

Most of these are not used together, or are roots: only other seeds are made from them.
Where they are used together, the same numbers are drawn:

    - A run that learns from whole episodes collects, up to its first checkpoint, the
      episodes of turns 1, 2 and 3 with the seeds of its evaluations (VALIDATION, FINAL,
      VIDEO).
    - The env of slot n in episode 1 and the TASKS of item n, and the env of a worker's
      first slot in episode 2 and the worker's `rng`: Gymnasium's `np_random` is also
      `default_rng(seed)`.
    - With `isolate_rng`, until a slot's first episode with a seed: the globals of a
      worker and of its first slot. And those of slot n of every site of a cluster, for
      each site counts its slots from 0 there.

NumPy reads `[seed, n]` as one number, `seed + n * 2**32` (`n * 2**64` if the seed is
larger than 32 bits). So these coincide as well:

    route_order     Turn 0 is the run's seed itself, which splits TinyPhysics' routes;
                    turn 1 is REPLAY, turn 7 is TASK_TABLE.
    trial_rng       Trial 0 is the root itself.

And of sums:

    noise_seed      The seed of the weights in the run with the next seed.
    acting_seeds    Row 1 of one episode has the seed of row 0 in the next.
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
        WORKERS: (root, first slot): the worker's `rng`; then the generation: the
            globals of its replacements. (root), then the generation: the root of a site
            of a cluster that was started again.
        RESTARTS: (root, slot, episode), then how often the episode was begun again.
            (root, generation): the root of the next episodes of a site of a cluster
            that was started again.
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
    """`run_generator(seed of a run, this)`: what a generator beside the envs is for.

    Attributes:
        REPLAY: Chooses the rows that a learner's updates see.
        TASK_TABLE: Draws the tables of tasks to train and to test on.
    """

    REPLAY = 1
    TASK_TABLE = 7


class GlobalGenerator(enum.IntEnum):
    """(seed): which of the global generators it is hashed for."""

    PYTHON = 0
    NUMPY = 1
    TORCH = 2


def episode_seed(root: int, *parts: int) -> int:
    """A seed below 2**63 for these integers, the same one for ever.

    >>> episode_seed(0, 3, 7) == episode_seed(0, 3, 7) != episode_seed(0, 37)
    True
    """
    # Hexadecimal text: integers of any size and sign, and no two lists alike.
    text = ",".join([f"{operator.index(part):x}" for part in (root, *parts)])
    digest = blake2b(text.encode(), digest_size=8, person=b"corral")
    return int.from_bytes(digest.digest(), "little") >> 1


# Of episodes --------------------------------------------------------------------------


def item_seed(root: int, item: int) -> int:
    """The seed of an item's episode."""
    return episode_seed(root, item)


def copy_seed(seed: int, copy: int) -> int:
    """The seed of the policy's draws in a copy of an episode; the first has its own."""
    return episode_seed(seed, copy, SeedDomain.COPIES) if copy else seed


def agent_seed(seed: int, agent: int) -> int:
    """The seed of an agent's draws in an episode of an env whose agents share a policy.

    Args:
        seed: of the env's episode.
        agent: its number.
    """
    return episode_seed(seed, agent)


def acting_seeds(first: int, rows: int) -> range:
    """The seeds of a loaded policy's draws in an episode of envs of the user's own.

    Args:
        first: of row 0; the next episode has the next number.
        rows: number of envs.
    """
    return range(first, first + rows)


# Roots of episodes --------------------------------------------------------------------


def collection_root(root: int, turn: int) -> int:
    """The root of whole episodes that are collected together.

    Args:
        root: of the pool or the learner.
        turn: how often, or how many trials, were collected with this root before.
    """
    return episode_seed(root, turn)


def evaluation_root(seed: int, purpose: EvaluationSeed) -> int:
    """The root of an evaluation's episodes, from the seed of its run."""
    return episode_seed(seed, purpose)


# Generators beside the envs -----------------------------------------------------------


def run_generator(seed: int, purpose: RunGenerator) -> np.random.Generator:
    """Make the generator for a purpose, from the seed of a run."""
    return np.random.default_rng([seed, purpose])


def route_order(seed: int, turn: int) -> np.random.Generator:
    """Make the generator of TinyPhysics' order of routes in a turn."""
    return np.random.default_rng([seed, turn])


def trial_rng(root: int, trial: int) -> np.random.Generator:
    """Make the generator that draws the task of a trial of `corral.meta`."""
    return np.random.default_rng([root, trial])


def noise_seed(seed: int) -> int:
    """The seed of the noise in updates of SAC and TD3; the run's is of the weights."""
    return seed + 1


def sampler_seed(seed: int, slot: int, number: int) -> int:
    """The seed of one of the spaces from which the doctor samples a slot's actions."""
    return episode_seed(episode_seed(seed, slot), number)


# Global generators --------------------------------------------------------------------


def worker_globals_seed(root: int, first_slot: int, generation: int = 0) -> int:
    """The seed of the globals in a worker's process.

    One that takes another's place must not draw the same numbers again.

    Args:
        root: of the pool.
        first_slot: of the worker.
        generation: how often the worker was replaced.
    """
    if generation:
        return episode_seed(root, first_slot, SeedDomain.WORKERS, generation)
    return episode_seed(root, first_slot)


def slot_generators_seed(root: int, slot: int) -> int:
    """The seed of a slot's isolated globals, until an episode has a seed.

    Args:
        root: of the pool.
        slot: its number in the pool; at a site of a cluster, in the site's pool.
    """
    return episode_seed(root, slot)


def episode_generators_seed(seed: int) -> int:
    """The seed of a slot's isolated globals, from that of its episode."""
    return episode_seed(seed)


def disturbance_seed(noise: int, call: int) -> int:
    """The seed of the globals with which the doctor disturbs a call of an env."""
    return episode_seed(noise, call)


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
    python, number, torch = (episode_seed(seed, part) for part in GlobalGenerator)
    return python, [number & 0xFFFFFFFF, number >> 32], torch
