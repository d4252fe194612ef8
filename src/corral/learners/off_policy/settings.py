"""The settings of SAC and TD3."""

from __future__ import annotations

from typing import Annotated, Literal

from corral.errors import MissingExtra
from corral.learners.off_policy.nets import Architecture
from corral.learners.protocol import LearnerConfig

try:
    from pydantic import Field, model_validator
except ImportError as error:
    raise MissingExtra("learners need pydantic: pip install 'corral[train]'") from error

MARKOV_HIDDEN, RECURRENT_HIDDEN = (256, 256), (128, 128, 128)
MARKOV_BATCH, RECURRENT_BATCH = 256, 32


class OffPolicyConfig(LearnerConfig):
    """What SAC and TD3 have in common."""

    architecture: Architecture = Field(
        default="markov",
        description="markov (no memory), memory (actor and critic remember), or "
        "memory_markov (only the critic remembers)",
    )
    memory: Literal["lstm", "gru"] = Field(
        default="lstm", description="recurrent layer (default: lstm)"
    )
    memory_size: int = Field(
        default=128, ge=1, description="width of the recurrent layer (default: 128)"
    )
    action_embedding: int = Field(
        default=16,
        ge=0,
        description="width of the embedded previous action; 0: the net does not see it",
    )
    obs_embedding: int = Field(
        default=32, ge=1, description="width of the embedded observation"
    )
    reward_embedding: int = Field(
        default=16,
        ge=0,
        description="width of the embedded reward; 0: the net does not see it",
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None,
        description="widths of the hidden layers of actor and critic (default: 256, "
        "256; with a memory 128, 128, 128)",
    )
    lr: float = Field(default=3e-4, gt=0, description="learning rate, > 0")
    gamma: float = Field(
        default=0.99, ge=0, le=1, description="discount per step, 0 to 1"
    )
    tau: float = Field(
        default=0.005,
        gt=0,
        le=1,
        description="share of the weights that the target nets take over per update",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="transitions per update (default: 256), or sequences (32)",
    )
    sequence_length: int | None = Field(
        default=None,
        ge=1,
        description="steps of a sampled sequence, with a memory (default: whole "
        "episodes); shorter episodes are padded and masked",
    )
    updates: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="updates per env step as a fraction (1.0, 0.02), or their number "
        "after each collection as an integer (200)",
    )
    rows: int = Field(
        default=16,
        ge=1,
        description="rows of each env per collection, without a memory (default: 16)",
    )
    episodes: int | None = Field(
        default=None,
        ge=1,
        description="whole episodes or trials per collection (default with a memory: "
        "1; without: rows)",
    )
    random_steps: int = Field(
        default=1000,
        ge=0,
        description="env steps with random actions before learning starts",
    )
    random_episodes: int = Field(
        default=0,
        ge=0,
        description="whole episodes with random actions before learning starts; "
        "random_steps must be reached too",
    )
    replay_size: int = Field(
        default=1_000_000, ge=1, description="transitions that are kept"
    )
    replay_max_gib: float = Field(
        default=16.0, gt=0, description="largest replay in GiB; a larger one is refused"
    )
    overlap: Literal[0, 1] = Field(
        default=0,
        description="1 collects the next data while learning, with the weights of one "
        "collection before; 0 takes turns",
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

    alpha: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        default="auto",
        description="entropy temperature; auto learns it (default: auto)",
    )
    alpha_init: float = Field(
        default=1.0, gt=0, description="temperature that auto starts from (default: 1)"
    )
    alpha_lr: float = Field(
        default=3e-4, gt=0, description="learning rate of the temperature"
    )
    target_entropy: float | None = Field(
        default=None,
        description="entropy that auto aims at (default: minus the number of action "
        "dimensions; for Discrete 0.7 of the largest)",
    )


class TD3Config(OffPolicyConfig):
    """Every setting of TD3."""

    exploration_noise: float = Field(
        default=0.1, ge=0, description="deviation of the noise on collected actions"
    )
    target_noise: float = Field(
        default=0.2, ge=0, description="deviation of the noise on target actions"
    )
    noise_clip: float = Field(
        default=0.5, gt=0, description="largest noise on target actions"
    )
    policy_delay: int = Field(
        default=1, ge=1, description="critic updates per actor update (default: 1)"
    )
