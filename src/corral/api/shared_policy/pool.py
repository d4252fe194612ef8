"""A pool whose slots are agents: for one policy that all of them share.

Vector envs and collectors use it like any pool; beneath it is a pool of envs. Rows of
one env step together, so a subset of rows must consist of whole envs.

Row i is agent `i % agents` of env `i // agents`, in the env's order of agents. A row's
episode starts when its agent appears and ends when the agent ends. While an agent is
absent its rows are padding: zeros, not valid, the action ignored. Every padding row is
`started`, so that neither a carry nor a return crosses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pettingzoo.step import MultiStep
from corral.api.pool_env import PoolOwner
from corral.api.shared_policy.policy import SharedPolicy
from corral.api.shared_policy.spaces import shared_spaces
from corral.core import Step
from corral.engine.adapters.team import TEAM_KEY, Team
from corral.engine.layout.infos import Infos
from corral.engine.pool import Pool
from corral.engine.worker.seeds import agent_seed
from corral.errors import OptionError

Rows = Sequence[int] | NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]


class SharedPool(PoolOwner):
    """Every agent of every env of a pool as a slot.

    Args:
        pool: of envs whose agents act at once, with autoreset "same_step".
        pad: whether to give agents with different spaces the widest of them.
    """

    def __init__(self, pool: Pool, pad: bool = False) -> None:
        team: Team = pool.spec.metadata[TEAM_KEY]
        if team.turns:
            raise OptionError(
                "the agents of this env act in turn, so they have no common step; pass "
                "parallel=True if the env allows it, or use corral.make_multi"
            )
        if pool.autoreset != "same_step":
            raise OptionError(
                f"the pool has autoreset={pool.autoreset!r}; agents of one env restart "
                'together, which needs autoreset="same_step"'
            )
        self.pool = pool
        self.team = team
        self.agents = len(team.agents)
        self.num_envs = pool.num_envs * self.agents
        self._spaces = shared_spaces(team, pad)
        self._pad = pad
        shape = pool.num_envs, self.agents
        self._alive = np.zeros(shape, np.bool_)
        self._return = np.zeros(shape)
        self._length = np.zeros(shape, np.int32)
        self._seed = np.full(shape, -1, np.int64)
        # The last Step, if it had all envs; otherwise the masks after it, if known.
        self._multi: MultiStep | None = None
        self._masks: Bools | None = None
        self.spec = replace(
            pool.spec,
            observation_space=self._spaces.observation_space,
            action_space=self._spaces.action_space,
        )
        # The last Step of the pool of envs.
        self.last: Step | None = None

    def __getattr__(self, name: str) -> Any:
        # Seeds, layout, stats and so on are those of the pool of envs.
        if name == "pool":
            raise AttributeError(name)
        return getattr(self.pool, name)

    @property
    def shards(self) -> tuple[range, ...]:
        """The rows that each worker runs."""
        each = self.agents
        return tuple(
            range(shard.start * each, shard.stop * each) for shard in self.pool.shards
        )

    @property
    def wrapper(self) -> Callable[[Pool], SharedPool]:
        """Wraps a pool of some of these envs in the same way, for a site."""
        return functools.partial(SharedPool, pad=self._pad)

    @property
    def repeat(self) -> int:
        """Neighbouring rows that have one seed: those of an env, or of a group."""
        return self.pool.repeat * self.agents

    @property
    def copies(self) -> list[int]:
        """The place of each row's env in its group of equal episodes."""
        return [copy for copy in self.pool.copies for _ in range(self.agents)]

    @property
    def waiting(self) -> int:
        """The number of rows with a pending command."""
        return self.pool.waiting * self.agents

    @property
    def action_masks(self) -> NDArray[np.bool_] | None:
        """The valid actions of each row; None if actions are not Discrete."""
        if self._multi is None:
            return self._masks
        return self._spaces.masks(self._multi.action_mask, self.pool.num_envs)

    def for_envs(self, policy: Any) -> SharedPolicy:
        """Convert a policy of agents to one of envs, for a pool of envs::

        envs = corral.make_multi(make_env, num_envs=4)
        corral.evaluate(shared.for_envs(policy), envs.pool, episodes=100)
        """
        return SharedPolicy(policy, self.team, self._spaces)

    # Sending --------------------------------------------------------------------------

    def send_reset(
        self,
        slots: Rows | None = None,
        *,
        seed: int | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Any = None,
        tasks: Sequence[Any] | None = None,
    ) -> None:
        """As `Pool.send_reset`; all rows of one env need the same values."""
        listed = options is not None and not isinstance(options, dict)
        self.pool.send_reset(
            self._envs(slots),
            seed=seed,
            seeds=self._once(seeds, "seeds"),
            options=self._once(options, "options") if listed else options,
            tasks=self._once(tasks, "tasks"),
        )

    def _once(self, values: Sequence[Any] | None, name: str) -> list[Any] | None:
        """Values of rows as values of envs."""
        if values is None:
            return None
        each = self.agents
        for first in range(0, len(values), each):
            if any(one != values[first] for one in values[first : first + each]):
                raise OptionError(
                    f"{name} has different values for the agents of env "
                    f"{first // each}, which start together. To run episodes or "
                    "evaluate, use whole envs: corral.evaluate(shared.for_envs(policy)"
                    ", corral.make_multi(...).pool)"
                )
        return list(values[::each])

    def send(
        self, actions: Any, slots: Rows | None = None, *, autoreset: Any = None
    ) -> None:
        """Step these rows, or all."""
        envs = self._envs(slots)
        count = self.pool.num_envs if envs is None else len(envs)
        batch = self._spaces.actions(actions, count)
        self.pool.send(batch, envs, autoreset=autoreset)

    def _envs(self, rows: Rows | None) -> NDArray[np.intp] | None:
        """The envs of these rows, which must be all rows of each, in order."""
        if rows is None:
            return None
        given = np.asarray(rows, np.intp)
        envs = given[:: self.agents] // self.agents
        whole = envs[:, None] * self.agents + np.arange(self.agents)
        if not np.array_equal(whole.ravel(), given):
            raise OptionError(
                f"slots {given.tolist()} are not whole envs: each has {self.agents} "
                f"agents, which step together as rows {list(range(self.agents))}, "
                f"{list(range(self.agents, 2 * self.agents))} and so on"
            )
        return envs

    # Receiving ------------------------------------------------------------------------

    def recv(
        self,
        min_slots: int | None = None,
        max_slots: int | None = None,
        *,
        within: float | None = None,
        slots: Rows | None = None,
        timeout: float | None = None,
        copy: bool | None = None,
    ) -> Step:
        """As `Pool.recv`; numbers of rows are rounded up to whole envs."""
        step = self.pool.recv(
            self._rounded(min_slots),
            self._rounded(max_slots),
            within=within,
            slots=self._envs(slots),
            timeout=timeout,
            copy=False,
        )
        return self._step_of_rows(step, copy)

    def _rounded(self, count: int | None) -> int | None:
        return None if count is None else -(-count // self.agents)

    def reset(self, slots: Rows | None = None, **episodes: Any) -> Step:
        """send_reset and recv."""
        self.send_reset(slots, **episodes)
        return self.recv()

    def step(self, actions: Any, slots: Rows | None = None) -> Step:
        """Send and recv."""
        if slots is None:
            return self.step_all(actions)
        self.send(actions, slots)
        return self.recv()

    def step_all(self, actions: Any, *, copy: bool | None = None) -> Step:
        """Send to every row and recv."""
        batch = self._spaces.actions(actions, self.pool.num_envs)
        step = self.pool.step_all(batch, copy=False)
        return self._step_of_rows(step, copy)

    # Questions ------------------------------------------------------------------------

    def call(
        self, name: str, *args: Any, slots: Rows | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of the env of each of these rows, or of all."""
        return self._ask_envs(
            slots, lambda envs: self.pool.call(name, *args, slots=envs, **kwargs)
        )

    def get_attr(self, name: str, slots: Rows | None = None) -> tuple[Any, ...]:
        """Read an attribute of the env of each of these rows, or of all."""
        return self._ask_envs(slots, lambda envs: self.pool.get_attr(name, slots=envs))

    def set_attr(self, name: str, values: Any, slots: Rows | None = None) -> None:
        """Set an attribute of the envs of these rows; an env takes its first value."""
        rows = np.arange(self.num_envs) if slots is None else np.asarray(slots)
        envs, first = np.unique(rows // self.agents, return_index=True)
        if isinstance(values, (list, tuple)):
            if len(values) != len(rows):
                raise OptionError(
                    f"{len(values)} values for {len(rows)} rows; pass one each"
                )
            values = [values[position] for position in first.tolist()]
        self.pool.set_attr(name, values, slots=envs)

    def apply(
        self, function: Callable[..., Any], *args: Any, slots: Rows | None = None
    ) -> tuple[Any, ...]:
        """Call `function(env, *args)` beside the env of each of these rows."""
        return self._ask_envs(
            slots, lambda envs: self.pool.apply(function, *args, slots=envs)
        )

    def render(self, slots: Rows | None = None) -> tuple[Any, ...]:
        """Render the env of each of these rows, or of all."""
        return self.call("render", slots=slots)

    def _ask_envs(
        self, rows: Rows | None, ask: Callable[[list[int]], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Call each env once; all of its rows get the result."""
        given = range(self.num_envs) if rows is None else np.asarray(rows).tolist()
        wanted = [row // self.agents for row in given]
        envs = sorted(set(wanted))
        answers = dict(zip(envs, ask(envs), strict=True))
        return tuple(answers[env] for env in wanted)

    # Rows -----------------------------------------------------------------------------

    def _step_of_rows(self, step: Step, copy: bool | None) -> Step:
        """The same Step, a row for each agent."""
        self.last = step
        envs = step.slots
        copies = self.pool.copy if copy is None else copy
        multi = MultiStep(self.team, step, same_step=True, copy=copies)
        flags = self._spaces.flags
        alive = flags(multi.alive)
        # The agents alive before this step; after a reset, those alive now.
        reset = (step.started & ~step.ended)[:, None]
        before = np.where(reset, alive, self._alive[envs])
        terminated = flags(multi.terminated) & before
        truncated = flags(multi.truncated) & before
        ended = terminated | truncated
        reward = np.where(before, flags(multi.reward), 0.0)
        started = ~alive | ~before | ended | step.started[:, None]
        # Return and length of the episodes that `reward` belongs to.
        returns = np.zeros_like(reward)
        lengths = np.zeros(reward.shape, np.int32)
        if not reset.all():
            returns += self._return[envs] + reward
            lengths += self._length[envs] + before
        self._return[envs] = np.where(started, 0.0, returns)
        self._length[envs] = np.where(started, 0, lengths)
        self._alive[envs] = alive
        self._follow_seeds(step)
        whole = len(envs) == len(self._alive)
        self._masks = None if whole else self._renewed_masks(multi, envs)
        self._multi = multi if whole else None
        infos, final_infos = self._row_infos(step, ended)
        obs = finals = self._spaces.rows(multi.obs, multi.alive, len(envs))
        if ended.any():
            here = multi.ended_agents
            finals = self._spaces.rows(multi.final_obs, here, len(envs))
        return Step(
            slots=(envs[:, None] * self.agents + np.arange(self.agents)).ravel(),
            obs=obs,
            reward=reward.ravel(),
            terminated=terminated.ravel(),
            truncated=truncated.ravel(),
            started=started.ravel(),
            valid=(before & step.valid[:, None]).ravel(),
            final_obs=finals,
            episode_return=returns.ravel(),
            episode_length=lengths.ravel(),
            seed=self._seed[envs].ravel(),
            infos=infos,
            final_infos=final_infos,
        )

    def _renewed_masks(self, multi: MultiStep, envs: NDArray[np.intp]) -> Bools | None:
        """The masks of all rows, after a step of these envs."""
        known = self.action_masks
        if known is None:
            return None
        by_env = known.reshape(self.pool.num_envs, self.agents, -1).copy()
        masks = self._spaces.masks(multi.action_mask, len(envs))
        assert masks is not None, "those of all envs were known"
        by_env[envs] = masks.reshape(len(envs), self.agents, -1)
        return by_env.reshape(known.shape)

    def _follow_seeds(self, step: Step) -> None:
        """Make each agent's seed from the env's: agents draw different numbers."""
        for position in np.flatnonzero(step.started).tolist():
            seed = step.seed.item(position)
            if seed >= 0:
                self._seed[step.slots[position]] = [
                    agent_seed(seed, agent) for agent in range(self.agents)
                ]

    # Infos ----------------------------------------------------------------------------

    def _row_infos(
        self, step: Step, ended: Bools
    ) -> tuple[Infos, dict[int, dict[str, Any]]]:
        """The infos of agents, and the last infos of those that ended."""
        infos = step.infos.to_list(len(step)) if step.infos else []
        current = self._apart(enumerate(infos))
        final = self._apart(step.final_infos.items())
        for row in np.flatnonzero(ended).tolist():
            env = row // self.agents
            if not step.ended.item(env):  # the env continues without this agent
                final[row] = current.pop(row, {})
            elif step.valid.item(env):
                final.setdefault(row, {})
        for position in np.flatnonzero(~step.valid).tolist():
            _hand_on_fault(step, position, ended, current, final)
        return Infos([], current), final

    def _apart(
        self, infos: Iterable[tuple[int, dict[Any, Any]]]
    ) -> dict[int, dict[str, Any]]:
        """The infos of agents by row, from those of envs by position."""
        return {
            position * self.agents + number: info[agent]
            for position, info in infos
            for number, agent in enumerate(self.team.agents)
            if info.get(agent)
        }


def _hand_on_fault(
    step: Step, position: int, ended: Bools, *infos: dict[int, dict[str, Any]]
) -> None:
    """Add a fault to the info of the first row that it ended.

    If the next episode has started, it is in the final info, too, as in any pool.
    """
    fault = step.infos.of(position).get("fault") if step.infos else None
    if fault is not None and ended[position].any():
        row = position * ended.shape[1] + int(np.argmax(ended[position]))
        for rows in infos if step.started.item(position) else infos[:1]:
            rows[row] = {**rows.get(row, {}), "fault": fault}
