"""AgileRL's vector env of PettingZoo environments, on our workers.

Its words for ours: NaN for the reward and the ends of an agent that is not there, and
for its observation where that is of floats; infos nested by agent, with masks. What it
cannot tell is in attributes: `alive`, `final_obs`, `action_masks`, `valid`, `started`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.api.agilerl.actions import AgileActions
from corral.api.agilerl.processes import WorkerProcess, processes_of
from corral.api.agilerl.step_values import AgileValues, without_none
from corral.api.gymnasium.errors import (
    CallPending,
    EnvsClosed,
    NothingPending,
    raise_env_exception,
    timeout_error,
)
from corral.api.pettingzoo.make import same_team
from corral.api.pettingzoo.step import MultiStep, mapped
from corral.api.pool_attributes import PoolAttributes
from corral.core import Factory, Step
from corral.engine.adapters.factories import Maker, one_per_slot
from corral.engine.adapters.returned_agents import RawActions, returns_env
from corral.engine.adapters.team import TEAM_KEY, Team
from corral.engine.faults.report import one_error_for
from corral.engine.keywords import checked_keywords
from corral.engine.layout.infos import add_info
from corral.engine.pool import ApiOptions, Pool, PoolOptions, Question
from corral.errors import (
    CorralError,
    EnvError,
    MissingExtra,
    OptionError,
    SpaceMismatch,
    StartError,
)

try:
    from agilerl.vector.pz_async_vec_env import AsyncState
    from agilerl.vector.pz_vec_env import PettingZooVecEnv
except ImportError as error:
    raise MissingExtra(f"this needs AgileRL ({error}): pip install agilerl") from error

_NOT_CALLED = ("reset", "step", "close", "_setattr", "_check_spaces")
_FIXED = "AgileRL restarts an episode in the step that ends it, one env per slot"
Batch = tuple[dict[Any, Any], ...]


class AsyncPettingZooVecEnv(PoolAttributes, PettingZooVecEnv):  # type: ignore[misc]
    """`agilerl.vector.AsyncPettingZooVecEnv`, always in worker processes.

    As many processes as usable cores, each with its share of the slots;
    `isolation="slot"` gives every slot a process of its own.

    Args:
        env_fns: one factory per slot, of ParallelEnvs.
        copy: False to get views instead of copies.
        context: checked; workers are started clean whatever it says.
        **options: anything else that `corral.Pool` takes.
    """

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
        self.pool = pool = _opened(one_per_slot(env_fns), options)
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
        self.processes: list[WorkerProcess] = processes_of(pool)
        self.observations: dict[Any, Any] = {}
        """What was seen last, by agent."""
        self._values = AgileValues(self.team, self.num_envs)
        self._actions = AgileActions(self.team, self.num_envs)
        self._state = AsyncState.DEFAULT
        self._question: Question | None = None
        self._last: Step | None = None
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
        seeds: list[int | None] | None = None
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + slot for slot in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        with self._translated():
            self.pool.send_reset(seeds=seeds, options=options)
        self._state = AsyncState.WAITING_RESET

    def reset_wait(
        self, timeout: float | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Wait for the resets that were sent."""
        read = self._received("reset", timeout)
        self.observations = self._values.seen(read)
        return self.get_observations(), self._infos(read.step)

    # Step -----------------------------------------------------------------------------

    def step(self, actions: Any, *_: Any, **__: Any) -> Batch:
        """Step every env; an agent whose action is NaN, or not there, does not act."""
        self._begin("step_async")
        self._send(actions)
        return self.step_wait()

    def step_async(self, actions: Sequence[dict[Any, Any]]) -> None:
        """Send the actions, one dict per env; `step_wait` takes the results."""
        self._begin("step_async")
        with self._translated():
            self.pool.send_raw([RawActions(dict(one)) for one in actions])
        self._state = AsyncState.WAITING_STEP

    def _send(self, actions: dict[Any, Any]) -> None:
        """All at once where everybody acts as its space says, else env by env."""
        if not isinstance(actions, Mapping):
            raise SpaceMismatch(
                f"actions is {type(actions).__name__}; give a dict of agent -> one "
                f"action for each of the {self.num_envs} envs"
            )
        acting = None if self._read is None else self._read.alive
        batch = self._actions.batch(actions, acting)
        with self._translated():
            if batch is not None:
                self.pool.send(batch)
            else:
                each = self._actions.apart(actions, acting)
                self.pool.send_raw([RawActions(one) for one in each])
        self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> Batch:
        """Wait for the steps that were sent."""
        read = self._received("step", timeout)
        self.observations = self._values.seen(read)
        return (
            self.get_observations(),
            *self._values.outcomes(read),
            self._infos(read.step),
        )

    def get_observations(self) -> dict[Any, Any]:
        """What was seen last, in memory of the caller's own unless `copy` is False."""
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

    # What AgileRL cannot tell ---------------------------------------------------------

    @property
    def alive(self) -> dict[Any, NDArray[np.bool_]]:
        """Whether each agent is there, and will be asked to act; `(slots,)`."""
        return self._by_agent(self._latest_read().alive)

    @property
    def final_obs(self) -> dict[Any, Any]:
        """The last observation of agents whose part ended in the last step.

        Zeros for all others; to be read before the next step.
        """
        return self._by_agent(self._latest_read().final_obs)

    @property
    def action_masks(self) -> dict[Any, NDArray[np.bool_] | None]:
        """What each agent may do; None where there is nothing to choose from."""
        return self._by_agent(self._latest_read().action_mask)

    def _by_agent(self, groups: dict[Any, Any]) -> dict[Any, Any]:
        shown = {}
        for agent, (index, position) in self.team.place.items():
            batch = groups[self.team.groups[index].name]
            shown[agent] = (
                None
                if batch is None
                else mapped(lambda leaf, at=position: leaf[:, at].copy(), batch)
            )
        return shown

    def _latest_read(self) -> MultiStep:
        self._latest()
        assert self._read is not None
        return self._read

    # Calls ----------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every env."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Send the calls; `call_wait` takes the results."""
        self._begin("call_async")
        if name in _NOT_CALLED:
            raise OptionError(
                f"Trying to call function `{name}` with `call`, use `{name}` directly "
                "instead."
            )
        payload = (name, args, kwargs)
        with self._translated():
            self._question = self.pool.ask_async("call", None, lambda _: payload)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the calls that were sent."""
        self._expect("call")
        question, self._question = self._question, None
        if question is None:
            raise timeout_error("call_wait", timeout)
        with self._translated(), self._timing("call", timeout):
            return self.pool.answers(question, timeout)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every env; a method is called, as AgileRL does."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every env; a list or tuple has one value for each."""
        self._begin("set_attr")
        with self._translated():
            self.pool.set_attr(name, values)

    def render(self) -> tuple[Any, ...]:
        """Render every env."""
        return self.call("render")

    # States ---------------------------------------------------------------------------

    def _begin(self, method: str) -> None:
        """Nothing else may be under way."""
        self._assert_is_running()
        waiting = self._state.value
        if waiting != AsyncState.DEFAULT.value:
            raise CallPending(
                f"Calling `{method}` while waiting for a pending call to `{waiting}` "
                "to complete.",
                str(waiting),
            )
        if self.pool.waiting:
            # A wait that timed out left results behind; they belong to nobody.
            with self._translated():
                self._noted(self.pool.recv(copy=False))

    def _assert_is_running(self) -> None:
        if self.closed:
            raise EnvsClosed(
                f"Trying to operate on `{type(self).__name__}`, after a call to "
                "`close()`."
            )

    def _expect(self, what: str) -> None:
        """The call is waited for now, whatever comes of it."""
        self._assert_is_running()
        if self._state.value != what:
            raise NothingPending(
                f"Calling `{what}_wait` without any prior call to `{what}_async`.", what
            )
        self._state = AsyncState.DEFAULT

    def _received(self, what: str, timeout: float | None) -> MultiStep:
        self._expect(what)
        with self._translated(), self._timing(what, timeout):
            step = self.pool.recv(timeout=timeout, copy=False)
        return self._noted(step)

    def _noted(self, step: Step) -> MultiStep:
        """Who is there now acts next."""
        self._last = step
        # Copies are made where values are put together.
        self._read = MultiStep(self.team, step, same_step=True, copy=False)
        return self._read

    @contextmanager
    def _timing(self, what: str, timeout: float | None) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            if isinstance(error, CorralError):
                raise
            raise timeout_error(f"{what}_wait", timeout) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CorralError as error:
            self._raise(error)

    def _raise(self, error: CorralError) -> NoReturn:
        """The env's own exception, the last one if there are several, as AgileRL."""
        self._state = AsyncState.DEFAULT
        if error.faults:
            _announce(error)
        if len(error.faults) > 1 and isinstance(error, EnvError):
            error = one_error_for(error.faults, -1)
        raise_env_exception(error)

    # Ending ---------------------------------------------------------------------------

    def close_extras(
        self, *, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """End the workers, after what is under way unless `terminate`."""
        pending = self._state.value
        if pending != AsyncState.DEFAULT.value and not self.pool.closed:
            # AgileRL would wait for ever; here an env that hangs is ended.
            limit = self.pool.close_timeout if timeout is None else timeout
            try:
                getattr(self, f"{pending}_wait")(0 if terminate else limit)
            except multiprocessing.TimeoutError:
                terminate = True
            except Exception:
                terminate = True
        self._state = AsyncState.DEFAULT
        self.pool.close(0.0 if terminate else timeout)
        # Last of all: a warning may be an error, and must not leave workers behind.
        if pending != AsyncState.DEFAULT.value:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{pending}` to "
                "complete."
            )

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


def _opened(env_fns: Sequence[Maker], options: dict[Any, Any]) -> Pool:
    wrappers = (*options.pop("wrappers", ()), returns_env)
    options.setdefault("backend", "process")
    try:
        return Pool.with_options(
            env_fns,
            None,
            PoolOptions(wrappers=wrappers, **options),
            ApiOptions(
                bare_resets=True,
                agree=same_team,
                empty_finals=False,
                own_processes=True,
            ),
        )
    except StartError as error:
        raise_env_exception(error)


def _announce(error: CorralError) -> None:
    """AgileRL logs every error before it raises the last one."""
    # Where warnings are errors, the env's own is still the one to raise.
    with suppress(Warning):
        for fault in error.faults:
            gymnasium.logger.error(
                "Received the following error from Worker-%s - Shutting it down",
                fault.slot,
            )
            gymnasium.logger.error("%s", fault.traceback)
        gymnasium.logger.error("Raising the last exception back to the main process.")
