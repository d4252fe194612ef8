"""A cluster on three real raylets, in a process of its own: see `on_ray`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed"
    ),
    pytest.mark.skipif(
        sys.platform != "linux", reason="raylets on one host need Linux"
    ),
]
HERE = Path(__file__).parent


def on_raylets(*sentences: str, seconds: float) -> None:
    """Run functions of `on_ray`; the process group ends with the test."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "on_ray.py"), *sentences],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.communicate()
    assert process.returncode == 0, output[-8000:]
    for sentence in sentences:
        assert f"\n{sentence}: " in f"\n{output}", output[-8000:]


@pytest.mark.first
def test_numbers_are_those_of_one_machine_and_a_lost_site_comes_back():
    on_raylets(
        "the_numbers_are_those_of_one_machine",
        "a_killed_actor_is_started_again",
        seconds=170,
    )


@pytest.mark.slow
def test_losses_and_nodes_that_join():
    on_raylets(
        "a_killed_raylet_takes_its_processes_along",
        "a_stopped_actor_is_ended_at_the_deadline",
        "a_killed_driver_leaves_nothing",
        "a_loss_is_an_error_with_what_had_come_back",
        "a_node_that_joins_is_used_after_the_next_end_of_episodes",
        "modules_travel_in_a_working_dir",
        seconds=500,
    )


@pytest.mark.slow
def test_bad_input_is_refused():
    on_raylets("bad_input_is_refused_in_seconds", seconds=300)
    on_raylets("a_wrong_or_missing_token_is_refused", seconds=200)


@pytest.mark.slow
def test_runs_learn_the_weights_of_one_machine():
    on_raylets(
        "a_run_learns_the_weights_of_one_machine", "a_run_of_ant_does_too", seconds=400
    )
