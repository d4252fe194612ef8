"""Sites elsewhere that a collector and `run_episodes` can use in place of a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from corral.core import Autoreset, EnvSpec, Policy
from corral.engine.executors.assign import Placement
from corral.engine.pool import Stats
from corral.rollouts.episode_run import Episode, EpisodeItem, EpisodeOptions
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import PolicyFactory, PublishedPolicy
from corral.rollouts.workers_filling import WorkersFiller


class SiteGroup(ABC):
    """Slots that are stepped by sites with copies of the policy, and never from here.

    Attributes:
        seed: The root of every episode's seed.
        send_count: Changes whenever the slots are stepped or reset.
    """

    spec: EnvSpec
    num_envs: int
    layout: Placement
    seed: int
    autoreset: Autoreset
    send_count: int
    sample_task: Callable[..., Any] | None

    @abstractmethod
    def published(
        self, policy: Policy, factory: PolicyFactory | None
    ) -> PublishedPolicy:
        """The policy, published for its copies there."""

    @abstractmethod
    def filler(
        self, published: PublishedPolicy, obs_norm: ObsNorm | None
    ) -> WorkersFiller:
        """What fills rows there."""

    @abstractmethod
    def run_items(
        self,
        published: PublishedPolicy,
        items: Sequence[EpisodeItem],
        options: EpisodeOptions,
        norm: ObsNorm | None,
    ) -> dict[int, Episode]:
        """Run items there; returns episodes by number."""

    @abstractmethod
    def times(self) -> Stats:
        """The driver's time: waiting for the sites, which counts as steps, or not."""

    @abstractmethod
    def drain(self) -> None:
        """Wait for what Ctrl-C has left at work, and drop it."""
