"""The page to read first: the values that travel and the seams they cross.

A **pool** sends actions to **slots** and receives a **Step**; an **executor** moves
those commands to **workers**; a worker's **shard** drives one **Adapter** per slot::

    pool.send(actions)                    # rows of the block, one ring per worker
    step = pool.recv()                    # what arrived together

A Step is about one moment: `obs`, and the reward, flags and final observation of the
transition that led to it. `started` speaks of `obs`.

A **Policy** turns a Step into a **Decision**; what it remembers between the two travels
beside them, as its **carry**::

    decision = policy.act(step, carry, rng)
    pool.send(decision.action)
    step, carry = pool.recv(), decision.carry
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

Autoreset = Literal["next_step", "same_step", "off"]
Factory = Callable[..., Any]
"""What makes an env: called with nothing; of a batched one, with `num_envs`."""


class InfoBatch(Protocol):
    """The infos of one Step, in whichever form the caller wants."""

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
    """False where the row is filler: a next-step reset, or a fault."""
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
    Set by whoever asks a policy, for the policy."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    def __len__(self) -> int:
        return len(self.slots)


class Generators(Protocol):
    """One random generator per row of a Step, each of its own episode or item.

    A generator is made when it is first asked for; it depends on the seed of the
    episode alone, so what a row draws is the same whoever else is in the batch.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> np.random.Generator: ...

    def random(self, count: int = 1) -> NDArray[np.float64]:
        """Draw `(rows, count)` numbers from [0, 1), quicker than row by row."""

    def normal(self, count: int = 1) -> NDArray[np.float64]:
        """Draw `(rows, count)` standard normal numbers, quicker than row by row."""


@dataclass(slots=True)
class Decision:
    """What a policy chose, one row for each row of the Step it was asked about."""

    action: Any
    """A batch of the action space."""
    carry: Any = None
    """What the policy is given back with the next Step of these rows: None, or arrays
    or tensors in nested tuples, lists and dicts, with the rows as first axis."""
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    """What else to keep of each row, by name: "log_prob", "value"."""


class Policy(Protocol):
    """Whoever decides; a collector is the usual caller::

        decision = policy.act(step, carry, rng)

    Rows must not depend on each other, nor on how many there are. Two methods more are
    used where a policy has them:

        initial_carry(rows) -> carry      at the start of episodes; without it, None
        value(obs, carry) -> (rows,)      what is to be expected from here, where a
                                          rollout or a truncated episode breaks off;
                                          `carry` is the one that came out of the act
                                          which led to `obs`

    What `act` is given may be overwritten by later steps: copy what is kept.
    """

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision: ...


class Adapter(Protocol):
    """Any env seen as one contract; the shard is its only caller::

        observation, info = adapter.reset(seed, options, task)
        observation, reward, terminated, truncated, info = adapter.step(action)

    Attributes are reached through whatever wraps the env.
    """

    env: Any
    """The env itself, outermost wrapper first."""
    spec: EnvSpec
    stepper: Any
    """Whose `step(action)` is the adapter's: the env, where nothing is to be added.
    The shard looks the method up for every step, since an env may exchange it."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]: ...

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any: ...

    def get_attr(self, name: str) -> Any: ...

    def set_attr(self, name: str, value: Any) -> None: ...

    def exchanged(self, env: Any) -> Adapter:
        """An adapter of the same kind for another env, which takes this one's place."""

    def close(self) -> None: ...


class NoTask(enum.Enum):
    """Stands where no task was given, since None may well be one."""

    NO_TASK = enum.auto()


NO_TASK = NoTask.NO_TASK
