"""PyBullet calls are found, with the line that is right, and right ones are not."""

import importlib
import sys

import pytest

pybullet = pytest.importorskip("pybullet", reason="these calls are PyBullet's")

from corral.tools.doctor.bullet_calls import watch  # noqa: E402


def calls_of(name):
    """What one of the scripts does wrong: function and corrected call."""
    with watch() as calls:
        sys.modules.pop("bullet_scripts", None)
        env = getattr(importlib.import_module("bullet_scripts"), name)()
        for _ in range(2):
            env.step()
        env.close()
    return [(one.function.split(".")[-1], one.corrected) for one in calls.found()]


def test_calls_of_either_import_are_found_and_arithmetic_is_not():
    client = "physicsClientId=self.sim"
    assert calls_of("Careless") == [
        ("__init__", f"p.setGravity(0, 0, gravZ=-9.81, {client})"),
        ("step", f"stepSimulation({client})"),
        ("close", f"disconnect({client})"),
    ]


@pytest.mark.parametrize("name", ["Careful", "WithBulletClient"])
def test_a_simulator_given_by_place_by_name_or_by_a_client_object_is_enough(name):
    assert calls_of(name) == []


def test_the_simulator_of_a_part_is_reached_through_the_part():
    (call,) = calls_of("Inside")
    text = "p.performCollisionDetection(physicsClientId=self.part.sim)"
    assert call == ("step", text)


def test_a_number_that_was_not_kept_is_kept_first():
    assert calls_of("Forgetful") == [
        ("__init__", "self.client = p.connect(p.DIRECT)"),
        ("step", ""),  # map makes this call
        ("close", "p.disconnect(physicsClientId=self.client)"),
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="it needs the columns of code")
def test_a_call_under_another_name_is_corrected_under_that_name():
    client = "physicsClientId=self.sim"
    assert calls_of("OtherNames") == [
        ("__init__", f"wipe({client})"),
        ("step", f"gravity(-1.6, {client})"),
        ("step", f"gravity(-9.81, {client})"),
        ("step", f"self.advance({client})"),
        ("leave", "how(physicsClientId=client)"),
    ]


def test_pybullet_is_itself_again_afterwards():
    before = pybullet.stepSimulation
    with watch():
        assert pybullet.stepSimulation is not before
    assert pybullet.stepSimulation is before
