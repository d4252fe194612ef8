"""A file is replaced by one that is whole, or not at all."""

import os

import pytest

from corral.errors import WriteFailed
from corral.train.run.directory import replacing, write_text


@pytest.fixture
def path(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "file"


def test_the_new_file_takes_the_place_of_the_old(path):
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file"]


def test_whoever_fails_while_writing_leaves_the_old_one(path):
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half of the n")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(WriteFailed, match="No such file or directory"):
        write_text(tmp_path / "none" / "file", "text")


def test_content_and_then_name_are_on_the_disk(path, monkeypatch):
    done, replace = [], os.replace

    def sync(descriptor):
        where = os.readlink(f"/proc/self/fd/{descriptor}")
        size = os.fstat(descriptor).st_size
        done.append("folder" if where == str(path.parent) else f"{size} bytes")

    def rename(draft, target):
        done.append("name")
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    write_text(path, "new")
    assert done == ["3 bytes", "name", "folder"]
