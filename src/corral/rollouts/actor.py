"""An actor asks a policy about slots, and keeps what the policy needs in between.

By slot: the carry, the generator of its episode, and the action it was sent last. All
three are begun anew where an episode starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Policy, Step
from corral.errors import OptionError
from corral.rollouts import carry as carries
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.policy_rng import RowGenerators, SlotGenerators
from corral.rollouts.space_rows import SpaceParts


class Actor:
    """A policy and its memory of `slots` slots.

        actor.start(slots, seeds)               where episodes start
        seen, decision = actor.act(step)        for the slots of the step
        actor.acted(slots, arrays)              what was sent to them

    Memory that others gave is not written to.
    """

    def __init__(
        self, policy: Policy, action: SpaceParts, slots: int, norm: ObsNorm | None
    ) -> None:
        self.norm = norm
        self._slots = slots
        self._space = action
        self._last = [
            np.zeros((slots, *part.shape), part.dtype) for part in action.parts
        ]
        """What each slot was sent last, part by part; zeros before that."""
        self._last_is_ours = True
        self._generators = SlotGenerators(slots)
        self._everybody = RowGenerators(self._generators, np.arange(slots))
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Ask this policy from now on; one that is new remembers nothing."""
        self.policy = policy
        self._ask_initial()
        self.carry: Any = self._initial
        """Of all slots; before a slot's first episode, what it is to start with."""
        self._carry_is_ours = False
        """Whether we may write to it; else it is the policy's."""

    def refresh(self, started: NDArray[np.bool_]) -> None:
        """Ask for the initial carry again: it may be among what the policy learns."""
        self._ask_initial()
        slots = np.flatnonzero(started).tolist()
        if slots and self.carry is not None:
            self._remember_nothing(slots)

    def _ask_initial(self) -> None:
        self._initial: Any = None
        initial = getattr(self.policy, "initial_carry", None)
        if initial is not None:
            self._initial = initial(self._slots)
            carries.check_rows(self._initial, self._slots)

    # Episodes -------------------------------------------------------------------------

    def start(self, slots: Sequence[int], seeds: Sequence[int]) -> None:
        """Episodes with these seeds start in these slots."""
        self._generators.start(slots, seeds)
        self.own_last()
        for array in self._last:
            nothing = None if array.dtype == object else 0
            for slot in slots:  # quicker than a list of them, as a rule of one
                array[slot] = nothing
        if self.carry is not None:
            self._remember_nothing(slots)

    def _remember_nothing(self, slots: Sequence[int]) -> None:
        self._own_carry()
        carries.write_rows(self.carry, slots, carries.rows_of(self._initial, slots))

    def own_last(self) -> None:
        """Copy the last actions, if they are in the memory of a rollout."""
        if not self._last_is_ours:
            self._last = [array.copy() for array in self._last]
            self._last_is_ours = True

    def _own_carry(self) -> None:
        if not self._carry_is_ours:
            self.carry = carries.copied(self.carry)
            self._carry_is_ours = True

    # Acting ---------------------------------------------------------------------------

    def act(self, step: Step) -> tuple[Step, Decision]:
        """What the policy was shown, and what it decided."""
        if len(step.slots) != self._slots:
            return self._act_for_some(step)
        seen = step
        if self.norm is not None:
            seen = replace(step, obs=self.norm(step.obs))
        seen.previous_action = self._space.batch(self._last)
        decision = self.policy.act(seen, self.carry, self._everybody)
        if decision.carry is not None or self.carry is not None:
            self._check_carry(decision.carry, self._slots)
            self.carry, self._carry_is_ours = decision.carry, False
        return seen, decision

    def _act_for_some(self, step: Step) -> tuple[Step, Decision]:
        slots, rows = step.slots, step.slots.tolist()
        obs = step.obs if self.norm is None else self.norm(step.obs)
        last = self._space.batch([array[slots] for array in self._last])
        seen = replace(step, obs=obs, previous_action=last)
        carry = self.carry_of(rows)
        rng = RowGenerators(self._generators, slots)
        decision = self.policy.act(seen, carry, rng)
        if decision.carry is not None or carry is not None:
            self._check_carry(decision.carry, len(rows))
            self._own_carry()
            carries.write_rows(self.carry, rows, decision.carry)
        return seen, decision

    def acted(self, slots: NDArray[np.intp] | None, arrays: list[NDArray[Any]]) -> None:
        """What was sent to these slots, or to all, part by part.

        What was sent to all is copied only when it has to be.
        """
        if slots is None:
            self._last, self._last_is_ours = arrays, False
            return
        self.own_last()
        for place, values in enumerate(arrays):
            last = self._last[place]
            if last.dtype != values.dtype:
                last = last.astype(np.promote_types(last.dtype, values.dtype))
                self._last[place] = last
            last[slots] = values

    def _check_carry(self, carry: Any, rows: int) -> None:
        if self._initial is None:
            raise OptionError(
                "the policy decided with a carry but has no initial_carry(rows), which "
                "says what an episode starts with"
            )
        if carry is None:
            raise OptionError(
                "the policy was given a carry and returned none; put it into the "
                "Decision, changed or not"
            )
        carries.check_rows(carry, rows)

    # Values ---------------------------------------------------------------------------

    def carry_of(self, slots: Sequence[int]) -> Any:
        """A copy of some slots' carry."""
        return None if self.carry is None else carries.rows_of(self.carry, slots)

    def copied_carry(self) -> Any:
        """A copy of all slots' carry."""
        return None if self.carry is None else carries.copied(self.carry)

    def value(self, obs: Any, carry: Any, rows: int) -> NDArray[np.float64]:
        """What the policy expects of these observations, which it is shown scaled."""
        expects = getattr(self.policy, "value", None)
        if expects is None:
            return np.zeros(rows)
        value = np.asarray(expects(obs, carry), np.float64)
        if value.shape != (rows,):
            raise OptionError(
                f"policy.value returned shape {value.shape} for {rows} observations; "
                f"expected ({rows},)"
            )
        return value
