"""The report as a page: everything in it, nothing fetched."""

from html.parser import HTMLParser

from samples import ASYNC, entry, failed, group, report

from corral.tools.bench.candidates import LOOP, PEERS, layout
from corral.tools.bench.html_report import page
from corral.tools.bench.results import group_of

COMMAND = ["corral", "bench", "Sample-v0", "--kwargs", '{"a": 1}']


class Reader(HTMLParser):
    """What a browser would find."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        loads = ("src", "href", "xlink:href", "data", "action")
        self.addresses += [value for name, value in attrs if name in loads]

    def handle_data(self, data):
        self.words.append(data)


def read(*groups, **changes):
    return Reader(page(report(*groups, **changes), COMMAND))


def test_nothing_is_loaded_from_anywhere():
    text = page(report(), COMMAND)
    assert all(address.startswith("#") for address in Reader(text).addresses)
    assert not {"script", "link", "img", "iframe"}.intersection(Reader(text).tags)
    assert "@import" not in text
    assert "url(http" not in text


def test_three_pictures_and_a_table():
    found = read(group(1), group(8))
    assert found.tags.count("svg") == 3
    assert found.tags.count("table") == 1


def test_one_size_alone_is_drawn_as_bars():
    found = read(group(8))
    assert found.tags.count("svg") == 3
    assert "env steps per second" in found.words


def test_it_says_what_was_run_and_what_to_do():
    words = "".join(read(group(1), group(8)).words)
    assert "Use one env in 2 processes" in words
    assert "corral bench Sample-v0 --kwargs '{\"a\": 1}'" in words
    assert "a processor" in words


def test_failures_and_missing_peers_are_in_it():
    broken = failed(ASYNC, "<b>it broke</b>")
    found = read(group(8, 2, broken), missing=(PEERS["sb3"],), interrupted=True)
    words = "".join(found.words)
    assert "<b>it broke</b>" in words
    assert "b" not in found.tags
    assert "pip install stable-baselines3" in words
    assert "Interrupted" in words


def test_a_thread_per_env_is_a_line_of_its_own():
    words = read(
        group(4, 2, entry(layout("thread", 2), 1.0), entry(layout("thread", 4), 2.0)),
        group(8, 2, entry(layout("thread", 2), 1.0), entry(layout("thread", 8), 2.0)),
    ).words
    assert "Corral, threads" in words
    assert "Corral, a thread per env" in words


def test_nothing_measured_is_a_page_too():
    found = read(group_of(8, 2, [failed(LOOP, "it broke")]))
    assert "svg" not in found.tags
    assert "it broke" in "".join(found.words)
