"""A page is one file, and what it is given as text stays text."""

from corral.train.reports.page import Page


def test_a_page_is_a_whole_document():
    text = Page("A title").render()
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>A title</title>" in text
    assert "prefers-color-scheme: dark" in text


def test_text_is_escaped_everywhere():
    nasty = "<script>alert(1)</script>"
    page = Page(nasty, nasty)
    page.heading(nasty)
    page.paragraph(nasty)
    page.code(nasty)
    page.callout(nasty, nasty)
    page.facts({nasty: nasty})
    page.table([nasty], [[nasty]])
    page.figure("<svg></svg>", nasty)
    assert "<script" not in page.render()


def test_pictures_go_in_as_they_are():
    page = Page("A title")
    page.figure('<svg viewBox="0 0 1 1"></svg>', "under it")
    assert '<svg viewBox="0 0 1 1"></svg>' in page.render()
    assert "<figcaption>under it</figcaption>" in page.render()


def test_rows_can_be_marked_and_words_stand_left():
    page = Page("A title")
    page.table(["what", "number"], [["apples", "3"]], texts=(0,), kinds=["strong bad"])
    text = page.render()
    assert '<tr class="strong bad">' in text
    assert '<td class="text">apples</td><td>3</td>' in text


def test_a_short_row_spans_the_rest():
    page = Page("A title")
    page.table(["a", "b", "c"], [["one", "all the rest"]])
    assert 'colspan="2">all the rest</td>' in page.render()
