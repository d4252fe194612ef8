"""The arithmetic of efficiency, CPU burnt and the split of time."""

import pytest
from samples import turn

from corral.tools.bench.measure import Rates
from corral.tools.bench.results import (
    BareEnvCost,
    burnt_by,
    limits_of,
    rates_of,
    ratio,
    split_of,
    width,
)


def test_a_unit_is_a_step_without_the_policy():
    unit = BareEnvCost.of([turn(500.0, steps=1000, policy=1.0, cpu=2.0, episodes=50)])
    assert unit.step == pytest.approx(1e-3)
    assert unit.cpu == pytest.approx(1e-3)
    assert unit.resets == pytest.approx(0.05)


def test_an_env_that_computes_has_a_whole_core():
    assert BareEnvCost.of([turn(100.0, steps=100, cpu=0.95)]).share == 1.0


def test_time_that_other_programs_took_is_not_waiting():
    assert BareEnvCost.of([turn(100.0, steps=100, cpu=0.5, queued=0.5)]).share == 1.0


def test_an_env_that_sleeps_has_a_part_of_a_core():
    assert BareEnvCost.of([turn(100.0, steps=100, cpu=0.1)]).share == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("num_envs", "cores", "share", "expected"),
    [(1, 4, 1.0, 1), (8, 4, 1.0, 4), (8, 2, 0.5, 4), (8, 4, 0.0, 8), (8, 4, 8.0, 1)],
)
def test_width_is_bounded_by_envs_and_by_cores(num_envs, cores, share, expected):
    assert width(num_envs, cores, share) == expected


def test_the_limit_is_cores_times_one_env():
    limits = limits_of([turn(100.0), turn(50.0)], num_envs=8, cores=2)
    assert limits.rounds == pytest.approx((200.0, 100.0))


def test_the_policy_is_counted_into_the_limit():
    # 100 batches of 10 steps of 1 ms, each after 5 ms of policy: 5 + 10 × 1 / 2 ms.
    loop = turn(1000 / 1.5, steps=1000, policy=0.5)
    (limit,) = limits_of([loop], num_envs=10, cores=2).rounds
    assert limit == pytest.approx(10 / 0.010)


def test_rows_that_are_resets_are_no_steps():
    unit = BareEnvCost.of([turn(100.0, steps=100, episodes=25)])
    rates = rates_of([turn(1000.0)], unit.steps_per_row)
    assert rates.rounds == pytest.approx((800.0,))


def test_cpu_beyond_the_envs_own_work_is_burnt():
    unit = BareEnvCost.of([turn(1000.0, cpu=1.0)])
    # One second of wall, 1.6 of CPU, 1.0 of which is the envs' and the policy's.
    assert burnt_by(
        [turn(900.0, steps=900, cpu=1.6, policy=0.1)], unit
    ) == pytest.approx(0.6)
    assert burnt_by([turn(1000.0, cpu=0.5)], unit) == 0.0


def test_the_split_adds_up():
    # 10 s: 1 s policy, 2 workers with 12 s of envs and 14 s busy, 8 s of waiting.
    ten = turn(100.0, steps=1000, policy=1.0, env=12.0, busy=14.0, waiting=8.0)
    split = split_of([ten], workers=2)
    assert (split.env, split.policy, split.waiting) == pytest.approx((0.6, 0.1, 0.1))
    assert split.copying == pytest.approx(0.2)


def test_the_split_never_exceeds_the_whole():
    odd = turn(1000.0, policy=0.2, env=9.0, busy=0.0, waiting=5.0)
    split = split_of([odd], workers=1)
    parts = (split.env, split.policy, split.waiting, split.copying)
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(1.0)


def test_nobody_counted_no_split():
    assert split_of([turn(1000.0)], workers=1) is None


def test_one_that_failed_is_held_against_the_rounds_it_finished():
    assert ratio(Rates((2.0,)), Rates((1.0, 100.0))) == 2.0
    assert ratio(Rates(()), Rates((1.0,))) is None
