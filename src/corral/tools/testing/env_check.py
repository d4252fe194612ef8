"""Does an environment keep its contract, here and in a worker?

The questions of `corral doctor` about one env are asked in this process. Then it is
played by hand, in plain loops, and in pools, and both have to agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gymnasium import Space

from corral.core import Factory, Step
from corral.engine.adapters import adapt
from corral.engine.adapters.factories import factories_for
from corral.engine.pool import Pool
from corral.engine.worker.letters import describe
from corral.engine.worker.step_results import as_reward
from corral.tools.doctor.checks import api, repeating, results
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, first_difference
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
        self._judge(results.check_info_pickling)

    def equal_seeds_give_equal_episodes(self) -> None:
        self._judge(repeating.check_determinism, fails_from="warning")

    def global_generators_are_not_used(self) -> None:
        self._judge(repeating.check_generators)

    def close_works_and_may_be_called_twice(self) -> None:
        driver = EpisodeDriver(self._factory, self._subject.seed)
        driver.advance()
        driver.close()
        self._judge(lambda _: api.of_closing(driver), fails_from="note")

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
        found = sorted((one for one in found if one.severity != "ok"), key=_rank)[::-1]
        bad = [one for one in found if _rank(one) >= SEVERITIES.index(fails_from)]
        texts = [
            f"{one.measured} ({one.remedy})" if one.remedy else one.measured
            for one in bad or found
        ]
        assert not bad, "; ".join(texts)
        if found:
            raise Warn("; ".join(texts))

    def _run_in_a_pool(self, slots: int, **options: Any) -> None:
        lives = [self._play(slot) for slot in range(slots)]
        batches = zip(*(actions for actions, _ in lives), strict=True)
        with Pool(self._factory, slots, seed=self._subject.seed, **options) as pool:
            space = pool.spec.observation_space
            steps = [pool.reset(), *(pool.step(list(batch)) for batch in batches)]
        for slot, (_, seen) in enumerate(lives):
            if first_difference(seen, self._play(slot)[1]):
                raise Skip("it runs, but no two runs of it are equal")
            rows = [_row(space, number, one, slot) for number, one in enumerate(steps)]
            apart = first_difference(rows, seen)
            assert not apart, f"{apart} (in a pool and by hand)"

    def _play(self, slot: int) -> tuple[list[Any], list[EnvResponse]]:
        """By hand, with the seeds of a pool's slot: actions, and what they led to."""
        subject = self._subject
        driver = EpisodeDriver(self._factory, subject.seed, slot, small_seeds=False)
        with driver:
            space = driver.env.observation_space
            actions = [driver.draw() for _ in range(subject.moments)]
            seen = [_stored(space, driver.advance())]
            for action in actions:
                if seen[-1].over:  # a pool resets in the step before
                    driver.advance()
                seen.append(_stored(space, driver.step(action)))
        return actions, seen


def _row(space: Space[Any], number: int, step: Step, slot: int) -> EnvResponse:
    """What a pool returned of a slot."""
    obs = step.final_obs if step.ended[slot] else step.obs
    what = f"step {number}" if number else "reset 0"
    figures = (step.reward, step.terminated, step.truncated)
    reward, terminated, truncated = (figure[slot].item() for figure in figures)
    value = part_of(space, obs, slot)
    return EnvResponse(what, value, reward, terminated, truncated, None, False)


def _stored(space: Space[Any], response: EnvResponse) -> EnvResponse:
    """What an env returned, as a pool stores it."""
    return replace(
        response,
        obs=copy.deepcopy(stored(space, response.obs)),
        reward=as_reward(response.reward),
        terminated=bool(response.terminated),
        truncated=bool(response.truncated),
        info=None,
    )


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)
