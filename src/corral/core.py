"""The page to read first: the values that travel and the seams they cross.

A **pool** sends actions to **slots** and receives a **Step**; an **executor** moves
those commands to **workers**; a worker's **shard** drives one **Adapter** per slot::

    pool.send(actions)                    # rows of the block, one ring per worker
    step = pool.recv()                    # what arrived together

A Step is about one moment: `obs`, and the reward, flags and final observation of the
transition that led to it. `started` speaks of `obs`.

A **Policy** turns a Step into a **Decision**; its memory travels beside them, as its
**carry**::

    decision = policy.act(step, carry, rng)
    pool.send(decision.action)
    step, carry = pool.recv(), decision.carry

A **Learner** (`learners.protocol`) turns what was collected into a better policy; a run
knows it by that protocol alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gymnasium import Space

Autoreset = Literal["next_step", "same_step", "off", "hold"]
Factory = Callable[..., Any]
"""Makes an env. Called without arguments; for a batched env, with `num_envs`."""


class InfoBatch(Protocol):
    """The infos of one Step, in the form that the caller wants."""

    def __bool__(self) -> bool: ...

    def of(self, position: int) -> dict[str, Any]:
        """The info of one slot, as its env returned it; by position in the batch."""

    def to_vector(self, count: int) -> dict[str, Any]:
        """Gymnasium's dict of arrays, with a `_key` mask beside each key."""

    def to_list(self, count: int) -> list[dict[str, Any]]:
        """The info of each slot."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What one environment says about itself."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    render_mode: str | None = None
    id: str | None = None


@dataclass(slots=True)
class Step:
    """What came back, for `slots` in ascending order; arrays are `(len(slots), ...)`.

    Arrays are copies or, with `copy=False`, views into the block that stay intact
    until the slot has been sent to twice more.
    """

    slots: NDArray[np.intp]
    obs: Any
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    started: NDArray[np.bool_]
    """True where `obs` is the first observation of an episode."""
    valid: NDArray[np.bool_]
    """False for padding rows: a next-step reset, or a fault."""
    final_obs: Any
    """The last observation of the episode; meaningful only where it ended. There is one
    row of it: as a view it lives until the slot is sent to again."""
    episode_return: NDArray[np.float64]
    episode_length: NDArray[np.int32]
    """Of the episode that `reward` belongs to, this step included."""
    seed: NDArray[np.int64]
    """The seed of the episode that `obs` belongs to, -1 where none was given."""
    infos: InfoBatch
    final_infos: dict[int, dict[str, Any]]
    """(same_step) Position in the batch -> the info that came with the end of an
    episode; under next_step and off that info is in `infos`."""
    previous_action: Any = None
    """The action that led here, zeros where `started`; a batch of the action space.
    Collectors set it for policies."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    def __len__(self) -> int:
        return len(self.slots)


class Generators(Protocol):
    """One random generator per row of a Step, each of its own episode or item.

    A generator is made when it is first used. It depends on the seed of the episode
    alone, so a row draws the same numbers whichever other rows are in the batch.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> np.random.Generator: ...

    def random(self, count: int = 1) -> NDArray[np.float64]:
        """Draw `(rows, count)` numbers from [0, 1), quicker than row by row."""

    def normal(self, count: int = 1) -> NDArray[np.float64]:
        """Draw `(rows, count)` standard normal numbers, quicker than row by row."""


@dataclass(slots=True)
class Decision:
    """What a policy chose, one row for each row of the Step."""

    action: Any
    """A batch of the action space."""
    carry: Any = None
    """The policy's memory, which it gets back with the next Step of these rows: None,
    or arrays or tensors in nested tuples, lists and dicts, with the rows as first
    axis."""
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Other values to keep of each row, by name: "log_prob", "value"."""


class Policy(Protocol):
    """Any object with an `act` method; a collector is the usual caller::

        decision = policy.act(step, carry, rng)

    Rows must not depend on each other, nor on how many there are. Two methods more are
    used where a policy has them:

        initial_carry(rows) -> carry      at the start of episodes; without it, None
        value(obs, carry) -> (rows,)      value estimates, for bootstrapping where a
                                          rollout or a truncated episode ends;
                                          `carry` is the one that came out of the act
                                          which led to `obs`

    Later steps may overwrite the arguments of `act`: copy what the policy keeps.
    """

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision: ...


class Adapter(Protocol):
    """The one interface to any env; the shard is its only caller::

        observation, info = adapter.reset(seed, options, task)
        observation, reward, terminated, truncated, info = adapter.step(action)

    Attributes are reached through the env's wrappers.
    """

    env: Any
    """The env itself, outermost wrapper first."""
    spec: EnvSpec
    stepper: Any
    """The object whose `step(action)` the shard calls: the env itself where the adapter
    adds nothing. The shard looks the method up for every step, since an env may replace
    it."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]: ...

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the method, or read the attribute, wherever in the wrappers it is."""
        found = self.get_attr(name)
        return found(*args, **kwargs) if callable(found) else found

    def get_attr(self, name: str) -> Any:
        """Read the attribute, wherever in the wrappers it is."""

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute on the layer that has it, else on the env itself."""

    def exchanged(self, env: Any) -> Adapter:
        """An adapter of the same kind for another env, which replaces this one."""

    def close(self) -> None:
        """Close the env."""
        self.env.close()


class NoTask(enum.Enum):
    """Stands for "no task", since None may be a task."""

    NO_TASK = enum.auto()


NO_TASK = NoTask.NO_TASK
