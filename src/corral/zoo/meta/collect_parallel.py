"""`collect_rollouts_parallel` for learners of pomdp-baselines.

    class Learner(corral.meta.ParallelRollouts, TheirLearner): ...

    learner.collect_rollouts_parallel(num_rollouts=25, parallel_env=workers)

The next free env takes the next trial; trials are stored in the order of their tasks. A
trial depends on its seed, its task and the agent alone: the number of envs changes
nothing, and without `parallel_env` the same trials are collected one by one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from corral.core import NO_TASK, Decision, Generators, Step
from corral.engine.faults.report import error_for
from corral.engine.pool import Pool
from corral.engine.worker.seeds import collection_root, trial_rng
from corral.errors import OptionError
from corral.learners.torch_import import functional, torch
from corral.rollouts.episodic import Episode, run_episodes
from corral.zoo.meta.parallel_env import ParallelEnvManager

MEMORY = "memory"


def architecture_of(learner: Any) -> str:
    """Return "markov", "memory" or "memory_markov", from their string or enum."""
    arch = learner.agent_arch
    return str(getattr(arch, "value", arch)).lower().replace("-", "_")


def device_of(agent: Any) -> Any:
    """Return where the agent's weights are; the CPU if it does not show them."""
    weights: Any = getattr(agent, "parameters", tuple)()
    return next((one.device for one in weights), torch.device("cpu"))


class AgentPolicy:
    """An agent of pomdp-baselines as a policy; it acts on one row at a time.

    Its draws come from torch's global generator, which is seeded for each row and step
    from the row's own generator: so rows do not depend on each other.
    """

    def __init__(self, learner: Any, random_actions: bool) -> None:
        self._learner = learner
        self._random = random_actions
        self._memory = architecture_of(learner) == MEMORY
        self._device = device_of(learner.agent)

    def initial_carry(self, rows: int) -> Any:
        """Return the agent's first action, reward and internal state for each row."""
        if not self._memory or self._random:
            return None
        return np.fromiter(
            (self._learner.agent.get_initial_info() for _ in range(rows)), object, rows
        )

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row."""
        if self._random:
            vectors = [self._drawn(rng[row]) for row in range(len(step))]
            return Decision(self._actions(vectors), None, {"vector": np.stack(vectors)})
        vectors, after = [], np.empty(len(step), object)
        for row in range(len(step)):
            torch.manual_seed(int(rng[row].integers(2**62)))
            obs = torch.as_tensor(step.obs[row : row + 1]).float().to(self._device)
            with torch.no_grad():
                action, after[row] = self._chosen(step, carry, row, obs)
            vectors.append(action.detach().cpu().numpy().reshape(-1))
        state = after if carry is not None else None
        return Decision(self._actions(vectors), state, {"vector": np.stack(vectors)})

    def _chosen(self, step: Step, carry: Any, row: int, obs: Any) -> tuple[Any, Any]:
        agent = self._learner.agent
        if not self._memory:
            return agent.act(obs, deterministic=False)[0], None
        action, reward, state = carry[row]
        if not step.started[row]:
            reward = torch.full((1, 1), float(step.reward[row]), device=self._device)
        (action, *_), state = agent.act(
            prev_internal_state=state,
            prev_action=action,
            reward=reward,
            obs=obs,
            deterministic=False,
        )
        return action, (action, reward, state)

    def _drawn(self, rng: np.random.Generator) -> Any:
        learner = self._learner
        if learner.act_continuous:
            return rng.uniform(-1.0, 1.0, learner.act_dim).astype(np.float32)
        picked = torch.tensor(int(rng.integers(learner.act_dim)))
        return functional.one_hot(picked, learner.act_dim).float().numpy()

    def _actions(self, vectors: list[Any]) -> Any:
        stacked = np.stack(vectors)
        return stacked if self._learner.act_continuous else stacked.argmax(-1)


def _whole(episodes: list[Episode]) -> list[Episode]:
    """Leave out the trials that failed each time they were run, with a warning."""
    failed = [episode.fault for episode in episodes if episode.fault is not None]
    if failed:
        first = str(error_for(failed[0])).partition("\n")[0]
        warnings.warn(
            f"{len(failed)} of {len(episodes)} trials failed and are not stored; the "
            f"first, of task {failed[0].task!r:.80}: {first}",
            stacklevel=3,
        )
    return [episode for episode in episodes if not episode.failed]


class ParallelRollouts:
    """Adds `collect_rollouts_parallel` to a learner of pomdp-baselines.

    The learner has `agent`, `agent_arch`, `act_dim`, `act_continuous`, `train_env`
    (from `corral.meta.make_env`), `train_tasks`, `policy_storage`,
    `max_trajectory_len`, `_n_env_steps_total`, `_n_rollouts_total`, and optionally
    `seed`.
    """

    _own_pool: Pool | None = None

    def collect_rollouts_parallel(
        self: Any,
        num_rollouts: int,
        random_actions: bool = False,
        parallel_env: ParallelEnvManager | None = None,
    ) -> int:
        """Collect whole trials into `policy_storage`; return the number of env steps.

        Args:
            num_rollouts: number of trials.
            random_actions: act at random instead of with the agent.
            parallel_env: the envs; None for one env in this process.
        """
        pool = self._sequential() if parallel_env is None else parallel_env.pool
        root = collection_root(int(getattr(self, "seed", 0)), self._n_rollouts_total)
        policy = AgentPolicy(self, random_actions)
        tasks = self._tasks(root, num_rollouts)
        episodes = _whole(run_episodes(pool, policy, tasks=tasks, seed=root))
        for episode in episodes:
            self._store(episode)
        steps = sum(map(len, episodes))
        self._n_env_steps_total += steps
        self._n_rollouts_total += num_rollouts
        return steps

    def _sequential(self: Any) -> Pool:
        if self._own_pool is None:
            factory = getattr(self.train_env, "factory", None)
            if factory is None:
                raise OptionError(
                    "train_env was not made by corral.meta.make_env; make it so, or "
                    "pass parallel_env"
                )
            self._own_pool = Pool(factory, 1, backend="serial")
        pool: Pool = self._own_pool
        return pool

    def _tasks(self: Any, root: int, count: int) -> list[Any]:
        """Draw tasks by the number of the trial, never by its worker."""
        tasks = self.train_tasks
        if not len(tasks):
            return [NO_TASK] * count
        rngs = [trial_rng(root, trial) for trial in range(count)]
        return [tasks[rng.integers(len(tasks))] for rng in rngs]

    def _store(self: Any, episode: Episode) -> None:
        obs = np.asarray(episode.obs)
        terminals = np.zeros((len(episode), 1))
        terminals[-1] = episode.terminated and len(episode) < (
            self.max_trajectory_len or np.inf
        )
        action = episode.extras["vector"]
        if not self.act_continuous:
            action = action.argmax(-1, keepdims=True)
        assert episode.reward is not None
        columns = {
            "observations": obs,
            "actions": action,
            "rewards": episode.reward[:, None],
            "terminals": terminals,
            "next_observations": np.concatenate([obs[1:], episode.final_obs]),
        }
        if architecture_of(self) != "markov":
            self.policy_storage.add_episode(**columns)
            return
        names = ("observation", "action", "reward", "terminal", "next_observation")
        for row in zip(*columns.values(), strict=True):
            self.policy_storage.add_sample(**dict(zip(names, row, strict=True)))
