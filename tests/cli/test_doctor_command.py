"""`corral doctor ENV`: what it prints, writes, saves, and ends with."""

from __future__ import annotations

import json

import pytest

from corral.cli.main import main


@pytest.fixture
def doctor(here, monkeypatch, capsys):
    """Run `corral doctor`; returns status, stdout, stderr."""
    monkeypatch.setenv("CORRAL_VERDICTS", str(here / "verdicts"))

    def run(*arguments):
        status = main(["doctor", *arguments])
        return status, *capsys.readouterr()

    return run


SOME = ("--only", "machine,isolation,rendering")


@pytest.mark.parametrize(
    "some", [SOME, pytest.param((), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_healthy_env_passes_its_checks(doctor, here, some):
    status, out, _ = doctor("CartPole-v1", "--json", "found.json", "--save", *some)
    assert status == 0, out
    document = json.loads((here / "found.json").read_text())
    found = {finding["check"]: finding for finding in document["findings"]}
    assert {"machine", "isolation", "rendering"} <= found.keys()
    assert all(one["severity"] in ("ok", "note") for one in document["findings"])
    assert 'envs = corral.make("CartPole-v1", num_envs=8)' in out
    (saved,) = (here / "verdicts").iterdir()
    assert json.loads(saved.read_text())["isolation"] == "shared"


def test_the_worst_finding_is_the_status(doctor):
    status, out, _ = doctor("cli_envs:Raises", "--only", "isolation", "--num-envs", "3")
    assert status == 1
    assert "the first env fails in step()" in " ".join(out.split())
    assert "from cli_envs import Raises" in out
    assert 'corral.make(Raises, num_envs=3, isolation="slot")' in out
    assert "Run it in parallel only with the options below." in out
    assert "fix the problems" not in out


def test_nothing_is_saved_of_what_is_not_known(doctor, here):
    arguments = ("cli_envs:AlwaysRaises", "--only", "isolation", "--save")
    status, out, err = doctor(*arguments)
    assert "RuntimeError: never works" in out and "corral.make" not in out
    assert status == 2 and "nothing to save" in err
    assert not (here / "verdicts").exists()


def test_a_verdict_that_cannot_be_kept_is_told(doctor, here):
    (here / "verdicts").write_text("no folder")
    status, out, err = doctor("CartPole-v1", "--only", "isolation", "--save")
    assert "bit for bit" in out
    assert status == 2 and "verdicts cannot be written to" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name an environment"),
        (("CartPole-v1", "--replay", "fault.zip"), "name an environment"),
        (("CartPole-v1", "--json", "nowhere/found.json"), "cannot be written"),
        (("CartPole-v1", "--json", "."), "is a directory"),
        (("CartPole-v1", "--only", "magic"), "only is 'magic'; choose one of machine"),
        (("CartPool-v1",), "near names: CartPole"),
    ],
)
def test_what_has_no_meaning_is_refused(doctor, arguments, words):
    status, _, err = doctor(*arguments)
    assert status == 2 and words in err
