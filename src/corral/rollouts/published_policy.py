"""The caller's policy, published for its copies in the workers.

A policy with `load_weights` is pickled once; after that only its weights travel, when
they have changed. Any other policy is pickled before every rollout, and travels again
if it has changed. With a factory, each worker makes its copy, and only weights travel.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from corral.core import Policy, has_weights
from corral.engine.transport.segment import Segment, SegmentAddress, open_segment
from corral.engine.transport.weights import PublishedWeights, SharedWeights, weights_of
from corral.engine.worker.context import here
from corral.engine.worker.serialization import Found, importable, pack
from corral.errors import OptionError
from corral.rollouts.normalise import ObsNorm

# Where a policy can act.
ACT_IN = ("caller", "workers")
_POLICY = "policy"
# Makes a policy, in a worker.
PolicyFactory = Callable[[], Policy]


class PackedPolicy(NamedTuple):
    """A pickled policy; workers read it once, from shared memory.

    Attributes:
        number: Tells it from other policies.
        edition: Tells it from the same policy before it changed.
        data: The policy itself, if no memory is shared.
        is_factory: It makes the policy.
    """

    number: int
    edition: int
    address: SegmentAddress | None
    data: bytes
    is_factory: bool = False

    def open(self) -> Any:
        """Make a copy of the policy, on the device of this worker if it has one.

        Raises:
            OptionError: the policy cannot use the device, or the factory makes none.
        """
        data = self.data or open_segment(self.address)[_POLICY].tobytes()
        policy = pickle.loads(data)
        if self.is_factory:
            policy = policy()
            if isinstance(policy, type):
                name = policy.__qualname__
                raise OptionError(
                    f"policy_factory returned the class {name}; return an object: "
                    f"{name}()"
                )
            if not callable(getattr(policy, "act", None)):
                raise OptionError(
                    f"policy_factory returned {policy!r:.80}, which has no method act; "
                    "return a policy as corral.Policy describes it"
                )
        device = None if here.context is None else here.context.device
        if device is None or not callable(getattr(policy, "on", None)):
            return policy
        try:
            return policy.on(device)
        except Exception as error:
            raise OptionError(
                f"the policy cannot act on this worker's device {device!r} ({error}); "
                "change devices= of the pool"
            ) from error


def in_segment(packed: PackedPolicy, shared: bool = True) -> tuple[PackedPolicy, Any]:
    """The policy where workers of this process can read it, and its memory."""
    data = packed.data
    segment = Segment({_POLICY: ((len(data),), np.uint8)}, shared)
    segment.lend()[_POLICY][:] = np.frombuffer(data, np.uint8)
    address = segment.address
    return packed._replace(address=address, data=b"" if address else data), segment


class Orders(NamedTuple):
    """How a copy of the policy has to act from now on.

    Attributes:
        weights: None for a policy that has none.
        norm: The clip of an ObsNorm, and its state; None without one.
    """

    policy: PackedPolicy
    weights: PublishedWeights | None = None
    norm: tuple[float, dict[str, Any]] | None = None


def check_factory(factory: PolicyFactory | None, act_in: str) -> None:
    """Refuse a factory that makes nothing, or that has nowhere to make it."""
    if factory is None:
        return
    if act_in != "workers":
        raise OptionError(
            f"policy_factory makes copies of the policy in workers, and act_in is "
            f'{act_in!r}; add act_in="workers" or leave policy_factory out'
        )
    if not callable(factory):
        raise OptionError(
            f"policy_factory is {factory!r:.80}; it must be a function without "
            "arguments that returns a policy"
        )


def check_loads(made: Any) -> None:
    """Refuse a copy from a factory that would stay as it was made."""
    if not has_weights(made):
        kind = type(made).__qualname__
        raise OptionError(
            f"policy_factory returned a policy of type {kind}, which has no method "
            "load_weights, but the caller's policy has: the weights of this copy would "
            "stay as they were made; let the factory make a policy of the same type"
        )


class PublishedPolicy:
    """A policy and the versions of its weights.

    Args:
        policy: may change, and be replaced.
        shared: with workers; otherwise versions are only counted.
        factory: makes a copy of the policy in a worker (default: it is pickled).
        travels: to other machines, which can import these modules; then the orders
            have everything in them.
    """

    def __init__(
        self,
        policy: Policy,
        shared: bool,
        factory: PolicyFactory | None = None,
        travels: Found | None = None,
    ) -> None:
        self.policy = policy
        self.factory = factory
        self._shared, self._is_packed = shared, shared or travels is not None
        self._found = travels or importable
        self._number = self._edition = 0
        self._packed: tuple[PackedPolicy, Segment] | None = None
        self._data = b""
        self._weights = SharedWeights(shared=shared)

    def follow(self, policy: Policy, factory: PolicyFactory | None = None) -> None:
        """Publish another policy from now on."""
        self.policy, self.factory = policy, factory
        self._number += 1
        self._packed = None
        self._weights = SharedWeights(self._weights.version, self._shared)

    def publish(self) -> int:
        """Publish the policy as it is; returns the version of its weights.

        It is the number of different weights so far; 0 if the policy cannot load any.

        Raises:
            FactoryError: the policy cannot be pickled.
        """
        policy = self.policy
        loads = has_weights(policy)
        once = loads or self.factory is not None
        if self._is_packed and (self._packed is None or not once):
            self._pack()
        return self._weights.publish(weights_of(policy)) if loads else 0

    def _pack(self) -> None:
        """Pickle the policy, and put it where workers can read it."""
        policy: Any = self.policy
        if self.factory is not None:
            data = self._pickled(self.factory, "policy_factory")
        else:
            movable = callable(getattr(policy, "on", None))
            data = self._pickled(policy.on("cpu") if movable else policy, "the policy")
        if self._packed is not None and data == self._data:
            return
        self._data = data
        self._edition += 1
        made = self.factory is not None
        packed = PackedPolicy(self._number, self._edition, None, data, made)
        self._packed = in_segment(packed, self._shared)

    def _pickled(self, value: Any, what: str) -> bytes:
        return pack(value, what, self._found)

    def orders(self, norm: ObsNorm | None) -> Orders:
        """Tell copies how to act: like the policy when it was published last."""
        assert self._packed is not None, "publish comes first"
        weights = self._weights.published() if has_weights(self.policy) else None
        state = None if norm is None else (norm.clip, norm.state_dict())
        return Orders(self._packed[0], weights, state)
