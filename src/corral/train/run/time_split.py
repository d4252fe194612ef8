"""Where a run's time goes, and how busy the machine is.

    env         the envs' own steps and resets, shared out over the workers
    policy      choosing actions and keeping rows, while no env runs
    learning    the learner's updates
    waiting     for the slowest worker, and to be woken
    copying     everything else between the caller and the workers
    evaluating  validation episodes
    saving      checkpoints, metrics, copies of the policy for videos

A sample is taken at most once a second, since a pool's statistics cost some
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter

from corral.engine.executors.assign import usable_cores
from corral.engine.pool import Pool, Stats
from corral.rollouts.collector import Collector
from corral.rollouts.site_group import SiteGroup
from corral.train.run.machine import cpu_seconds
from corral.train.run.parts import Parts, env_factory, one_env_options

TIME_PARTS = ("env", "policy", "learning", "waiting", "copying", "evaluating", "saving")
SAMPLE_SECONDS = 1.0


class TimeSplit:
    """Counts seconds from its making on."""

    def __init__(self, pool: Pool | SiteGroup, act_in: str = "caller") -> None:
        self._pool = pool
        self._act_in = act_in
        self._began = perf_counter()
        self._stats = self._first = self._pool.times()
        # Seconds of what the run itself measures.
        self.own = dict.fromkeys(("learning", "evaluating", "saving"), 0.0)
        self._then = dict(self.own)
        self._cpu = cpu_seconds()
        self._steps = 0

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return perf_counter() - self._began

    @contextmanager
    def spent_on(self, part: str) -> Iterator[None]:
        """Count the time of the block: learning, evaluating or saving."""
        began = perf_counter()
        try:
            yield
        finally:
            self.own[part] += perf_counter() - began

    def sample(self, steps: int, ending: bool = False) -> dict[str, float]:
        """Metrics since the last sample; none if that was a moment ago.

        The `ending` of a run that was too short for any gets one all the same.
        """
        seconds = self.seconds - (self._stats.seconds - self._first.seconds)
        if seconds < SAMPLE_SECONDS and not (ending and self._stats is self._first):
            return {}
        stats, cpu = self._pool.times(), cpu_seconds()
        own = {part: self.own[part] - self._then[part] for part in self.own}
        split = split_of(stats.since(self._stats), own, self._act_in)
        training = max(seconds - own["evaluating"] - own["saving"], 1e-9)
        metrics = {
            "speed/steps_per_second": (steps - self._steps) / training,
            "use/cpu": (cpu - self._cpu) / max(seconds, 1e-9) / usable_cores(),
            **{f"time/{part}": split[part] for part in TIME_PARTS},
            **_gpu(),
        }
        self._stats, self._cpu, self._steps = stats, cpu, steps
        self._then = dict(self.own)
        return metrics

    def split(self) -> dict[str, float]:
        """Where all of the time went; fractions that add up to 1."""
        return split_of(self._pool.times().since(self._first), self.own, self._act_in)


def split_of(
    stats: Stats, own: dict[str, float], act_in: str = "caller"
) -> dict[str, float]:
    """Fractions of the time by part.

    What the caller did while no command was pending is the policy's, but for what it
    counted itself. Of its waiting, what the workers were busy with is the envs', or
    copying, or the policy's, if that acts there; the rest is waiting.
    """
    seconds, workers = max(stats.seconds, 1e-9), len(stats.workers)
    policy = max(0.0, stats.policy - sum(own.values()))
    stepping = float(stats.step.seconds.sum() + stats.reset.seconds.sum()) / workers
    busy = sum(worker.busy_seconds for worker in stats.workers) / workers
    left = max(0.0, seconds - policy - sum(own.values()))
    env = min(stepping, left)
    waiting = min(max(0.0, stats.waiting - busy), left - env)
    copying = left - env - waiting
    if act_in == "workers":
        policy, copying = policy + copying, 0.0
    parts = {
        **own,
        "policy": policy,
        "env": env,
        "waiting": waiting,
        "copying": copying,
    }
    return {part: parts[part] / seconds for part in TIME_PARTS}


def _gpu() -> dict[str, float]:
    """How busy the GPU is, where one is used and tells."""
    import torch

    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    used, total = torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    metrics = {"use/gpu_memory": used / total}
    with suppress(ImportError, RuntimeError):  # without NVIDIA's own library
        metrics["use/gpu"] = torch.cuda.utilization() / 100
    return metrics


MEASURED_SECONDS = 0.4
MEASURED_ROWS = 16


def compared(parts: Parts, steps: int, seconds: float, split: dict[str, float]) -> str:
    """Measure one env, and compare it with a run's steps and seconds, in words."""
    one, learning = one_env(parts), seconds * split["learning"]
    shares = (split[part] for part in ("env", "policy", "waiting", "copying"))
    collecting = seconds * sum(shares)
    speed = steps / collecting
    whole = (steps / one + learning) / (collecting + learning)
    return (
        f"Collecting ran at {speed:,.0f} steps/s, {speed / one:.1f}× one env at a time "
        f"({one:,.0f} steps/s); learning included, the run was {whole:.1f}× as fast."
    )


def one_env(parts: Parts) -> float:
    """Steps per second of one env, with the policy deciding for it alone."""
    config = parts.config
    options = one_env_options(config, backend="serial", seed=0, infos="final")
    with Pool.with_options(env_factory(config), 1, options) as pool:
        collector = Collector(pool, parts.learner.single_policy())
        collector.collect(MEASURED_ROWS)
        steps, began = 0, perf_counter()
        while (seconds := perf_counter() - began) < MEASURED_SECONDS:
            collector.collect(MEASURED_ROWS)
            steps += MEASURED_ROWS
    return steps / seconds
