"""What `import corral` offers, and what it leaves alone."""

import functools
import subprocess
import sys

import corral

HEAVY = ("ray", "torch", "stable_baselines3", "pettingzoo", "rich", "mujoco")
USE_ALL = "import corral; [getattr(corral, name) for name in corral.__all__]"


def modules_after(statement: str) -> set[str]:
    """The top-level modules a fresh interpreter holds after `statement`."""
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    code = f"{statement}\n{show}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


@functools.cache
def cpu_seconds_of(statement: str) -> float:
    """What a fresh interpreter spends on it: the least of three, without waiting."""
    code = f"{statement}\nimport time; print(time.process_time())"
    seconds = []
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0, result.stderr
        seconds.append(float(result.stdout.split()[-1]))
    return min(seconds)


def test_the_root_offers_these_names():
    assert corral.__all__ == [
        "AgainstRandom",
        "Cluster",
        "Collector",
        "Crew",
        "Decision",
        "EnvSpec",
        "Episode",
        "Evaluation",
        "FlattenedAgents",
        "ObsNorm",
        "Policy",
        "Pool",
        "RewardNorm",
        "Rollout",
        "StandIn",
        "StayingAgents",
        "Step",
        "Trajectories",
        "Trials",
        "collect",
        "errors",
        "evaluate",
        "load_policy",
        "make",
        "make_async",
        "make_multi",
        "make_sb3",
        "make_shared_policy",
        "map",
        "register_codec",
        "replay",
        "run_episodes",
        "take_turns",
        "this_worker",
        "two_groups",
    ]


def test_a_name_that_was_used_once_is_found_at_once():
    assert corral.Decision is vars(corral)["Decision"]


def test_all_is_sorted_and_without_doubles():
    assert list(corral.__all__) == sorted(set(corral.__all__))


def test_every_exported_name_is_there():
    missing = [name for name in corral.__all__ if not hasattr(corral, name)]
    assert not missing


def test_star_import_gives_exactly_the_exported_names():
    names: dict[str, object] = {}
    exec("from corral import *", names)
    assert names.keys() - {"__builtins__"} == set(corral.__all__)


def test_import_corral_imports_nothing_heavy():
    assert not modules_after("import corral").intersection(HEAVY)


def test_using_every_name_imports_no_package_but_those_that_corral_needs():
    needed = "import cloudpickle, gymnasium, numpy"
    more = modules_after(USE_ALL) - modules_after(needed) - sys.stdlib_module_names
    assert {name for name in more if not name.startswith("_")} <= {"corral"}


def test_import_corral_takes_less_than_import_gymnasium():
    assert cpu_seconds_of("import corral") < cpu_seconds_of("import gymnasium")


def test_using_every_name_takes_less_than_three_times_import_gymnasium():
    assert cpu_seconds_of(USE_ALL) < 3 * cpu_seconds_of("import gymnasium")


def test_gymnasium_names_of_dropin_import_nothing_heavy():
    statement = "from corral.dropin import AsyncVectorEnv, SyncVectorEnv"
    assert not modules_after(statement).intersection(HEAVY)


def test_modules_of_the_root_need_no_import_of_their_own():
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import corral; corral.errors.EnvError; corral.dropin.SyncVectorEnv",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


def test_import_corral_starts_no_thread_and_no_process():
    code = (
        "import corral, multiprocessing, threading\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not multiprocessing.active_children()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
