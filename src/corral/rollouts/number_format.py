"""Numbers as text, with significant digits only.

    score(0.97, 0.03)         0.97 ± 0.03
    score(351.94, 101.4)      352 ± 101
    score(-1234.5678, 0.0)    -1234.5678 ± 0
    number(0.012345)          0.01235
    rate(0.995)               99.5%

The terminal, `corral eval`, `corral list` and the reports all use it; there are no
commas, so that logs can be parsed.
"""

from __future__ import annotations

import math

# Significant digits of a number without a standard deviation.
SIGNIFICANT_DIGITS = 4
# Of a mean whose standard deviation is 0.
EXACT_DIGITS = 8
# Of a standard deviation; its mean has as many decimal places.
SPREAD_DIGITS = 2
# Smaller numbers are written as 1.2e-05.
SMALLEST_FIXED = 1e-4


def score(mean: float, spread: float | None = None) -> str:
    """A mean and its standard deviation, with as many decimal places.

    Without a standard deviation, the same as `number`.
    """
    if spread is None or not math.isfinite(mean) or not math.isfinite(spread):
        return number(mean)
    if spread <= abs(mean) * 10.0**-EXACT_DIGITS:  # zero, but for rounding
        return f"{number(mean, EXACT_DIGITS)} ± 0"
    if spread < SMALLEST_FIXED:
        return f"{mean:.{EXACT_DIGITS}g} ± {spread:.{SPREAD_DIGITS}g}"
    places = _places(spread, SPREAD_DIGITS)
    left, right = _fixed(mean, places), _fixed(spread, places)
    while places and left[-1] == right[-1] == "0":
        places -= 1
        left, right = left[:-1].rstrip("."), right[:-1].rstrip(".")
    return f"{left} ± {right}"


def number(value: float, digits: int = SIGNIFICANT_DIGITS) -> str:
    """One number, rounded to this many digits, but never before the decimal point."""
    if not math.isfinite(value):
        return str(value)
    if 0 < abs(value) < SMALLEST_FIXED:
        return f"{value:.{digits}g}"
    text = _fixed(value, _places(value, digits))
    return text.rstrip("0").rstrip(".") if "." in text else text


def rate(part: float) -> str:
    """A fraction as a percentage."""
    return f"{number(100.0 * part, 3)}%"


def _places(value: float, digits: int) -> int:
    """Decimal places that this many significant digits take."""
    if value == 0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def _fixed(value: float, places: int) -> str:
    # Adding 0 makes a 0 of what was rounded to -0.
    return f"{round(value, places) + 0.0:.{places}f}"
