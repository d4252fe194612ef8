"""AgileRL's vector env of PettingZoo environments, on our workers.

As AgileRL has it: NaN for the reward and the end flags of an absent agent, and for its
observation if that is of floats; infos nested by agent, with masks. Attributes hold the
rest: `alive`, `final_obs`, `action_masks`, `valid`, `started`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.agilerl.values import AgileActions, outcomes, seen, without_none
from corral.api.async_calls import VectorCalls
from corral.api.gymnasium.errors import raise_env_exception
from corral.api.pettingzoo.env import open_team_pool
from corral.api.pettingzoo.step import MultiStep, by_agent
from corral.core import Factory, Step
from corral.engine.adapters.factories import one_per_slot
from corral.engine.adapters.parallel import RawActions, ReturnsAdapter
from corral.engine.adapters.pettingzoo import parallel_form
from corral.engine.adapters.team import TEAM_KEY, Team
from corral.engine.keywords import checked_keywords
from corral.engine.layout.infos import add_info
from corral.engine.pool import ApiOptions, Pool
from corral.engine.tree import mapped
from corral.errors import OptionError, SpaceMismatch, StartError, requires

with requires("this needs AgileRL ({error}): pip install agilerl"):
    from agilerl.vector.pz_vec_env import PettingZooVecEnv

_NOT_CALLED = ("reset", "step", "close", "_setattr", "_check_spaces")
_FIXED = "AgileRL restarts an episode in the step that ends it, one env per slot"
Batch = tuple[dict[Any, Any], ...]


def _adapted(env: Any) -> ReturnsAdapter:
    """Agents in turn are stepped together, too: see `TurnSteps`."""
    return ReturnsAdapter(parallel_form(env))


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One of `envs.processes`, with its share of the slots."""

    pid: int
    slots: range

    def is_alive(self) -> bool:
        """Whether the process still exists."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return True
        return False


class AsyncPettingZooVecEnv(VectorCalls, PettingZooVecEnv):  # type: ignore[misc]
    """`agilerl.vector.AsyncPettingZooVecEnv`, always in worker processes.

    As many processes as usable cores, each with its share of the slots;
    `isolation="slot"` gives every slot a process of its own.

    Args:
        env_fns: one factory per slot, of ParallelEnvs.
        copy: False to get views instead of copies.
        context: checked, but workers always start in a new interpreter.
        **options: anything else that `corral.Pool` takes.
    """

    _logs_faults = True

    @checked_keywords(
        onward=Pool, refused=dict.fromkeys(("autoreset", "batched"), _FIXED)
    )
    def __init__(
        self,
        env_fns: Sequence[Factory],
        copy: bool = True,
        context: str | None = None,
        **options: Any,
    ) -> None:
        multiprocessing.get_context(context)  # ValueError for an unknown one
        self.env_fns = env_fns
        self.copy = copy
        options.setdefault("backend", "process")
        api = ApiOptions(bare_resets=True, own_processes=True)
        fns = one_per_slot(env_fns)
        try:
            pool = open_team_pool(fns, None, _adapted, api=api, **options)
        except StartError as error:
            raise_env_exception(error)
        self.pool = pool
        self.layout = pool.layout
        self.team: Team = pool.spec.metadata[TEAM_KEY]
        metadata = {
            key: one for key, one in pool.spec.metadata.items() if key != TEAM_KEY
        }
        own = {agent: self.team.group_of(agent) for agent in self.team.agents}
        super().__init__(
            pool.num_envs,
            {agent: group.observation_space for agent, group in own.items()},
            {agent: group.action_space for agent, group in own.items()},
            list(self.team.agents),
            metadata=metadata,
            render_mode=pool.spec.render_mode,
        )
        # None where the caller runs the envs.
        self.processes = [
            WorkerProcess(worker.pid, worker.slots)
            for worker in pool.times().workers
            if worker.pid not in (None, os.getpid())
        ]
        # The last observations, by agent.
        self.observations: dict[Any, Any] = {}
        self._actions = AgileActions(self.team, self.num_envs)
        self._read: MultiStep | None = None

    # Reset ----------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[Any, Any] | None = None,
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Reset every env; slot i gets `seed + i`."""
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[Any, Any] | None = None,
    ) -> None:
        """Send the resets; `reset_wait` takes the results."""
        self._begin("reset_async")
        with self._translated():
            self.pool.send_reset(seeds=self._seeds(seed), options=options)
        self._pending = "reset"

    def reset_wait(
        self, timeout: float | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Wait for the resets that were sent."""
        read = self._noted(self._received("reset", timeout))
        self.observations = seen(self.team, read)
        return self.get_observations(), self._infos(read.step)

    # Step -----------------------------------------------------------------------------

    def step(self, actions: Any, *_: Any, **__: Any) -> Batch:
        """Step every env; an agent whose action is NaN or missing does not act."""
        self._begin("step_async")
        self._send(actions)
        return self.step_wait()

    def step_async(self, actions: Sequence[dict[Any, Any]]) -> None:
        """Send the actions, one dict per env; `step_wait` takes the results."""
        self._begin("step_async")
        with self._translated():
            self.pool.send_raw([RawActions(dict(one)) for one in actions])
        self._pending = "step"

    def _send(self, actions: dict[Any, Any]) -> None:
        """Send one batch if all actions fit their spaces, else env by env."""
        if not isinstance(actions, Mapping):
            raise SpaceMismatch(
                f"actions is {type(actions).__name__}; pass a dict of agent -> one "
                f"action for each of the {self.num_envs} envs"
            )
        acting = None if self._read is None else self._read.alive
        batch = self._actions.fitting_batch(actions, acting)
        if batch is None:
            self.step_async(self._actions.apart(actions, acting))
            return
        with self._translated():
            self.pool.send(batch)
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> Batch:
        """Wait for the steps that were sent."""
        read = self._noted(self._received("step", timeout))
        self.observations = seen(self.team, read)
        return (
            self.get_observations(),
            *outcomes(self.team, read),
            self._infos(read.step),
        )

    def get_observations(self) -> dict[Any, Any]:
        """The last observations; copies unless `copy` is False."""
        return mapped(np.copy, self.observations) if self.copy else self.observations

    def _infos(self, step: Step) -> dict[Any, Any]:
        infos: dict[Any, Any] = {}
        if step.infos:
            infos = without_none(step.infos.to_vector(self.num_envs))
        for agent in self.possible_agents:
            infos.setdefault(agent, {})
            infos[f"_{agent}"] = np.ones(self.num_envs, np.bool_)
        return infos

    def _add_info(
        self, vector_infos: dict[Any, Any], env_info: dict[Any, Any], env_num: int
    ) -> dict[Any, Any]:
        add_info(vector_infos, env_info, env_num, self.num_envs)
        return vector_infos

    # Beyond AgileRL ------------------------------------------------------------------

    @property
    def alive(self) -> dict[Any, NDArray[np.bool_]]:
        """Whether each agent is alive and acts next; `(slots,)`."""
        return self._by_agent(self._latest_read().alive)

    @property
    def final_obs(self) -> dict[Any, Any]:
        """The last observation of agents that ended in the last step.

        Zeros for all others; read it before the next step.
        """
        return self._by_agent(self._latest_read().final_obs)

    @property
    def action_masks(self) -> dict[Any, NDArray[np.bool_] | None]:
        """The valid actions of each agent; None if its actions cannot be masked."""
        return self._by_agent(self._latest_read().action_mask)

    def _by_agent(self, groups: Mapping[str, Any]) -> dict[Any, Any]:
        copies: dict[Any, Any] = mapped(np.copy, by_agent(self.team, groups))
        return copies

    def _latest_read(self) -> MultiStep:
        self._latest()
        assert self._read is not None
        return self._read

    # Calls ----------------------------------------------------------------------------

    def call_async(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Send the calls; `call_wait` takes the results."""
        if name in _NOT_CALLED:
            self._begin("call_async")
            raise OptionError(
                f"Trying to call function `{name}` with `call`, use `{name}` directly "
                "instead."
            )
        super().call_async(name, *args, **kwargs)

    # States ---------------------------------------------------------------------------

    def _noted(self, step: Step) -> MultiStep:
        """Keep the step: its living agents act next."""
        self._last = step
        # Copies are made where values are put together.
        self._read = MultiStep(self.team, step, same_step=True, copy=False)
        return self._read

    def _dropped(self, step: Step) -> None:
        self._noted(step)

    def close_extras(  # type: ignore[override]
        self, *, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """End the workers, after the pending call unless `terminate`."""
        super().close_extras(timeout, terminate)
