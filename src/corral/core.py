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
# Makes an env. Called without arguments; for a batched env, with `num_envs`.
Factory = Callable[..., Any]


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

    Attributes:
        started: True where `obs` is the first observation of an episode.
        valid: False for padding rows: a next-step reset, or a fault.
        final_obs: The last observation of the episode; meaningful only where it ended.
            There is one row of it: as a view it lives until the slot is sent to again.
        episode_length: Of the episode that `reward` belongs to, this step included.
        seed: The seed of the episode that `obs` belongs to, -1 where none was given.
        final_infos: (same_step) Position in the batch -> the info that came with the
            end of an episode; under next_step and off that info is in `infos`.
        previous_action: The action that led here, zeros where `started`; a batch of the
            action space. Collectors set it for policies.
    """

    slots: NDArray[np.intp]
    obs: Any
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    started: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    final_obs: Any
    episode_return: NDArray[np.float64]
    episode_length: NDArray[np.int32]
    seed: NDArray[np.int64]
    infos: InfoBatch
    final_infos: dict[int, dict[str, Any]]
    previous_action: Any = None

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
    """What a policy chose, one row for each row of the Step.

    Attributes:
        action: A batch of the action space.
        carry: The policy's memory, which it gets back with the next Step of these rows:
            None, or arrays or tensors in nested tuples, lists and dicts, with the rows
            as first axis.
        extras: Other values to keep of each row, by name: "log_prob", "value".
    """

    action: Any
    carry: Any = None
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)


class Policy(Protocol):
    """Any object with an `act` method; a collector is the usual caller::

        decision = policy.act(step, carry, rng)

    Rows must not depend on each other, nor on how many there are. More methods are used
    where a policy has them:

        initial_carry(rows) -> carry      at the start of episodes; without it, None
        value(obs, carry) -> (rows,)      value estimates, for bootstrapping where a
                                          rollout or a truncated episode ends;
                                          `carry` is the one that came out of the act
                                          which led to `obs`
        weights() -> {name: array}        all that learning changes, for copies that act
        load_weights(weights)             in workers (`act_in="workers"`); without these
                                          two, a policy that has changed is pickled
        on(device) -> policy              a copy on that device, for a worker; without
                                          it, the policy is pickled as it is
        in_turns(rows) -> policy or None  decides alike for so many rows in each of many
                                          turns, while no weight changes, and may leave
                                          out extras; its `late_extras(obs)` returns
                                          those of all turns, `(turns, rows, ...)`

    Later steps may overwrite the arguments of `act`: copy what the policy keeps.
    """

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision: ...


def has_weights(policy: Policy) -> bool:
    """Whether a policy's copies can load its weights."""
    # Not by `weights`: the name of many policies' own array.
    return hasattr(policy, "load_weights")


class Adapter(Protocol):
    """The one interface to any env; the shard is its only caller::

        observation, info = adapter.reset(seed, options, task)
        observation, reward, terminated, truncated, info = adapter.step(action)

    Attributes are reached through the env's wrappers.

    Attributes:
        env: The env itself, outermost wrapper first.
        stepper: The object whose `step(action)` the shard calls: the env itself where
            the adapter adds nothing. The shard looks the method up for every step,
            since an env may replace it.
    """

    env: Any
    spec: EnvSpec
    stepper: Any

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
