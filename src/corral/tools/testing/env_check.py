"""Does an environment keep its contract, here and in a worker?

The questions of `corral doctor` about one env are asked in this process; then it is
played by hand, in plain loops, and in pools, which have to agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from corral.core import NO_TASK, Adapter, Factory, Step
from corral.engine.adapters import adapt
from corral.engine.adapters.factories import factories_for
from corral.engine.pool import Pool
from corral.engine.worker.letters import describe
from corral.engine.worker.seeds import episode_seed
from corral.engine.worker.step_results import as_reward, five_of
from corral.tools.doctor.checks import (
    api,
    determinism,
    generators,
    infos,
    pickling,
    spaces,
)
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver
from corral.tools.doctor.finding import SEVERITIES, Finding, Severity
from corral.tools.doctor.subject import Subject
from corral.tools.doctor.worker_task import Measure
from corral.tools.testing.report import CheckPart, Report, Skip, Warn, run_parts
from corral.tools.testing.values import part_of, stored


def check_env(
    env: str | Factory,
    *,
    env_kwargs: dict[str, Any] | None = None,
    steps: int = 200,
    seed: int = 0,
    deterministic: bool = True,
    process: bool = True,
    raises: bool = True,
) -> Report:
    """Check that an environment works, alone and in worker processes.

    Args:
        env: a registered id, or a factory.
        env_kwargs: keyword arguments for the id or factory.
        steps: how many are taken, with sampled actions.
        seed: of the episodes and the actions.
        deterministic: whether equal seeds have to give equal episodes.
        process: whether to try it in two worker processes as well.
        raises: whether to raise CheckFailed if a part of the check failed.

    Returns:
        The report; it prints well, and is true if nothing failed.
    """
    (factory,) = factories_for(env, 1, env_kwargs)
    name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
    check = _EnvCheck(_SubjectHere(name, factory, seed=seed, moments=steps))
    parts = [
        CheckPart("the factory can be sent to a worker", check.can_be_sent),
        CheckPart(
            "an environment is built, with its spaces", check.is_built, needed=True
        ),
        CheckPart("reset and step return what they should", check.plays, needed=True),
        CheckPart("observations are in their space", check.observes_its_space),
        CheckPart("infos can be sent home", check.has_infos_that_travel),
        CheckPart("equal seeds give equal episodes", check.is_deterministic),
        CheckPart("global generators play no part", check.leaves_globals_alone),
        CheckPart("close works, and may be called twice", check.closes),
        CheckPart("a pool in this process returns the same", check.runs_serially),
        CheckPart("so does one of two worker processes", check.runs_in_processes),
    ]
    left_out = () if deterministic else parts[5:7]
    wanted = [part for part in parts if part not in left_out]
    report = run_parts(f"{name}:", wanted if process else wanted[:-1])
    if raises:
        report.raise_if_failed()
    return report


class _SubjectHere(Subject):
    """The doctor's subject, measured in this process."""

    def ask_each(
        self, measure: Measure, arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """One after the other; a Fault stands where one failed."""
        return [self._measured(measure, given) for given in arguments]

    def _measured(self, measure: Measure, arguments: tuple[Any, ...]) -> Any:
        try:
            return measure(self.factory, *arguments)
        except Exception as error:
            return describe(error, "map", None, 0)


class _EnvCheck:
    """The parts of the check."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._factory = subject, subject.factory

    # The doctor's questions -----------------------------------------------------------

    def can_be_sent(self) -> None:
        self._judge(pickling.examine)

    def is_built(self) -> None:
        adapt(self._factory()).close()  # says what to use instead, if it cannot be

    def plays(self) -> None:
        self._judge(api.examine)

    def observes_its_space(self) -> None:
        self._judge(spaces.examine)

    def has_infos_that_travel(self) -> None:
        figures = self._subject.ask(infos.measure, self._subject.seed)
        assert not figures.trouble, f"an info cannot be pickled: {figures.trouble}"

    def is_deterministic(self) -> None:
        self._judge(determinism.examine, fails_from="warning")

    def leaves_globals_alone(self) -> None:
        self._judge(generators.examine)

    def closes(self) -> None:
        driver = EpisodeDriver(self._factory, self._subject.seed)
        driver.advance()
        driver.close()
        for trouble in api.of_closing(driver):
            raise AssertionError(trouble.measured)

    def _judge(
        self,
        examine: Callable[[Subject], Iterator[Finding]],
        fails_from: Severity = "problem",
    ) -> None:
        """Raise what a check of the doctor found, the worst of it first."""
        rank = SEVERITIES.index
        found = sorted(examine(self._subject), key=lambda one: rank(one.severity))[::-1]
        bad = [one for one in found if rank(one.severity) >= rank(fails_from)]
        assert not bad, _text(bad)
        mild = [one for one in found if one.severity != "ok"]
        if mild:
            raise Warn(_text(mild))

    # In pools -------------------------------------------------------------------------

    def runs_serially(self) -> None:
        self._run_in_a_pool(1, backend="serial")

    def runs_in_processes(self) -> None:
        self._run_in_a_pool(2, backend="process", workers=2)

    def _run_in_a_pool(self, slots: int, **options: Any) -> None:
        with Pool(self._factory, slots, seed=self._subject.seed, **options) as pool:
            actions = [self._actions(pool, slot) for slot in range(slots)]
            rows = list(self._rows(pool, actions))
            space = pool.spec.observation_space
        for slot in range(slots):
            played, again = (self._play(slot, actions[slot]) for _ in range(2))
            if first_difference(played, again):
                raise Skip("it runs, but no two runs of it are equal")
            # Resets after the first come with the step before.
            shown = [m for m in played if m is played[0] or m.what.startswith("step")]
            seen = [replace(m, obs=stored(space, m.obs)) for m in shown]
            apart = first_difference([row[slot] for row in rows], seen)
            assert not apart, f"{apart} (in a pool and by hand)"
            assert len(rows) == len(seen), f"{len(rows)} results, not {len(seen)}"

    def _actions(self, pool: Pool, slot: int) -> list[Any]:
        space = copy.deepcopy(pool.spec.action_space)
        space.seed(self._subject.seed + slot)
        return [space.sample() for _ in range(self._subject.moments)]

    def _rows(
        self, pool: Pool, actions: list[list[Any]]
    ) -> Iterator[list[EnvResponse]]:
        """What a pool returns of each slot, step by step."""
        space, slots = pool.spec.observation_space, range(pool.num_envs)
        step = pool.reset()
        yield [_row(step, slot, "reset 0", space) for slot in slots]
        for number, batch in enumerate(zip(*actions, strict=True), 1):
            step = pool.step(list(batch))
            yield [_row(step, slot, f"step {number}", space) for slot in slots]

    def _play(self, slot: int, actions: Sequence[Any]) -> list[EnvResponse]:
        """By hand, with the seeds and actions of a pool's slot."""
        adapter = adapt(self._factory())
        try:
            return list(self._moments(adapter, slot, actions))
        finally:
            adapter.close()

    def _moments(
        self, adapter: Adapter, slot: int, actions: Sequence[Any]
    ) -> Iterator[EnvResponse]:
        episode, over = 0, True
        for number, action in enumerate([None, *actions]):
            if over:
                seed = episode_seed(self._subject.seed, slot, episode)
                obs, _ = adapter.reset(seed, None, NO_TASK)
                yield _response(f"reset {episode}", obs)
                episode, over = episode + 1, False
            if number:
                result = five_of(adapter.step(action))
                over = bool(result[2]) or bool(result[3])
                yield _response(f"step {number}", *result[:4])


def _row(step: Step, slot: int, what: str, space: Any) -> EnvResponse:
    obs = step.final_obs if step.ended[slot] else step.obs
    flags = step.terminated[slot], step.truncated[slot]
    return _response(what, part_of(space, obs, slot), step.reward[slot], *flags)


def _response(
    what: str,
    obs: Any,
    reward: Any = 0.0,
    terminated: Any = False,
    truncated: Any = False,
) -> EnvResponse:
    over, cut = bool(terminated), bool(truncated)
    number = as_reward(reward)
    return EnvResponse(what, copy.deepcopy(obs), number, over, cut, None, over or cut)


def _text(findings: list[Finding]) -> str:
    said = (
        f"{one.measured} ({one.remedy})" if one.remedy else one.measured
        for one in findings
    )
    return "; ".join(said)
