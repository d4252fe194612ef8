"""Numbers are shown with as many digits as mean something."""

import math

import pytest

from corral.rollouts.number_format import number, rate, score


@pytest.mark.parametrize(
    ("mean", "spread", "shown"),
    [
        (0.97, 0.03, "0.97 ± 0.03"),
        (0.96999, 0.0299, "0.97 ± 0.03"),
        (0.97, 0.17059, "0.97 ± 0.17"),
        (0.9712, 0.0312, "0.971 ± 0.031"),
        (351.94, 101.4, "352 ± 101"),
        (136.04, 14.6, "136 ± 15"),
        (9.5, 0.996, "9.5 ± 1.0"),
        (-1234.5678, 250.3, "-1235 ± 250"),
        (-1234.5678, 0.0, "-1234.5678 ± 0"),
        (500.0, 0.0, "500 ± 0"),
        (0.0, 0.0, "0 ± 0"),
        (-0.0001, 3.14, "0.0 ± 3.1"),
        (0.3, 5e-17, "0.3 ± 0"),  # what the deviation of equal numbers comes to
        (2.5e-06, 1.25e-07, "2.5e-06 ± 1.2e-07"),
        (1e6, 12.0, "1000000 ± 12"),
        (math.nan, math.nan, "nan"),
        (-math.inf, math.nan, "-inf"),
    ],
)
def test_the_spread_decides_how_many_digits_the_mean_has(mean, spread, shown):
    assert score(mean, spread) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (312.25, "312.2"),
        (-1234.5678, "-1235"),
        (123456.7, "123457"),
        (0.012345, "0.01235"),
        (0.97, "0.97"),
        (500.0, "500"),
        (100, "100"),
        (0.0, "0"),
        (1.25e-7, "1.25e-07"),
        (math.nan, "nan"),
    ],
)
def test_a_number_by_itself_has_four_digits_and_all_before_the_point(value, shown):
    assert number(value) == score(value) == shown


@pytest.mark.parametrize(
    ("part", "shown"), [(1.0, "100%"), (0.995, "99.5%"), (0.97, "97%"), (0.0, "0%")]
)
def test_a_rate_is_in_percent(part, shown):
    assert rate(part) == shown
