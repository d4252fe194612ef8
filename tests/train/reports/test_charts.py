"""Pictures are SVG that lives in a page: its colours, its ids, nothing of its own."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from corral.train.reports.charts import (
    CHART_INCHES,
    INK,
    Curve,
    StackedBar,
    bars,
    curves,
    histogram,
    lines,
)

NAMESPACES = 'xmlns="http://www.w3.org/2000/svg"'


def draw_curves():
    lines = [
        Curve("low", [(1, 10.0), (8, 20.0)], "#4a9ede"),
        Curve("high", [(1, 10.0), (8, 3000.0)], INK, "--"),
    ]
    return curves(lines, "envs", "steps")


def draw_bars():
    panels = {
        "8 envs": [
            StackedBar("first", {"a": 1.0, "b": 2.0}, "three"),
            StackedBar("second", {"a": 4.0}),
        ],
        "none": [],
    }
    return bars(panels, {"a": "#4a9ede", "b": "#e06a1b"}, "length", 5.0)


def draw_lines():
    shown = [
        Curve("returns", [(0, 1.0), (1000, 475.0)], "#4a9ede", "-", ""),
        Curve("one point", [(500, 2.0)], INK),
    ]
    spread = [(0, 0.5, 1.5), (1000, 400.0, 500.0)]
    return lines(shown, "steps", "return", spread=spread, level=475.0, floor=0.0)


def draw_histogram():
    groups = {"first": [1.0, 1.0, 2.0], "second": [500.0]}
    return histogram(groups, {"first": INK, "second": "#4a9ede"}, "length", "%")


@pytest.mark.parametrize("draw", [draw_curves, draw_bars, draw_lines, draw_histogram])
def test_a_picture_is_well_formed_and_loads_nothing(draw):
    text = draw()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert "viewBox" in root.attrib
    assert not {"width", "height"}.intersection(root.attrib)
    links = re.findall(r'href="([^"]*)"|url\(([^)]*)\)', text)
    assert all("".join(pair).startswith("#") for pair in links)


@pytest.mark.parametrize("width", [CHART_INCHES, 3.6])
def test_the_legend_of_a_histogram_covers_no_bar(width):
    lengths = [float(number) for number in range(1, 41)]  # bars all over
    groups = {"first half": lengths, "second half": lengths}
    colors = dict.fromkeys(groups, "#4a9ede")
    text = histogram(groups, colors, "length", "%", width)
    legend = text[re.search(r'<g id="[^"]*legend_1"', text).start() :]
    lowest = max(heights(legend))
    bars = re.findall(r'<g id="[^"]*patch_(?:[3-9]|[1-7]\d)">.*?</g>', text, re.S)
    assert len(bars) > 40
    assert lowest < min(height for bar in bars for height in heights(bar))


def heights(svg):
    """Of all points of its paths and texts, from the top of the picture on."""
    points = re.findall(r"[ML] [\d.]+ ([\d.]+)", svg)
    texts = re.findall(r"translate\([\d.]+ ([\d.]+)\)", svg)
    return [float(height) for height in points + texts]


@pytest.mark.parametrize("draw", [draw_curves, draw_bars])
def test_ink_follows_the_page(draw):
    text = draw()
    assert INK not in text
    assert "currentColor" in text


def test_pictures_of_one_page_share_no_ids():
    first, second = (set(re.findall(r'id="([^"]*)"', draw_bars())) for _ in range(2))
    assert first and not first & second
    text = draw_bars()
    ids = set(re.findall(r'id="([^"]*)"', text))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= ids
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= ids


def test_the_legend_is_in_the_order_of_the_picture():
    text = draw_curves()
    assert text.index(">high<") < text.index(">low<")


def test_bars_carry_their_text_and_empty_panels_are_left_out():
    text = draw_bars()
    assert ">three<" in text
    assert ">none<" not in text


def test_lengths_that_are_all_alike_can_be_drawn():
    assert "<svg" in histogram({"all": [10.0, 10.0]}, {"all": INK}, "length", "%")
