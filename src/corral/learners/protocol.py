"""What a learner is: what a run asks of it, and defaults for all that is optional.

A run knows no algorithm. It opens the envs, collects what the learner wants, hands it
over, and writes down what comes back::

    learner = Class(setup)                        learner: my_package:Class
    data = collect(learner.wants(settings))       rows, episodes or trials
    metrics = learner.update(data)                numbers by name

A learner derives from `Learner` and has at least a `policy` and `update`; what is to
be saved goes into `state_dict`. Its settings are a group of the run's config: `Config`
under the name `group`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.pool import Pool
from corral.errors import OptionError, requires
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout import EpisodeSummary

with requires("learners need pydantic: pip install 'corral[train]'"):
    from pydantic import BaseModel, ConfigDict, Field

# What is collected for one update -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """The next rows of every slot; `update` is given a `corral.Rollout`.

    Attributes:
        count: Rows per slot.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Episodes:
    """Whole episodes; `update` is given an `EpisodeBatch`."""

    count: int


@dataclass(frozen=True, slots=True)
class Trials:
    """Several episodes of one task each; `update` is given an `EpisodeBatch`.

    Attributes:
        episodes: Episodes per trial.
    """

    count: int
    episodes: int = 2


Wants: TypeAlias = Rows | Episodes | Trials


class Gathered(Protocol):
    """What a run writes down about collected data."""

    @property
    def reward(self) -> NDArray[np.float64]:
        """One number for each env step."""

    @property
    def valid(self) -> NDArray[np.bool_]: ...

    @property
    def episodes(self) -> tuple[EpisodeSummary, ...]: ...


class Gatherer(Protocol):
    """Collects data; `corral.Collector` is one."""

    def collect(self, steps: int) -> Any:
        """Collect as much as the learner wants: `Rows.count` and so on."""

    def end_episodes(self, number: int) -> None:
        """End the running episodes; the next ones have seeds made from `number`."""


# The learner --------------------------------------------------------------------------


class LearnerConfig(BaseModel):
    """Base of a learner's settings: unknown keys and infinite numbers are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


# A setting's type: an integer >= 1.
Count: TypeAlias = Annotated[int, Field(ge=1)]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Return a setting of a `LearnerConfig`; limits as of `pydantic.Field`."""
    return Field(default=default, description=description, **limits)


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """What a learner is made from.

    Attributes:
        spec: Of one env: `observation_space` and `action_space`.
        settings: The learner's group of the config: an instance of its `Config`.
        pool: The envs, for a learner that collects by itself.
        total_steps: Env steps of the whole run, for schedules.
        network: Makes the user's networks, a `nets.own.OwnNetwork`; None for others.
    """

    spec: EnvSpec
    settings: Any
    pool: Pool | None = None
    seed: int = 0
    total_steps: int | None = None
    device: str = "cpu"
    mode: str = "sync"
    normalise_obs: bool = False
    normalise_reward: bool = False
    network: Any = None


class Learner:
    """Base class of all learners. Set `policy`, write `update`, change what you need.

    Class attributes:
        Config: the settings, a pydantic model; see `LearnerConfig`.
        group: the name of these settings in a config file; by default the class's own
            name in lower case.
        title: what reports and the console call it; by default the class's own name.
        charts: metric -> title and caption in the report; by default every metric has
            a chart under its own name.
        packages: distributions whose versions a run writes down.
        needs_pool: whether it cannot be made without envs.
        takes_network: whether it uses the `network` of its setup.
        trains_teams: whether its envs are PettingZoo's; an observation is then that of
            a team, see `corral.engine.adapters.team`.
        shares_policy: whether agents can share its policy: `update` is then given rows
            of agents, see `corral.learners.shared`.
        uses_masks: whether its policy obeys an `action_mask` in a Dict observation.

    Attributes:
        policy: Acts in the envs (see `corral.Policy`), and has `deterministic()`,
            `stochastic()` and `frozen()`; see `PolicyVariants`. If its rows depend on
            their batch in the last bits, `exact()` returns a copy whose rows do not.
    """

    Config: ClassVar[type[BaseModel]] = LearnerConfig
    group: ClassVar[str] = "learner"
    title: ClassVar[str] = "learner"
    charts: ClassVar[Mapping[str, tuple[str, str]]] = {}
    packages: ClassVar[tuple[str, ...]] = ()
    needs_pool: ClassVar[bool] = False
    takes_network: ClassVar[bool] = False
    trains_teams: ClassVar[bool] = False
    shares_policy: ClassVar[bool] = True
    uses_masks: ClassVar[bool] = False

    policy: Any

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if "title" not in own and cls.title == Learner.title:
            cls.title = cls.__name__
        if "group" not in own and cls.group == Learner.group:
            cls.group = cls.__name__.lower()

    @classmethod
    def make(cls, setup: LearnerSetup, **options: Any) -> Learner:
        """Make a learner; `options` are what a recipe adds to its setup."""
        return cls(setup, **options)

    def __init__(self, setup: LearnerSetup) -> None:
        self.settings = setup.settings

    # Learning -------------------------------------------------------------------------

    @classmethod
    def wants(cls, settings: Any) -> Wants:
        """Return what one update learns from.

        By the settings alone: a run is planned before any env is built.
        """
        return Rows(128)

    @property
    def gamma(self) -> float:
        """Discount per step, which `normalise_reward` needs."""
        return float(getattr(self.settings, "gamma", 0.99))

    def collector(self) -> Gatherer | None:
        """Return what collects; None to have the run collect with `policy`."""
        return None

    def update(self, data: Any) -> dict[str, float]:
        """Learn from what was collected; return metrics."""
        raise NotImplementedError

    # Saving ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return tensors, arrays and plain values: all it takes to continue exactly."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        raise NotImplementedError

    def load_policy(self, state: dict[str, Any]) -> None:
        """Start with the policy of another learner of the same kind."""
        self.load_state_dict(state)

    def begin_with(self, state: dict[str, Any], given: Collection[str]) -> None:
        """Do the same for a new run; `given` names settings that the user has set."""
        self.load_policy(state)

    def normalisers(self) -> dict[str, Any]:
        """Return the state of normalisers, where the learner has its own."""
        return {}

    def load_normalisers(self, state: dict[str, Any]) -> None:
        """Continue with what `normalisers` returned."""

    def export(self, folder: Path) -> list[Path]:
        """Write files for other programs; return their paths."""
        return []

    def policy_module(self, obs_norm: ObsNorm | None) -> Any:
        """Return a torch module from leaves of raw observations to likely actions.

        `corral export` writes it down. It shares no memory with the learner.
        """
        raise OptionError(
            f"{self.title} cannot be exported: its learner has no policy_module; use "
            "corral.load_policy(run) in Python instead"
        )

    # Measuring ------------------------------------------------------------------------

    def single_policy(self) -> Any:
        """Return the policy to measure the speed of one env with."""
        return self.policy


Variant = TypeVar("Variant", bound="PolicyVariants")


class PolicyVariants:
    """The three variants that runs need of a policy, by copies of it.

    `act` looks at `self.greedy`: True asks for the most likely action.
    """

    greedy = False

    def deterministic(self: Variant) -> Variant:
        """Return a copy that always takes the most likely action."""
        return self._with(greedy=True)

    def stochastic(self: Variant) -> Variant:
        """Return a copy that draws its actions."""
        return self._with(greedy=False)

    def frozen(self: Variant) -> Variant:
        """Return a deterministic copy that later updates do not change."""
        return copy.deepcopy(self.deterministic())

    def _with(self: Variant, greedy: bool) -> Variant:
        other = copy.copy(self)
        other.greedy = greedy
        return other
