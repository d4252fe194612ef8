"""An env that fails while it is tried fails where the caller meets it, and not before.

The same error with every backend: what a trial run met is never the caller's error.
"""

import pytest
from failing_envs import FailsInConstructor, FailsInReset, FailsInStep

import corral
from corral.errors import EnvError, StartError

BACKENDS = ("auto", "process", "thread", "serial")


def error_of(call):
    """The type of the env's own exception, its text, and the command that raised it."""
    with pytest.raises(EnvError) as caught:
        call()
    fault = caught.value.fault
    return fault.error_type, fault.error_text, fault.command


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_whose_step_raises_starts_and_raises_in_the_callers_step(backend):
    with corral.Pool(FailsInStep, 3, backend=backend) as pool:
        pool.reset()
        told = error_of(lambda: pool.step([0, 0, 0]))
    assert told == ("ValueError", "the gripper is stuck", "step")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_whose_reset_raises_starts_and_raises_in_the_callers_reset(backend):
    with corral.Pool(FailsInReset, 3, backend=backend) as pool:
        told = error_of(pool.reset)
    assert told == ("ValueError", "no such arena", "reset")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constructor_that_raises_gives_the_same_error_everywhere(backend):
    with pytest.raises(StartError) as caught:
        corral.Pool(FailsInConstructor, 3, backend=backend)
    fault = caught.value.fault
    assert (fault.error_type, fault.error_text) == ("ValueError", "no licence")
    assert (fault.command, fault.slot) == ("construct", 0)
