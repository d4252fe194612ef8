"""SAC and TD3 as learners of a run: collect, store, update.

    collected ──► replay ──► batches ──► agent ──► the policy that collects next

With `overlap: 1` the updates run in a thread while the next data is collected, with the
weights as they were before these updates.
"""

from __future__ import annotations

import copy
import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

from gymnasium import spaces

from corral.engine.worker.seeds import RunGenerator, run_generator
from corral.errors import OptionError, TrainingDiverged
from corral.learners.episode_batch import EpisodeBatch
from corral.learners.nets.exported import (
    ExportedPolicy,
    LargestOption,
    SquashedMean,
    scales_for,
)
from corral.learners.off_policy.agent import Agent
from corral.learners.off_policy.batch import batch_of
from corral.learners.off_policy.exported import ExportedHistory
from corral.learners.off_policy.nets import MeanOnly, NetSizes
from corral.learners.off_policy.policy import ActorPolicy, Head
from corral.learners.off_policy.sac import SAC
from corral.learners.off_policy.settings import OffPolicyConfig, SACConfig, TD3Config
from corral.learners.off_policy.td3 import TD3
from corral.learners.off_policy.transitions import columns_for, of_episode, of_rollout
from corral.learners.off_policy.vectors import ObsVector, SideBySide, actions_for
from corral.learners.protocol import Episodes, Learner, LearnerSetup, Rows, Wants
from corral.learners.torch_import import nn, torch
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.replay import Replay, SequenceReplay

CHARTS = {
    "critic_loss": ("Critic loss", "Squared error of both critics."),
    "actor_loss": ("Actor loss", "The negated value of the actor's own actions."),
    "q": ("Q", "Mean estimate of the actions in the replay."),
    "replay": ("Replay", "Stored transitions."),
    "updates": ("Updates", "Gradient steps so far."),
}


class OffPolicyLearner(Learner):
    """What SAC and TD3 share as learners of a run.

    Attributes:
        discrete: Whether it takes Discrete actions.
    """

    packages: ClassVar[tuple[str, ...]] = ("torch",)
    charts = CHARTS
    discrete: ClassVar[bool] = False
    shares_policy = False

    def __init__(self, setup: LearnerSetup) -> None:
        super().__init__(setup)
        settings: OffPolicyConfig = setup.settings
        self._refuse_normalisers(setup)
        self._device = torch.device(setup.device)
        self._observation_space: Any = setup.spec.observation_space
        self._action_space: Any = setup.spec.action_space
        self._observe = ObsVector(self._observation_space)
        self._actions = actions_for(self._action_space, self.title, self.discrete)
        obs, action = self._observe.width, self._actions.width
        embeddings = (
            settings.action_embedding,
            settings.obs_embedding,
            settings.reward_embedding,
        )
        sizes = NetSizes(
            *(obs, action, settings.widths),
            *(settings.memory, settings.memory_size, embeddings),
        )
        self.agent = self._agent(sizes, setup.seed)
        columns, size = columns_for(obs, action), settings.replay_size
        self.replay: Replay
        if settings.recurrent:
            window, gib = settings.sequence_length, settings.replay_max_gib
            self.replay = SequenceReplay(size, columns, window, gib)
        else:
            self.replay = Replay(size, columns, settings.replay_max_gib)
        self._rng = run_generator(setup.seed, RunGenerator.REPLAY)
        self._done = {"steps": 0, "episodes": 0, "updates": 0}
        # Updates that a ratio asks for and that were not made yet.
        self._owed = 0.0
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[dict[str, float]] | None = None
        acting = self.agent.actor
        if settings.overlap:
            self._thread = _thread_for_updates()
            acting = copy.deepcopy(acting)
        head, noise = self._head()
        self.policy = ActorPolicy(
            acting, head, self._observe, self._actions, noise, self._device
        )
        self.policy.random = self._is_warming_up

    def _refuse_normalisers(self, setup: LearnerSetup) -> None:
        for name in ("normalise_obs", "normalise_reward"):
            if getattr(setup, name):
                raise OptionError(
                    f"{name} is True; {self.title} keeps rows in a replay, where old "
                    f"ones would not follow the normaliser. Set {name}: false and wrap "
                    "the env to return numbers of about unit size"
                )

    def _agent(self, sizes: NetSizes, seed: int) -> Agent:
        raise NotImplementedError

    def _head(self) -> tuple[Head, float]:
        """Return what the actor's outputs mean, and the noise on its actions."""
        raise NotImplementedError

    @classmethod
    def wants(cls, settings: OffPolicyConfig) -> Wants:
        """Return whole episodes with a memory, or where asked for; else rows."""
        if settings.recurrent or settings.episodes is not None:
            return Episodes(settings.episodes or 1)
        return Rows(settings.rows)

    # Learning -------------------------------------------------------------------------

    def update(self, data: Any) -> dict[str, float]:
        """Store what was collected, then learn from samples of it."""
        earlier = self._finished()
        was_random = self.policy.random
        steps = self._store(data)
        self.policy.random = self._is_warming_up
        count = 0 if was_random or not len(self.replay) else self._updates_due(steps)
        if self._thread is None:
            return self._learn(count)
        self._show_actor()
        self._running = self._thread.submit(self._learn, count)
        return earlier

    @property
    def _is_warming_up(self) -> bool:
        settings, done = self.settings, self._done
        short = done["steps"] < settings.random_steps
        return bool(short or done["episodes"] < settings.random_episodes)

    def _store(self, data: Any) -> int:
        """Add transitions to the replay; return their number."""
        before = self.replay.total
        if isinstance(data, EpisodeBatch):
            all_columns = [of_episode(episode, self._observe) for episode in data]
        else:
            all_columns = [of_rollout(data, self._observe)]
        for columns in all_columns:
            self.replay.add(columns)
        steps = self.replay.total - before
        self._done["episodes"] += len(data.episodes)
        self._done["steps"] += steps
        return steps

    def _updates_due(self, steps: int) -> int:
        """Return the number of updates: given, or by a ratio of the collected steps."""
        if isinstance(self.settings.updates, int):
            return self.settings.updates
        self._owed += self.settings.updates * steps
        count = int(self._owed)
        self._owed -= count
        return count

    def _learn(self, count: int) -> dict[str, float]:
        found: dict[str, list[Any]] = {}
        for _ in range(count):
            sampled = self.replay.sample(self.settings.batch, self._rng)
            metrics = self.agent.update(batch_of(sampled, self._device))
            for name, value in metrics.items():
                found.setdefault(name, []).append(value)
        self._done["updates"] += count
        means = {name: float(torch.stack(all_).mean()) for name, all_ in found.items()}
        bad = [name for name, value in means.items() if not math.isfinite(value)]
        if bad:
            raise TrainingDiverged(
                f"{bad[0]} is {means[bad[0]]} after {self._done['updates']} updates; "
                "check the env's rewards and observations, or lower lr"
            )
        counts = {"replay": len(self.replay), "updates": self._done["updates"]}
        return {**means, **{name: float(value) for name, value in counts.items()}}

    def _finished(self) -> dict[str, float]:
        """Wait for the updates that are running; return their metrics."""
        running, self._running = self._running, None
        return {} if running is None else running.result()

    def _put_back(self, metrics: dict[str, float]) -> None:
        """Have `_finished` return these metrics next."""
        if metrics:
            self._running = Future()
            self._running.set_result(metrics)

    def _show_actor(self) -> None:
        """Act with the latest weights from now on."""
        self.policy.actor.load_state_dict(self.agent.actor.state_dict())

    # Saving ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all but the rows of the replay, which has files of its own."""
        metrics = self._finished()
        self._put_back(metrics)
        acting = self.policy.actor.state_dict()
        return {
            "agent": self.agent.state_dict(),
            "acting": {name: value.clone() for name, value in acting.items()},
            "replay": self.replay.state_dict(),
            "sampling": self._rng.bit_generator.state,
            "done": dict(self._done),
            "owed": self._owed,
            "metrics": metrics,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved; the run restores the rows of the replay."""
        self._finished()
        self._put_back(state["metrics"])
        self.agent.load_state_dict(state["agent"])
        self.policy.actor.load_state_dict(state["acting"])
        self.replay.load_state_dict(state["replay"])
        self._rng.bit_generator.state = state["sampling"]
        self._done = dict(state["done"])
        self._owed = float(state["owed"])
        self.policy.random = self._is_warming_up

    def policy_module(self, obs_norm: ObsNorm | None) -> Any:
        """Return the actor as a plain torch module, a copy; see `nets.exported`."""
        actor = copy.deepcopy(self.policy.actor)
        space = self._action_space
        discrete = isinstance(space, spaces.Discrete)
        layers = [actor.tower]
        if not discrete:
            layers.append(MeanOnly(self._actions.width))
        parts = (
            scales_for(self._observation_space, obs_norm),
            SideBySide(self._observation_space),
            nn.Sequential(*layers),
            LargestOption(space) if discrete else SquashedMean(space),
        )
        if actor.history is None:
            return ExportedPolicy(*parts).cpu()
        return ExportedHistory(*parts, actor=actor, width=self._actions.width).cpu()

    def load_policy(self, state: dict[str, Any]) -> None:
        """Start with the nets of another learner, and an empty replay."""
        self.agent.load_nets(state["agent"])
        self._show_actor()


def _thread_for_updates() -> ThreadPoolExecutor:
    # A new thread multiplies with as many threads as there are cores until it is told
    # otherwise, and so with other last bits.
    threads = torch.get_num_threads()
    return ThreadPoolExecutor(1, "corral-updates", torch.set_num_threads, (threads,))


class SACLearner(OffPolicyLearner):
    """Corral's SAC."""

    Config = SACConfig
    group = "sac"
    title = "SAC"
    discrete = True
    charts: ClassVar[dict[str, tuple[str, str]]] = {
        **CHARTS,
        "entropy": ("Entropy", "Policy entropy, as far as samples tell."),
        "alpha": ("Temperature", "Weight of the entropy in the objective."),
    }

    def _agent(self, sizes: NetSizes, seed: int) -> Agent:
        discrete = self._actions.discrete
        return SAC(self.settings, sizes, discrete, seed, self._device)

    def _head(self) -> tuple[Head, float]:
        return ("categorical" if self._actions.discrete else "gaussian"), 0.0


class TD3Learner(OffPolicyLearner):
    """Corral's TD3."""

    Config = TD3Config
    group = "td3"
    title = "TD3"
    charts = CHARTS

    def _agent(self, sizes: NetSizes, seed: int) -> Agent:
        return TD3(self.settings, sizes, False, seed, self._device)

    def _head(self) -> tuple[Head, float]:
        return "tanh", self.settings.exploration_noise
