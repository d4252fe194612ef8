"""The key: made once, private, and not used where others could have had it."""

import os
import subprocess
import sys

import pytest

from corral.engine.faults import signatures
from corral.engine.faults.signatures import KeyUnusable


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without a key."""
    monkeypatch.delenv("CORRAL_KEY")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_it_is_made_when_first_needed_and_kept(home):
    assert signatures.existing_key() is None
    key = signatures.existing_or_new_key()
    path = home / ".local" / "state" / "corral" / "key"
    assert path.read_bytes() == key == signatures.existing_or_new_key()
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["key"]


def test_xdg_names_its_place(home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    signatures.existing_or_new_key()
    assert (home / "state" / "corral" / "key").is_file()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert signatures.key_path() == home / ".local" / "state" / "corral" / "key"


def test_programs_that_start_at_once_get_the_same_one(home):
    code = (
        "from corral.engine.faults import signatures as u; import sys; sys.stdin.read()"
    )
    code += "; print(u.existing_or_new_key().hex())"
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for program in programs:
        program.stdin.close()
    keys = {program.stdout.read() for program in programs}
    assert [program.wait(60) for program in programs] == [0] * 4
    for program in programs:
        program.stdout.close()
    assert keys == {signatures.existing_or_new_key().hex() + "\n"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_one_that_others_could_read_or_write_is_not_used(home, mode):
    signatures.existing_or_new_key()
    signatures.key_path().chmod(mode)
    with pytest.raises(KeyUnusable, match=rf"mode {mode:o}.*delete the key"):
        signatures.existing_or_new_key()


def test_nor_one_in_a_folder_that_others_can_write_to(home):
    signatures.existing_or_new_key()
    signatures.key_path().parent.chmod(0o777)
    with pytest.raises(KeyUnusable, match="mode 777"):
        signatures.existing_key()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nor_one_of_another_user(home):
    signatures.existing_or_new_key()
    os.chown(signatures.key_path(), 12345, -1)
    with pytest.raises(KeyUnusable, match="belongs to user 12345"):
        signatures.existing_key()


def test_nor_a_link_nor_a_damaged_one(home):
    signatures.existing_or_new_key()
    path = signatures.key_path()
    path.write_bytes(b"short")
    with pytest.raises(KeyUnusable, match="5 bytes instead of 32"):
        signatures.existing_key()
    (home / "other").write_bytes(b"k" * 32)
    path.unlink()
    path.symlink_to(home / "other")
    with pytest.raises(KeyUnusable, match="cannot be read"):
        signatures.existing_key()


def test_a_home_that_cannot_be_written_is_told(home, monkeypatch):
    (home / ".local").touch()
    with pytest.raises(KeyUnusable, match=r"cannot be (read|written).*CORRAL_KEY=FILE"):
        signatures.sign(signatures.RUN_FILE, b"data")


def test_a_signature_is_of_its_data_its_kind_and_its_key(home):
    signed = signatures.sign(signatures.RUN_FILE, b"data")
    assert signatures.doubt(signatures.RUN_FILE, b"data", signed) == ""
    assert "changed" in signatures.doubt(signatures.RUN_FILE, b"datA", signed)
    assert "changed" in signatures.doubt(signatures.FAULT_FILE, b"data", signed)
    assert "not signed" in signatures.doubt(signatures.RUN_FILE, b"data", None)
    assert "another kind" in signatures.doubt(signatures.RUN_FILE, b"data", "md5 x y")
    signatures.key_path().unlink()
    assert "another key" in signatures.doubt(signatures.RUN_FILE, b"data", signed)
    signatures.sign(signatures.RUN_FILE, b"")
    assert "another key" in signatures.doubt(signatures.RUN_FILE, b"data", signed)
