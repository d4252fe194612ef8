"""The settings of SAC and TD3."""

from __future__ import annotations

from typing import Annotated, Literal

from corral.errors import requires
from corral.learners.off_policy.nets import Architecture
from corral.learners.protocol import Count, LearnerConfig, setting

with requires("learners need pydantic: pip install 'corral[train]'"):
    from pydantic import Field, model_validator

MARKOV_HIDDEN, RECURRENT_HIDDEN = (256, 256), (128, 128, 128)
MARKOV_BATCH, RECURRENT_BATCH = 256, 32


class OffPolicyConfig(LearnerConfig):
    """What SAC and TD3 have in common."""

    architecture: Architecture = setting(
        "markov",
        "markov (no memory), memory (actor and critic remember), or memory_markov "
        "(only the critic remembers)",
    )
    memory: Literal["lstm", "gru"] = setting("lstm", "recurrent layer (default: lstm)")
    memory_size: int = setting(128, "width of the recurrent layer (default: 128)", ge=1)
    action_embedding: int = setting(
        16, "width of the embedded previous action; 0: the net does not see it", ge=0
    )
    obs_embedding: int = setting(32, "width of the embedded observation", ge=1)
    reward_embedding: int = setting(
        16, "width of the embedded reward; 0: the net does not see it", ge=0
    )
    hidden: tuple[Count, ...] | None = setting(
        None,
        "widths of the hidden layers of actor and critic (default: 256, 256; with a "
        "memory 128, 128, 128)",
    )
    lr: float = setting(3e-4, "learning rate, > 0", gt=0)
    gamma: float = setting(0.99, "discount per step, 0 to 1", ge=0, le=1)
    tau: float = setting(
        0.005,
        "soft update of the target networks: share of the weights taken over per "
        "update",
        gt=0,
        le=1,
    )
    batch_size: int | None = setting(
        None, "transitions per update (default: 256), or sequences (32)", ge=1
    )
    sequence_length: int | None = setting(
        None,
        "steps of a sampled sequence, with a memory (default: whole episodes); "
        "shorter episodes are padded and masked",
        ge=1,
    )
    updates: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)] = setting(
        1.0,
        "updates per env step as a fraction (1.0, 0.02), or their number after each "
        "collection as an integer (200)",
    )
    rows: int = setting(
        16, "rows of each env per collection, without a memory (default: 16)", ge=1
    )
    episodes: int | None = setting(
        None,
        "whole episodes or trials per collection (default with a memory: 1; without: "
        "rows)",
        ge=1,
    )
    random_steps: int = setting(
        1000, "env steps with random actions before learning starts", ge=0
    )
    random_episodes: int = setting(
        0,
        "whole episodes with random actions before learning starts; random_steps must "
        "be reached too",
        ge=0,
    )
    replay_size: int = setting(
        1_000_000,
        "capacity of the replay buffer in transitions (default: 1 million)",
        ge=1,
    )
    replay_max_gib: float = setting(
        16.0,
        "largest replay buffer in GiB; a larger one is refused (default: 16)",
        gt=0,
    )
    overlap: Literal[0, 1] = setting(
        0,
        "1 collects the next data while learning, with the weights of one collection "
        "before; 0 takes turns",
    )

    @model_validator(mode="after")
    def _sequence_fits(self) -> OffPolicyConfig:
        if (self.sequence_length or 0) > self.replay_size:
            raise ValueError(
                f"sequence_length is {self.sequence_length}, longer than replay_size, "
                f"{self.replay_size}"
            )
        return self

    @property
    def recurrent(self) -> bool:
        """Whether the critic remembers, and so learns from sequences."""
        return self.architecture != "markov"

    @property
    def batch(self) -> int:
        """`batch_size`, or its default."""
        return self.batch_size or (RECURRENT_BATCH if self.recurrent else MARKOV_BATCH)

    @property
    def widths(self) -> tuple[int, ...]:
        """`hidden`, or its default."""
        if self.hidden is not None:
            return self.hidden
        return RECURRENT_HIDDEN if self.recurrent else MARKOV_HIDDEN


class SACConfig(OffPolicyConfig):
    """Every setting of SAC."""

    alpha: Annotated[float, Field(ge=0)] | Literal["auto"] = setting(
        "auto", "entropy temperature; auto learns it (default: auto)"
    )
    alpha_init: float = setting(
        1.0, "temperature that auto starts from (default: 1)", gt=0
    )
    alpha_lr: float = setting(3e-4, "learning rate of the temperature", gt=0)
    target_entropy: float | None = setting(
        None,
        "entropy that auto aims at (default: minus the number of action dimensions; "
        "for Discrete 0.7 of the largest)",
    )


class TD3Config(OffPolicyConfig):
    """Every setting of TD3."""

    exploration_noise: float = setting(
        0.1, "standard deviation of the exploration noise (default: 0.1)", ge=0
    )
    target_noise: float = setting(
        0.2, "standard deviation of the noise on target actions (default: 0.2)", ge=0
    )
    noise_clip: float = setting(
        0.5, "clip range of the noise on target actions (default: 0.5)", gt=0
    )
    policy_delay: int = setting(1, "critic updates per actor update (default: 1)", ge=1)
