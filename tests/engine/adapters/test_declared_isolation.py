"""What an env declares, and what was saved of it, is found where the env is."""

from __future__ import annotations

import importlib

import gymnasium as gym
import pytest

from corral.engine.adapters.isolation import (
    IsolationVerdict,
    edition_of,
    isolation_of,
    save_verdict,
    saved_verdict,
    subject_of,
)


class Declares(gym.Env):
    metadata = {"corral.isolation": "slot"}  # noqa: RUF012 - Gymnasium's own way


class Silent(gym.Env):
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path / "verdicts"))
    return tmp_path / "verdicts"


def verdict_on(env, **changes):
    values = {"subject": subject_of(env), "edition": edition_of(env)}
    return IsolationVerdict(
        **{**values, "isolation": "slot", "reason": "tried", **changes}
    )


def test_nobody_said_anything():
    assert isolation_of(Silent()) is None


def test_a_registered_env_is_its_id_and_its_package():
    env = gym.make("CartPole-v1")
    assert subject_of(env) == "CartPole-v1"
    assert edition_of(env) == f"gymnasium {gym.__version__}"


def test_a_package_that_names_its_files_alone_is_found(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    (site / "robots_of_files").mkdir(parents=True)
    text = "import gymnasium\n\nclass Robot(gymnasium.Env):\n    pass\n"
    (site / "robots_of_files" / "__init__.py").write_text(text)
    about = site / "some_robots-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: some-robots\nVersion: 1.2\n")
    (about / "RECORD").write_text("robots_of_files/__init__.py,,\n")
    monkeypatch.syspath_prepend(site)
    module = importlib.import_module("robots_of_files")
    assert edition_of(module.Robot()) == "some-robots 1.2"


def test_an_env_of_no_package_is_its_class_and_its_text():
    assert subject_of(Silent()) == f"{__name__}:Silent"
    assert edition_of(Silent()).startswith("source ")


def test_a_saved_verdict_is_found_through_wrappers():
    env = gym.wrappers.TimeLimit(Silent(), 5)
    save_verdict(verdict_on(env))
    assert isolation_of(env) == saved_verdict(Silent()) == verdict_on(env)


def test_a_later_one_takes_its_place():
    save_verdict(verdict_on(Silent()))
    save_verdict(verdict_on(Silent(), isolation="shared", isolate_rng=True))
    found = saved_verdict(Silent())
    assert found is not None and found.isolation == "shared" and found.isolate_rng


def test_another_edition_has_no_verdict():
    save_verdict(verdict_on(Silent(), edition="robots 1.0"))
    assert saved_verdict(Silent()) is None


def test_a_declaration_wins():
    save_verdict(verdict_on(Declares(), isolation="shared"))
    found = isolation_of(Declares())
    assert found is not None and found.isolation == "slot"
    assert found.reason == 'metadata["corral.isolation"] is "slot"'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}'])
def test_a_file_that_is_no_verdict_says_nothing(text):
    save_verdict(verdict_on(Silent())).write_text(text)
    assert saved_verdict(Silent()) is None


def test_the_folder_is_the_users_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CORRAL_VERDICTS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = save_verdict(verdict_on(Silent()))
    assert path.parent == tmp_path / "corral" / "verdicts"
