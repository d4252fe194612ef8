"""The settings of TAAC; the defaults are those that its authors used for BoxJump."""

from __future__ import annotations

from corral.errors import OptionError
from corral.learners.protocol import LearnerConfig, setting


class TAACConfig(LearnerConfig):
    """Every setting of TAAC."""

    lr: float = setting(5e-4, "learning rate at the start, > 0", gt=0)
    lr_min: float | None = setting(
        1e-4,
        "learning rate at the end of the run, if below lr (default: 1e-4; null: lr)",
        gt=0,
    )
    weight_decay: float = setting(1e-5, "weight decay of Adam, >= 0", ge=0)
    n_steps: int = setting(512, "rows of each env per update (default: 512)", ge=1)
    batch_size: int = setting(
        512, "samples per minibatch: rows times agents (default: 512)", ge=1
    )
    n_epochs: int = setting(10, "passes over the rows per update (default: 10)", ge=1)
    gamma: float = setting(0.995, "discount per step, 0 to 1", ge=0, le=1)
    gae_lambda: float = setting(
        0.97, "GAE's lambda, 0 (critic only) to 1 (rewards only)", ge=0, le=1
    )
    clip_range: float = setting(0.2, "PPO clip range, > 0", gt=0)
    ent_coef: float = setting(0.05, "entropy bonus coefficient, >= 0", ge=0)
    vf_coef: float = setting(0.5, "value loss coefficient, >= 0 (default: 0.5)", ge=0)
    max_grad_norm: float | None = setting(
        200.0, "norm to which gradients are clipped (default: 200; null: none)", gt=0
    )
    conformity_coef: float = setting(
        0.0,
        "weight of the mean cosine similarity of what agents attend to; above 0 it "
        "pushes them apart (default: 0)",
    )
    conformity_cap: float = setting(
        0.0, "similarity below which there is nothing to push (default: 0)", ge=-1, le=1
    )
    baseline_samples: int = setting(
        8, "(Box actions) actions drawn for the baseline of an agent", ge=1
    )
    hidden: int = setting(128, "width of the hidden layers (default: 128)", ge=1)
    embedding: int = setting(64, "width of the attention (default: 64)", ge=1)
    heads: int = setting(2, "heads of the attention; they divide embedding", ge=1)
    own_embedding: bool = setting(
        True,
        "whether the actor's last layers also see the agent's own embedding, not only "
        "what it attends to",
    )
    log_std_init: float = setting(
        0.0, "initial log standard deviation of continuous actions (default: 0)"
    )

    def check(self) -> None:
        """Raise OptionError if the heads do not divide the attention's width."""
        if self.embedding % self.heads:
            raise OptionError(
                f"taac.heads is {self.heads} and taac.embedding is {self.embedding}; "
                "the heads must divide the embedding"
            )
