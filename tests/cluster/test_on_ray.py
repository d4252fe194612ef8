"""A cluster on three real raylets, in a process of its own: see `on_ray`."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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


def output_of(*arguments: str, seconds: float, **environ: str) -> str:
    """Run Python; its process group ends with the test."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.communicate()
    assert process.returncode == 0, output[-8000:]
    return output


def on_raylets(*sentences: str, seconds: float) -> None:
    """Run functions of `on_ray`, on one Ray cluster."""
    output = output_of(str(HERE / "on_ray.py"), *sentences, seconds=seconds)
    for sentence in sentences:
        assert f"\n{sentence}: " in f"\n{output}", output[-8000:]


COMPARED = """
with corral.Pool("CartPole-v1", num_envs=16, backend="serial", seed=0) as pool:
    here = corral.Collector(pool, Tilt()).collect(128)
for name in ("obs", "action", "reward", "terminated", "next_obs"):
    assert np.array_equal(getattr(rollout, name), getattr(here, name)), name
"""


def test_the_guides_example_has_the_numbers_of_one_machine(tmp_path):
    guide = (HERE.parents[1] / "docs" / "guides" / "cluster.md").read_text()
    block = re.search(r"^```python no-run\n(.*?)^```$", guide, re.M | re.S)[1]
    assert 'address="local"' in block
    (tmp_path / "example.py").write_text(block + COMPARED)
    with tempfile.TemporaryDirectory(prefix="corral-ray-", dir="/tmp") as folder:
        # Ray writes a token to the home folder.
        told = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "HOME": folder}
        told["RAY_prestart_worker_first_driver"] = "0"  # of which none is needed
        said = output_of(str(tmp_path / "example.py"), seconds=170, **told)
    assert "(128, 16) node " in said


@pytest.mark.first
def test_numbers_are_those_of_one_machine_also_after_a_loss():
    on_raylets("the_numbers_are_those_of_one_machine_also_after_a_loss", seconds=170)


LOSSES = (
    "losses_are_noticed_and_a_node_that_joins_is_used",
    "sites_are_added_with_a_node_and_a_loss_has_what_had_come_back",
    "a_killed_driver_leaves_nothing",
    "modules_travel_in_a_working_dir",
    "other_versions_of_packages_and_none_of_corral_are_refused",
    "bad_input_is_refused_in_seconds_and_the_doctor_says_what_is_reachable",
    "clusters_share_a_connection_until_the_last_is_closed",
)
RUNS = (
    "runs_learn_the_weights_of_one_machine",
    "a_killed_run_that_is_resumed_learns_the_same",
    "a_wrong_or_missing_token_is_refused",
)


@pytest.mark.slow
def test_losses_and_runs_that_learn_the_weights_of_one_machine():
    """Side by side, each on a Ray cluster of its own: both wait much of the time."""
    run = partial(on_raylets, seconds=600)
    with ThreadPoolExecutor() as side_by_side:
        both = [side_by_side.submit(run, *names) for names in (LOSSES, RUNS)]
    for one in both:
        one.result()
