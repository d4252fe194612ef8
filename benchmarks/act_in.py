"""Where to let the policy act: in the caller, on its CPU or GPU, or in the workers.

    python benchmarks/act_in.py                      all but TinyPhysics' official model
    python benchmarks/act_in.py --data DIR           DIR has tinyphysics.onnx and data/
    python benchmarks/act_in.py --only cartpole --rounds 5 --seconds 0.5 --json FILE

PPO's policy with two hidden layers collects rollouts of 128 rows from process pools; of
TinyPhysics 1,024, where its recipe takes 12,500. `--rows` sets another number for all.
All runners of an env stay built and take turns, round by round, so that a machine with
other work slows all of them; a ratio is the median of those within the rounds. The
caller's torch has one thread, as in `corral train`; `--threads` changes that.

    step       the pool steps all slots with actions drawn beforehand; no policy
    caller     Collector(pool, policy): one pass of the net per batch, in the caller
    gpu        the same with the net on a GPU, where there is one
    workers    Collector(pool, policy, act_in="workers"): each worker has the net
    alone      each env in its own process, without a pool or a policy

CPU µs/step is the user and system time of the caller and its workers together: other
work on the machine changes it little, where it changes steps/s a lot.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from contests import Verdict, note, report_verdicts, table
from races import machine, race
from workloads import iterations_for, make_ant, make_cartpole, make_fixed_work

import corral
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.devices import cuda_devices
from corral.learners.ppo import PPO, PPOConfig
from corral.tools.bench.measure import Rates, draw_actions

ROWS = 128
NETS = {"2x64": (64, 64), "2x512": (512, 512)}
# Cores from which the claims of a large machine hold.
MANY_CORES = 16


@dataclass(frozen=True)
class Work:
    """Envs of one kind.

    Attributes:
        make: Makes the factory of one env; called late, since it may calibrate.
        slots: How many envs; None for as many as the machine's cores suggest.
        per_worker: As in `corral.Pool`.
        alone: Whether each env is also measured in its own process.
        rows: Of a rollout.
    """

    title: str
    make: Callable[[], Callable[[], Any]]
    slots: int | None = None
    per_worker: Callable[[], Any] | None = None
    alone: bool = False
    rows: int = ROWS

    @property
    def num_envs(self) -> int:
        return self.slots or (64 if usable_cores() >= MANY_CORES else 16)

    @property
    def name(self) -> str:
        return f"{self.title} ×{self.num_envs}"

    def options(self) -> dict[str, Any]:
        """The arguments of its pools."""
        return {
            "env": self.make(),
            "num_envs": self.num_envs,
            "per_worker": self.per_worker,
            "backend": "process",
            "workers": min(self.num_envs, usable_cores()),
            "isolation": "shared",
            "seed": 0,
        }


@dataclass(frozen=True)
class Claim:
    """`name` is at least `target` times as fast as `over`, or as so many steps/s."""

    work: str
    name: str
    over: str | None
    target: float
    many_cores: bool


CLAIMS = (
    Claim("cartpole", "workers 2x64", "caller 2x64", 1.3, False),
    Claim("100us", "workers 2x64", "caller 2x64", 1.0, False),
    Claim("cartpole", "workers 2x512", "caller 2x512", 1.5, False),
    Claim("cartpole", "workers 2x64", None, 350_000, True),
    Claim("ant", "workers 2x64", "step", 1.1, True),
    Claim("tinyphysics", "workers 2x64", "alone", 0.8, True),
)


# Runners ------------------------------------------------------------------------------


class Timed(ABC):
    """Runs batches of some steps of every slot, and counts time of the CPU.

    Attributes:
        rows: Steps of a slot in one batch.
        slots: Env steps in one batch.
        pids: The workers.
    """

    slots: int
    pids: list[int]

    def __init__(self, rows: int) -> None:
        self.rows = rows
        # Of every run: microseconds of the CPU per step.
        self.cpu_per_step: list[float] = []

    def run(self, batches: int) -> float:
        used, began = self._cpu(), time.perf_counter()
        self.work(batches)
        seconds = time.perf_counter() - began
        microseconds = 1e6 * (self._cpu() - used)
        self.cpu_per_step.append(microseconds / (batches * self.slots))
        return seconds

    @abstractmethod
    def work(self, batches: int) -> None: ...

    def _cpu(self) -> float:
        times = (psutil.Process(pid).cpu_times() for pid in self.pids)
        return time.process_time() + sum(one.user + one.system for one in times)


class Stepping(Timed):
    """Steps all slots in lockstep."""

    def __init__(self, options: dict[str, Any], rows: int) -> None:
        super().__init__(rows)
        self._pool = corral.Pool(**options)
        self.pids = self._pool._executor.pids()
        self.slots = self._pool.num_envs * rows
        self._actions = draw_actions(
            self._pool.spec.action_space, options["num_envs"], 0
        )
        self._pool.reset()

    def work(self, batches: int) -> None:
        step, actions = self._pool.step_all, self._actions
        for number in range(batches * self.rows):
            step(actions[number % len(actions)], copy=False)

    def close(self) -> None:
        self._pool.close()


class Collecting(Timed):
    """Collects rollouts with PPO's policy."""

    def __init__(
        self,
        options: dict[str, Any],
        rows: int,
        net: str,
        act_in: str,
        device: str = "cpu",
    ) -> None:
        super().__init__(rows)
        self._pool = pool = corral.Pool(**options)
        self.pids = pool._executor.pids()
        self.slots = pool.num_envs * rows
        spec, config = pool.spec, PPOConfig(hidden=NETS[net])
        ppo = PPO(spec.observation_space, spec.action_space, config, device=device)
        self._collector = corral.Collector(pool, ppo.policy, act_in=act_in)

    def work(self, batches: int) -> None:
        for _ in range(batches):
            self._collector.collect(self.rows)

    def close(self) -> None:
        self._pool.close()


class Alone(Timed):
    """Each env in its own process; all of them at once."""

    def __init__(self, options: dict[str, Any], rows: int) -> None:
        super().__init__(rows)
        self._envs = options["num_envs"]
        self.slots = self._envs * rows
        self._crew = corral.Crew(
            workers=self._envs,
            worker_init=functools.partial(load_alone, options["per_worker"]),
            per_worker=functools.partial(Lone, options["env"]),
        )
        self.pids = self._crew._executor.pids()

    def work(self, batches: int) -> None:
        self._crew.map(step_alone, [batches * self.rows] * self._envs)

    def close(self) -> None:
        self._crew.close()


def load_alone(load: Callable[[], Any] | None) -> None:
    """Make what envs find in their worker."""
    if load is not None:
        corral.this_worker().resource = load()


class Lone:
    """One env, which is reset when its episode ends."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._env = make()
        self._actions = [
            batch[0] for batch in draw_actions(self._env.action_space, 1, 0)
        ]
        self._env.reset(seed=corral.this_worker().index)

    def step(self, count: int) -> None:
        env, actions = self._env, self._actions
        for number in range(count):
            _, _, terminated, truncated, _ = env.step(actions[number % len(actions)])
            if terminated or truncated:
                env.reset()


def step_alone(count: int) -> None:
    corral.this_worker().resource.step(count)


# Work ---------------------------------------------------------------------------------


def make_car(data: str | None) -> Any:
    from corral.zoo.tinyphysics import make_tinyphysics

    return make_tinyphysics(data, model=corral.this_worker().resource)


def load_model(path: str | None) -> Any:
    from corral.zoo.tinyphysics import Model

    return Model(path)


def works(data: Path | None) -> dict[str, Work]:
    """By key: what can be measured here."""
    found = {
        "cartpole": Work("CartPole-v1", lambda: make_cartpole),
        "100us": Work(
            "an env of 100 µs",
            lambda: functools.partial(make_fixed_work, iterations_for(100)),
        ),
    }
    if importlib.util.find_spec("mujoco"):
        found["ant"] = Work("Ant-v5", lambda: make_ant)
    if importlib.util.find_spec("onnxruntime"):
        model = None if data is None else str(data / "tinyphysics.onnx")
        routes = None if data is None else str(data / "data")
        found["tinyphysics"] = Work(
            f"TinyPhysics, {'small' if data is None else 'official'} model",
            lambda: functools.partial(make_car, routes),
            slots=8,
            per_worker=functools.partial(load_model, model),
            alone=True,
            rows=1024,
        )
    return found


def runners(work: Work, nets: list[str]) -> Iterator[tuple[str, Timed]]:
    given = work.options(), work.rows
    yield "step", Stepping(*given)
    if work.alone:
        yield "alone", Alone(*given)
    for net in nets:
        yield f"caller {net}", Collecting(*given, net, "caller")
        if cuda_devices():
            yield f"gpu {net}", Collecting(*given, net, "caller", "cuda:0")
        yield f"workers {net}", Collecting(*given, net, "workers")


def measured(
    work: Work, nets: list[str], rounds: int, seconds: float
) -> tuple[dict[str, Rates], dict[str, float]]:
    """Steps per second, and microseconds of the CPU per step."""
    with ExitStack() as stack:
        built: dict[str, Timed] = {}
        for name, runner in runners(work, nets):
            built[name] = runner
            stack.callback(runner.close)
        rates = race(
            built, rounds=rounds, turn_seconds=seconds, on_turn=lambda name: note(".")
        )
        # The last: workers import torch in the trial before the first round.
        cpu = {n: statistics.median(r.cpu_per_step[-rounds:]) for n, r in built.items()}
        return rates, cpu


# The report ---------------------------------------------------------------------------


def report(work: Work, rates: dict[str, Rates], cpu: dict[str, float]) -> str:
    rows = []
    for name, one in rates.items():
        caller = rates.get(f"caller {name.partition(' ')[2]}")
        over = f"{one.over(caller):.2f}" if caller else ""
        alone = f"{one.over(rates['step']):.2f}"
        rate, spread = f"{one.median:,.0f}", f"±{one.spread:.0%}"
        rows.append((name, rate, spread, over, alone, f"{cpu[name]:.1f}"))
    header = ("", "steps/s", "spread", "of caller", "of step", "CPU µs/step")
    body = table(header, rows)
    return f"### {work.name}\n\n{body}\n"


def summary(rows: Iterable[tuple[str, str, dict[str, Rates]]]) -> str:
    """One row per env and net: where to act."""
    lines = []
    for title, net, rates in rows:
        names = ("step", f"caller {net}", f"gpu {net}", f"workers {net}")
        found = [rates.get(name) for name in names]
        cells = [f"{one.median:,.0f}" if one else "" for one in found]
        ratio = rates[f"workers {net}"].over(rates[f"caller {net}"])
        lines.append((title, net, *cells, f"{ratio:.2f}"))
    header = ("envs", "net", "step", "caller, CPU", "caller, GPU", "workers, CPU")
    return f"### Steps per second\n\n{table((*header, 'workers / caller'), lines)}\n"


def verdicts(key: str, work: Work, rates: dict[str, Rates]) -> Iterator[Verdict]:
    many = usable_cores() >= MANY_CORES
    for claim in CLAIMS:
        known = {claim.name, claim.over or claim.name} <= rates.keys()
        if claim.work != key or claim.many_cores != many or not known:
            continue
        one, title = rates[claim.name], work.name
        if claim.over is None:
            value, text, unit = one.median, f"{claim.name}, collected", "steps/s"
        else:
            value, unit = one.over(rates[claim.over]), "×"
            text = f"{claim.name} over {claim.over}"
        yield Verdict(title, text, value, claim.target, value >= claim.target, unit)


def main() -> int:
    arguments = parsed()
    torch.set_num_threads(arguments.threads)
    print(f"{machine()}, {arguments.threads} threads of torch in the caller\n")
    found: list[Verdict] = []
    lines: list[tuple[str, str, dict[str, Rates]]] = []
    record: dict[str, Any] = {"machine": machine()}
    for key, work in works(arguments.data).items():
        if arguments.only and key not in arguments.only:
            continue
        if arguments.rows:
            work = replace(work, rows=arguments.rows)
        note(f"{key} ")
        turns = arguments.rounds, arguments.seconds
        rates, cpu = measured(work, arguments.nets, *turns)
        note("\n")
        print(report(work, rates, cpu), flush=True)
        found += verdicts(key, work, rates)
        lines += [(work.name, net, rates) for net in arguments.nets]
        record[key] = {
            name: {"steps_per_second": one.rounds, "cpu_us_per_step": cpu[name]}
            for name, one in rates.items()
        }
    print(summary(lines))
    print(report_verdicts(found))
    if arguments.json:
        record["claims"] = [asdict(one) for one in found]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in found) else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = ("cartpole", "100us", "ant", "tinyphysics")
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--only", nargs="*", choices=keys)
    parser.add_argument("--nets", nargs="*", choices=tuple(NETS), default=list(NETS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--rows", type=int, help="of a rollout")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
