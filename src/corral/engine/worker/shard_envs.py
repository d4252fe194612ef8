"""The envs of a shard: built, built again after a fault, exchanged, closed.

With `isolate_rng` each slot has its own global generators, which are in place while its
env's code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

from corral.core import Adapter, EnvSpec
from corral.engine.adapters import adapt
from corral.engine.adapters.batched import BatchedEnv, BatchSlot, build_batch
from corral.engine.adapters.isolation import isolation_of
from corral.engine.worker.commands import Job
from corral.engine.worker.forked_copies import Guard, guarded
from corral.engine.worker.isolated_rng import IsolatedRng
from corral.engine.worker.profilers import stop_profilers
from corral.engine.worker.seeds import episode_generators_seed, slot_generators_seed
from corral.errors import IsolationError, SpacesDiffer

_NO_CONTEXT = nullcontext()


class ShardEnvs:
    """One env per slot.

    Args:
        job: of the worker, whose process may be ours, and which may isolate generators.
        guard: ends a forked copy of this worker; called where an env's code came back.
        lock: held while generators are in place, where threads share them.
    """

    def __init__(
        self, job: Job, guard: Guard, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.adapters: list[Adapter] = []
        # Whose `step` is called, by slot; changed in place, never another list.
        self.steppers: list[Any] = []
        self._job = job
        self._guard = guard
        self._factories: Sequence[Callable[..., Any]] = ()
        # Called with the slot whose env is built next, before there is a block.
        self.about_to_build: Callable[[int], None] = lambda slot: None
        # Envs that were closed, and not built again.
        self._closed: set[int] = set()
        self._generator_seeds: dict[int, int] = {}
        self.isolation: IsolatedRng | None = None
        if job.options.isolate_rng:
            self.isolation = IsolatedRng(self._generator_seed, lock, job.owns_process)

    def build(self, factories: Sequence[Callable[..., Any]]) -> list[EnvSpec]:
        """Build every env; an error has the `slot` it came from."""
        self._factories = factories
        for index, slot in enumerate(self._job.slots):
            self.about_to_build(slot)
            try:
                with guarded(self._guard):
                    self.adapters.append(self._built(index))
                if self._job.options.checks_sharing and len(self.adapters) == 1:
                    _check_may_share(self.adapters[0].env)
            except BaseException as error:
                with suppress(Exception):  # some exceptions take no attributes
                    error.slot = slot  # type: ignore[attr-defined]
                raise
        self.steppers[:] = map(self._stepper, range(len(self.adapters)))
        return [adapter.spec for adapter in self.adapters]

    def _built(self, index: int) -> Any:
        with self.randomness_of(self._job.slots[index]):
            env = self._factories[index]()
            try:
                return adapt(env, self._job.options.task_by)
            except BaseException:
                with suppress(Exception):  # it may still own processes and sockets
                    env.close()
                raise

    def _stepper(self, index: int) -> Any:
        """What steps the env, with the slot's own global generators if it has them."""
        stepper, isolation = self.adapters[index].stepper, self.isolation
        if isolation is None:
            return stepper
        slot = self._job.slots[index]

        def step(action: Any) -> Any:
            with isolation.of(slot):
                return stepper.step(action)

        return SimpleNamespace(step=step)

    def reset(
        self, index: int, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> Any:
        """Have a slot's env begin an episode."""
        if self.isolation is None:  # nothing to enter, after every episode
            return self.adapters[index].reset(seed, options, task)
        with self.isolation.of(self._job.slots[index]):
            return self.adapters[index].reset(seed, options, task)

    def rebuild(self, index: int) -> None:
        """Put a new env in the place of one that failed."""
        spec = self.adapters[index].spec
        if index not in self._closed:
            self._closed.add(index)
            self.leave_slots()
            # SystemExit too: it has failed already.
            with suppress(BaseException), guarded(self._guard):
                self.adapters[index].close()
        with guarded(self._guard):
            built = self._built(index)
        if self._job.owns_process:
            stop_profilers()
        _refuse_other_spaces(built, spec)
        self._install(index, built)

    def _install(self, index: int, built: Any) -> None:
        self.adapters[index] = built
        self.steppers[index] = self._stepper(index)
        self._closed.discard(index)

    def exchange(self, index: int, env: Any) -> None:
        """Let another env continue in this slot; the one before is not closed."""
        self._install(index, self.adapters[index].exchanged(env))

    def close(self) -> Iterator[tuple[int, BaseException]]:
        """Close every env, whatever the others do; yields the errors."""
        self._guard()
        for index, adapter in enumerate(self.adapters):
            if index in self._closed:
                continue
            try:
                with guarded(self._guard):
                    adapter.close()
            except BaseException as error:
                yield index, error
        self.adapters.clear()

    # Global generators ----------------------------------------------------------------

    def randomness_of(self, slot: int) -> AbstractContextManager[Any]:
        """The slot's own global generators, where they were asked for."""
        return self.isolation.of(slot) if self.isolation else _NO_CONTEXT

    def leave_slots(self) -> None:
        """Put the outside generators in place, also between two slots in a row."""
        if self.isolation is not None:
            self.isolation.restore_outside()

    def reseed(self, slot: int, seed: int | None) -> None:
        """Give an episode global generators that depend on its seed alone.

        Else it could not be replayed from its seed, task and actions.
        """
        if self.isolation is not None and seed is not None:
            self._generator_seeds[slot] = episode_generators_seed(seed)
            self.isolation.forget(slot)

    def _generator_seed(self, slot: int) -> int:
        unseeded = slot_generators_seed(self._job.options.root_seed, slot)
        return self._generator_seeds.get(slot, unseeded)


class BatchEnvs(ShardEnvs):
    """One vector of environments; the adapter of a slot is its part of that."""

    batch: BatchedEnv

    def build(self, factories: Sequence[Callable[..., Any]]) -> list[EnvSpec]:
        """Build the one env; the factory is the same for every slot."""
        self._factories = factories
        self._install(0, self._built(0))
        self._guard()
        return [adapter.spec for adapter in self.adapters]

    def _built(self, index: int) -> BatchedEnv:
        return build_batch(self._factories[0], self._job.slots)

    def _install(self, index: int, built: BatchedEnv) -> None:
        self.batch = built
        self.adapters[:] = [BatchSlot(built, i) for i in range(len(self._job.slots))]
        self._closed.clear()


def _check_may_share(env: Any) -> None:
    """Refuse a second env in this process, where the first must be alone in it."""
    verdict = isolation_of(env)
    if verdict is not None and verdict.isolation == "slot":
        raise IsolationError(
            f"{verdict.subject} must be alone in its process: {verdict.reason}\n"
            "Next steps:\n"
            '  give each env a process: isolation="slot", backend="process"\n'
            '  share anyway: isolation="shared"'
        )


def _refuse_other_spaces(built: Any, spec: EnvSpec) -> None:
    """Refuse, and close, what was built again and has other spaces than before."""
    for name in ("observation_space", "action_space"):
        ours, theirs = getattr(built.spec, name), getattr(spec, name)
        if ours is not theirs and ours != theirs:  # 70 µs to compare two Boxes
            with suppress(BaseException):  # the error below says more
                built.close()
            raise SpacesDiffer(
                f"after a restart the env has another {name}: {ours}, before {theirs}"
            )
