"""Does an environment keep its contract, here and in a worker?

The questions of `corral doctor` about one env are asked in this process. Then it is
played by hand, in plain loops, and in pools, and both have to agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from corral.core import NO_TASK, Factory
from corral.engine.adapters import adapt
from corral.engine.adapters.factories import factories_for
from corral.engine.pool import Pool
from corral.engine.worker.letters import describe
from corral.engine.worker.seeds import episode_seed
from corral.engine.worker.step_results import as_reward, five_of
from corral.tools.doctor.checks import api, repeating, results
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver
from corral.tools.doctor.report import SEVERITIES, Finding, Severity
from corral.tools.doctor.subject import Measure, Subject
from corral.tools.testing.report import Report, Skip, Warn, run_parts
from corral.tools.testing.values import part_of, stored

REPEATING = ("equal_seeds_give_equal_episodes", "global_generators_are_not_used")
IN_PROCESSES = ("a_pool_of_two_worker_processes_returns_the_same",)
NEEDED = (
    "an_environment_is_built_with_its_spaces",
    "reset_and_step_return_what_they_should",
)


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
        steps: number of steps, with sampled actions.
        seed: seed of the episodes and the actions.
        deterministic: whether equal seeds have to give equal episodes.
        process: whether to try it in two worker processes as well.
        raises: whether to raise CheckFailed if a part of the check failed.

    Returns:
        The report. `print` shows it; it is true if nothing failed.
    """
    (factory,) = factories_for(env, 1, env_kwargs)
    name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
    parts = _EnvCheck(_SubjectHere(name, factory, seed=seed, moments=steps))
    left_out = REPEATING * (not deterministic) + IN_PROCESSES * (not process)
    return run_parts(name, parts, NEEDED, left_out, raises)


class _SubjectHere(Subject):
    """The doctor's subject, measured in this process."""

    def ask_each(
        self, measure: Measure, arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """One after the other; a Fault stands where one failed."""
        answers: list[Any] = []
        for given in arguments:
            try:
                answers.append(measure(self.factory, *given))
            except Exception as error:
                answers.append(describe(error, "map", None, 0))
        return answers


class _EnvCheck:
    """The parts of the check: the doctor's questions, then pools."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._factory = subject, subject.factory

    def the_factory_can_be_sent_to_a_worker(self) -> None:
        self._judge(api.check_pickling)

    def an_environment_is_built_with_its_spaces(self) -> None:
        adapt(self._factory()).close()  # says what to use instead, if it cannot be

    def reset_and_step_return_what_they_should(self) -> None:
        self._judge(api.check_api)

    def observations_are_in_their_space(self) -> None:
        self._judge(results.check_spaces)

    def infos_can_be_sent_to_the_caller(self) -> None:
        figures = self._subject.ask(results.measure_infos, self._subject.seed)
        assert not figures.trouble, f"an info cannot be pickled: {figures.trouble}"

    def equal_seeds_give_equal_episodes(self) -> None:
        self._judge(repeating.check_determinism, fails_from="warning")

    def global_generators_are_not_used(self) -> None:
        self._judge(repeating.check_generators)

    def close_works_and_may_be_called_twice(self) -> None:
        driver = EpisodeDriver(self._factory, self._subject.seed)
        driver.advance()
        driver.close()
        for trouble in api.of_closing(driver):
            raise AssertionError(trouble.measured)

    def a_pool_in_this_process_returns_the_same(self) -> None:
        self._run_in_a_pool(1, backend="serial")

    def a_pool_of_two_worker_processes_returns_the_same(self) -> None:
        self._run_in_a_pool(2, backend="process", workers=2)

    def _judge(
        self,
        check: Callable[[Subject], Finding | Iterable[Finding]],
        fails_from: Severity = "problem",
    ) -> None:
        """Raise what a check of the doctor found, the worst of it first."""
        answer = check(self._subject)
        found = [answer] if isinstance(answer, Finding) else list(answer)
        found.sort(key=_rank, reverse=True)
        bad = [one for one in found if _rank(one) >= SEVERITIES.index(fails_from)]
        assert not bad, _text(bad)
        mild = [one for one in found if one.severity != "ok"]
        if mild:
            raise Warn(_text(mild))

    def _run_in_a_pool(self, slots: int, **options: Any) -> None:
        with Pool(self._factory, slots, seed=self._subject.seed, **options) as pool:
            space = pool.spec.observation_space
            actions = [self._actions(pool, slot) for slot in range(slots)]
            rows = list(_rows(pool, actions))
        for slot in range(slots):
            played, again = (list(self._play(slot, actions[slot])) for _ in range(2))
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

    def _play(self, slot: int, actions: Sequence[Any]) -> Iterator[EnvResponse]:
        """By hand, with the seeds and actions of a pool's slot."""
        with closing(adapt(self._factory())) as adapter:
            episode, over = 0, True
            for number, action in enumerate([None, *actions]):
                if over:
                    seed = episode_seed(self._subject.seed, slot, episode)
                    obs, _ = adapter.reset(seed, None, NO_TASK)
                    yield _response(f"reset {episode}", obs, 0.0, False, False)
                    episode, over = episode + 1, False
                if number:
                    obs, *rest, _ = five_of(adapter.step(action))
                    moment = _response(f"step {number}", obs, *rest)
                    over = moment.over
                    yield moment


def _rows(pool: Pool, actions: list[list[Any]]) -> Iterator[list[EnvResponse]]:
    """What a pool returns of each slot, step by step."""
    space = pool.spec.observation_space
    for number, batch in enumerate([None, *zip(*actions, strict=True)]):
        step = pool.reset() if batch is None else pool.step(list(batch))
        what = f"step {number}" if number else "reset 0"
        flags = zip(step.reward, step.terminated, step.truncated, strict=True)
        yield [
            _response(
                what,
                part_of(space, step.final_obs if ended else step.obs, slot),
                *values,
            )
            for slot, (ended, values) in enumerate(zip(step.ended, flags, strict=True))
        ]


def _response(
    what: str, obs: Any, reward: Any, terminated: Any, truncated: Any
) -> EnvResponse:
    over, cut = bool(terminated), bool(truncated)
    number = as_reward(reward)
    return EnvResponse(what, copy.deepcopy(obs), number, over, cut, None, over or cut)


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _text(findings: list[Finding]) -> str:
    said = (
        f"{one.measured} ({one.remedy})" if one.remedy else one.measured
        for one in findings
    )
    return "; ".join(said)
