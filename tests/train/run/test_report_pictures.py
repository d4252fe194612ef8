"""The pictures of the page about a run: their axes, and their widths."""

import re

from small_runs import made

from corral.train.reports.page import NARROW_INCHES
from corral.train.run import report


def test_the_steps_begin_at_0(tmp_path):
    metrics = [{"step": n, "episode/return": 1.0} for n in (90_000, 91_000)]
    page = report.page(made(tmp_path / "run", metrics))
    assert page.count("<svg") == 2
    labels = [re.findall(r">([\d.]+k?)</text>", svg) for svg in page.split("<svg")[1:]]
    assert [ticks[0] for ticks in labels] == ["0", "0"]


def test_nothing_in_it_is_wider_than_a_telephone(trained):
    """Of every picture there is one that is legible there; none makes it scroll."""
    page = report.page(trained)
    assert '<div class="wide"><svg' not in page
    pictures = re.findall(
        r'(<div class="broad">)?<svg[^>]*viewBox="0 0 ([\d.]+) ', page
    )
    narrow = [float(width) for broad, width in pictures if not broad]
    assert len(narrow) > 10 and max(narrow) <= 72 * NARROW_INCHES
    assert page.count('<div class="broad">') == page.count('<div class="narrow">') > 0
