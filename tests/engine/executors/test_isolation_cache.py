"""What is remembered of envs holds for the text and arguments it was seen with."""

import functools
import json
import os
import sys

import pytest

from corral.engine.adapters import isolation
from corral.engine.executors import isolation_cache
from corral.engine.executors.contract import Assignment
from corral.engine.executors.isolation_cache import (
    cache_key_of,
    read_cached,
    write_cached,
)
from corral.engine.worker.commands import ShardOptions
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.shared_state import digest_of
from tests.stateful_envs import Plain


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path / "verdicts"))
    monkeypatch.setattr(isolation_cache, "_here", {})


@pytest.fixture
def forget(monkeypatch):
    """Be another process."""
    return lambda: monkeypatch.setattr(isolation_cache, "_here", {})


def key(factory, **options):
    return cache_key_of(Assignment([factory] * 2, [], ShardOptions(**options)), [0, 1])


def seen(*paths, safe=True):
    return SharingAnswer(
        safe, "seen", 3, sources={str(p): digest_of(str(p)) for p in paths}
    )


def test_it_is_kept_by_factory_arguments_and_options():
    one = key(functools.partial(Plain, level=1))
    assert one == key(functools.partial(Plain, level=1))
    assert one != key(functools.partial(Plain, level=2))
    assert one != key(functools.partial(Plain, level=1), isolate_rng=True)


def test_it_is_kept_by_what_is_registered(monkeypatch):
    import gymnasium

    before = key(functools.partial(gymnasium.make, "CartPole-v1"))
    spec = gymnasium.registry["CartPole-v1"]
    monkeypatch.setattr(spec, "max_episode_steps", 7)
    assert key(functools.partial(gymnasium.make, "CartPole-v1")) != before


def test_it_is_forgotten_when_the_text_changes(tmp_path, forget):
    text = tmp_path / "env.py"
    text.write_text("one")
    write_cached(key(Plain), seen(text))
    assert read_cached(key(Plain)) == SharingAnswer(
        True, "seen", 0, sources=seen(text).sources
    )
    text.write_text("two")
    assert read_cached(key(Plain)) is None
    forget()
    assert read_cached(key(Plain)) is None
    text.write_text("one")
    assert read_cached(key(Plain)) is not None


def test_what_is_not_known_is_forgotten_with_the_process(tmp_path, forget):
    write_cached(key(Plain), seen(__file__, safe=None))
    assert read_cached(key(Plain)) is not None
    forget()
    assert read_cached(key(Plain)) is None


def test_what_has_no_name_elsewhere_is_forgotten_with_the_process(forget):
    def local():
        return Plain()

    write_cached(key(local), seen(__file__))
    assert read_cached(key(local)) is not None
    forget()
    assert read_cached(key(local)) is None


def path_of(known):
    (path,) = (isolation.folder() / "tried").iterdir()
    return path


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"format": 1, "safe": 1}', "\0"])
def test_a_damaged_file_says_nothing(damage, forget):
    write_cached(key(Plain), seen(__file__))
    path_of(Plain).write_text(damage)
    forget()
    assert read_cached(key(Plain)) is None


def test_a_file_of_another_format_says_nothing(forget):
    write_cached(key(Plain), seen(__file__))
    path = path_of(Plain)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))
    forget()
    assert read_cached(key(Plain)) is None


def test_a_file_that_others_can_write_to_says_nothing(forget):
    write_cached(key(Plain), seen(__file__))
    path = path_of(Plain)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    forget()
    assert read_cached(key(Plain)) is None


def test_a_folder_that_cannot_be_made_is_no_reason_to_fail(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path / "file"))
    write_cached(key(Plain), seen(__file__))
    assert read_cached(key(Plain)) is not None


def test_there_are_not_more_files_than_so_many(monkeypatch):
    monkeypatch.setattr(isolation_cache, "MAX_CACHE_FILES", 3)
    for number in range(6):
        write_cached(key(functools.partial(Plain, number=number)), seen(__file__))
    assert len(os.listdir(isolation.folder() / "tried")) == 3


def test_what_cannot_be_sent_has_no_key():
    assert key(functools.partial(Plain, file=sys.stdout)) is None
