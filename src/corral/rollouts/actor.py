"""An actor calls a policy, and keeps its state between the calls.

By slot: the carry, the generator of the episode, and the last action. All three are
reset where an episode starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Generators, Policy, Step
from corral.engine.layout.plan import ANSWERING, DECIDING
from corral.errors import OptionError
from corral.rollouts import carry as carries
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.policy_rng import RowGenerators, SlotGenerators
from corral.rollouts.space_rows import SpaceParts, widened


class Actor:
    """A policy and its state for each of `slots` slots.

        actor.start(slots, seeds)               where episodes start
        seen, decision = actor.act(step)        for the slots of the step
        actor.acted(slots, arrays)              the actions that they were sent

    It never writes to arrays that the policy or a rollout owns.
    """

    def __init__(
        self,
        policy: Policy,
        action: SpaceParts,
        slots: int,
        norm: ObsNorm | None,
        copies: Sequence[int] | None = None,
        first_number: int = 0,
        mark: Callable[[int], None] | None = None,
    ) -> None:
        self.norm = norm
        self._slots = slots
        # Beside the envs: tells the pool, which has a deadline for decisions.
        self._mark = mark
        # The slots as the policy sees them: beside the envs, those of the whole pool.
        self._numbers = first_number + np.arange(slots)
        self._space = action
        # The last action of each slot, part by part; zeros before the first.
        self._last = [
            np.zeros((slots, *part.shape), part.dtype) for part in action.parts
        ]
        self._last_is_ours = True
        self._generators = SlotGenerators(slots, copies)
        self._all_slots = RowGenerators(self._generators, np.arange(slots))
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Use another policy from now on, with its initial carry."""
        self.policy = policy
        self.refresh(None)

    def refresh(self, started: NDArray[np.bool_] | None) -> None:
        """Ask for the initial carry again: the policy may have learned a new one.

        It replaces the carry of the slots that have just started; None for all slots.
        """
        self._initial: Any = None
        initial = getattr(self.policy, "initial_carry", None)
        if initial is not None:
            self._initial = initial(self._slots)
            carries.check_rows(self._initial, self._slots)
        if started is None:
            # Of all slots.
            self.carry: Any = self._initial
            # False while the array may be the policy's own: copy it before writing.
            self._carry_is_ours = False
        elif self.carry is not None and started.any():
            self._reset_carry(np.flatnonzero(started).tolist())

    # Episodes -------------------------------------------------------------------------

    def start(self, slots: Sequence[int], seeds: Sequence[int]) -> None:
        """Episodes with these seeds start in these slots."""
        self._generators.start(slots, seeds)
        self.own_last()
        for array in self._last:
            nothing = None if array.dtype == object else 0
            for slot in slots:  # usually one, and quicker than a list of one
                array[slot] = nothing
        if self.carry is not None:
            self._reset_carry(slots)

    def _reset_carry(self, slots: Sequence[int]) -> None:
        self._own_carry()
        carries.write_rows(self.carry, slots, carries.rows_of(self._initial, slots))

    def own_last(self) -> None:
        """Copy the last actions if they are views of a rollout."""
        if not self._last_is_ours:
            self._last = [array.copy() for array in self._last]
            self._last_is_ours = True

    def _own_carry(self) -> None:
        if not self._carry_is_ours:
            self.carry = carries.copied(self.carry)
            self._carry_is_ours = True

    # Acting ---------------------------------------------------------------------------

    def in_turns(self) -> Any:
        """The policy for many decisions of all slots, if it has one; see `Policy`.

        Its class is asked: an object that forwards other names to a policy may decide
        otherwise.
        """
        found = getattr(type(self.policy), "in_turns", None)
        return None if found is None else found(self.policy, self._slots)

    def act(self, step: Step, by: Policy | None = None) -> tuple[Step, Decision]:
        """Return the step as the policy saw it, and its decision.

        Args:
            step: to act in.
            by: decides in the policy's place; see `in_turns`.
        """
        if len(step.slots) != self._slots:
            return self._act_for_some(step)
        seen = step
        if self.norm is not None:
            seen = replace(step, obs=self.norm(step.obs))
        last, space = self._last, self._space
        seen.previous_action = last[0] if space.plain else space.batch(last)
        policy = self.policy if by is None else by
        slots, seen.slots = seen.slots, self._numbers
        act = policy.act if self._mark is None else partial(self._marked, policy)
        decision = act(seen, self.carry, self._all_slots)
        seen.slots = slots
        if decision.carry is not None or self.carry is not None:
            self._check_carry(decision.carry, self._slots)
            self.carry, self._carry_is_ours = decision.carry, False
        return seen, decision

    def _act_for_some(self, step: Step) -> tuple[Step, Decision]:
        slots, rows = step.slots, step.slots.tolist()
        seen = step
        if self.norm is not None:
            seen = replace(step, obs=self.norm(step.obs))
        last = [array[slots] for array in self._last]
        seen.previous_action = self._space.batch(last)
        carry, policy = self.carry_of(rows), self.policy
        rng = RowGenerators(self._generators, slots)
        seen.slots = self._numbers[slots]
        act = policy.act if self._mark is None else partial(self._marked, policy)
        decision = act(seen, carry, rng)
        seen.slots = slots
        if decision.carry is not None or carry is not None:
            self._check_carry(decision.carry, len(rows))
            self._own_carry()
            carries.write_rows(self.carry, rows, decision.carry)
        return seen, decision

    def _marked(self, policy: Policy, *arguments: Any) -> Decision:
        assert self._mark is not None
        self._mark(DECIDING)
        decision = policy.act(*arguments)
        self._mark(ANSWERING)
        return decision

    def acted(self, slots: NDArray[np.intp] | None, arrays: list[NDArray[Any]]) -> None:
        """Keep the actions that were sent to these slots, or to all, part by part.

        Actions of all slots are kept as views, and copied only when necessary.
        """
        if slots is None:
            self._last, self._last_is_ours = arrays, False
            return
        self.own_last()
        for place, values in enumerate(arrays):
            self._last[place] = last = widened(self._last[place], values.dtype)
            last[slots] = values

    def _check_carry(self, carry: Any, rows: int) -> None:
        if self._initial is None:
            raise OptionError(
                "the policy returned a carry in its Decision but has no "
                "initial_carry(rows) method; add one that returns the carry at the "
                "start of an episode"
            )
        if carry is None:
            raise OptionError(
                "the policy received a carry but its Decision has none; return the "
                "carry in the Decision, changed or not"
            )
        carries.check_rows(carry, rows)

    # The carry ------------------------------------------------------------------------

    def carry_of(self, slots: Sequence[int]) -> Any:
        """A copy of the carry of some slots."""
        return None if self.carry is None else carries.rows_of(self.carry, slots)

    def copied_carry(self) -> Any:
        """A copy of the carry of all slots."""
        return None if self.carry is None else carries.copied(self.carry)


class ForwardingPolicy:
    """A policy that decides as another one does; base of those that do more."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Decide as the other policy does."""
        decision: Decision = self._policy.act(step, carry, rng)
        return decision

    def initial_carry(self, rows: int) -> Any:
        """As the other policy's, if it has one."""
        initial = getattr(self._policy, "initial_carry", None)
        return None if initial is None else initial(rows)


def values_of(policy: Policy, obs: Any, carry: Any, rows: int) -> NDArray[np.float64]:
    """The policy's values of observations, which are normalised already.

    One number each, or as many as the policy's `value_shape` says.
    """
    expected = (rows, *getattr(policy, "value_shape", ()))
    value_of = getattr(policy, "value", None)
    if value_of is None:
        return np.zeros(expected)
    value = np.asarray(value_of(obs, carry), np.float64)
    if value.shape != expected:
        raise OptionError(
            f"policy.value returned shape {value.shape} for {rows} observations; "
            f"expected {expected}"
        )
    return value


def check_policy(policy: Any, factory: Any = None) -> None:
    """Raise OptionError if this is no policy; None is enough beside a factory."""
    if policy is None and factory is not None:
        return
    if isinstance(policy, type):
        name = policy.__qualname__
        raise OptionError(f"policy is the class {name}; pass an object: {name}()")
    if not callable(getattr(policy, "act", None)):
        raise OptionError(
            f"policy is {policy!r:.80}; pass an object with a method "
            "act(step, carry, rng), see corral.Policy"
        )


def check_pool(thing: Any) -> None:
    """Raise OptionError if this is not a pool, and say what to pass."""
    if hasattr(thing, "send_reset") and hasattr(thing, "recv"):
        return
    if hasattr(thing, "run_items"):  # sites elsewhere
        return
    own = "its own, envs.pool, or " if hasattr(thing, "pool") else ""
    env = repr(thing) if isinstance(thing, str) else "env"
    raise OptionError(
        f"pool is {thing!r:.80}; pass a pool: {own}corral.Pool({env}, num_envs=8)"
    )
