"""Each check finds what it is for, says what to do, and has tried it.

What concerns a whole process is looked at through `check`, in workers; the rest by the
measuring half alone.
"""

from __future__ import annotations

import functools
import re
import socket
import sys
from pathlib import Path

import misbehaving as bad
import numpy as np
import pytest

from corral.doctor import check
from corral.errors import OptionError
from corral.testing import Leaking
from corral.tools.doctor.checks import (
    api,
    cost,
    display,
    repeating,
    results,
)
from corral.tools.doctor.driver import (
    EnvResponse,
    EpisodeDriver,
    first_difference,
    run_alone,
)
from corral.tools.doctor.examination import recommend, subject_for
from corral.tools.doctor.report import Finding
from corral.tools.doctor.subject import profile_of


def found(env, name, **options):
    """What one check says of an env."""
    return check(env, only=[name], **options).of(name)


# Tasks --------------------------------------------------------------------------------


def test_an_env_that_ignores_its_task_is_told():
    (finding,) = found(bad.IgnoresItsTask, "tasks")
    assert finding.severity == "warning"
    assert finding.measured.startswith("told its task by set_task, it ignores it: 0.")
    assert "task_by=" in finding.remedy


@pytest.mark.parametrize(
    ("env", "severity", "words"),
    [
        (bad.UsesItsTask, "ok", "told its task by set_task, it does something else"),
        (bad.RarelyShowsItsTask, "note", "get_task() shows that it knows them"),
        (bad.UndecidedAboutItsTask, "note", "two runs with one task differ"),
    ],
)
def test_an_env_that_may_use_its_task_is_not_accused(env, severity, words):
    (finding,) = found(env, "tasks")
    assert finding.severity == severity and words in finding.measured


def test_tasks_can_be_given_where_the_env_draws_none():
    (finding,) = found(bad.DrawsNoTasks, "tasks")
    assert finding.severity == "note" and "tasks=[one, another]" in finding.remedy
    (finding,) = found(bad.DrawsNoTasks, "tasks", tasks=[1.0, 2.0])
    assert finding.severity == "ok" and finding.data == {"task_by": "set_task"}
    assert found("CartPole-v1", "tasks") == []  # has none
    (finding,) = found("CartPole-v1", "tasks", tasks=[1, 2])
    assert finding.measured.startswith("told its task by options, it ignores it: 1 and")


def shown_goal(env, task):
    """The cart may go so far."""
    env.unwrapped.x_threshold = task


def test_the_way_that_tasks_are_told_can_be_given():
    tasks = [0.01, 2.4]
    (finding,) = found("CartPole-v1", "tasks", tasks=tasks, task_by=shown_goal)
    assert finding.severity == "ok" and finding.data == {"task_by": "shown_goal"}
    with pytest.raises(OptionError, match="task_by is 3; name a method"):
        found("CartPole-v1", "tasks", tasks=[1, 2], task_by=3)


# Sharing a process --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (bad.OneWorld, "OneWorld.world changed. The first env, step"),
        (bad.CrashesInCompany, "two of them were tried in ended (SIGABRT)"),
        (bad.ClosesAll, "RuntimeError: not connected"),
    ],
)
def test_envs_that_disturb_each_other_are_told(env, words):
    report = check(env, only=["isolation"])
    (finding,) = report.of("isolation")
    assert finding.severity == "problem"
    assert words in finding.measured
    assert finding.options == {"isolation": "slot"}
    assert "without an error" in finding.tried
    assert 'isolation="slot"' in report.recommendation.code
    assert report.verdict.isolation == "slot"


def test_company_is_not_blamed_for_what_happened_once(tmp_path):
    factory = functools.partial(bad.FailsOnce, tmp_path / "mark")
    report = check(factory, only=["isolation"])
    (finding,) = report.of("isolation")
    assert (finding.severity, finding.options) == ("warning", {})
    assert "RuntimeError: the server is busy" in finding.measured
    assert "is not known" in finding.measured and report.verdict is None


def test_an_env_that_no_seed_repeats_is_not_judged_by_its_differences():
    report = check(bad.Undecided, only=["isolation"])
    (finding,) = report.of("isolation")
    assert finding.severity == "note" and report.verdict is None
    assert "no two runs of one env are equal" in finding.measured


def test_an_env_that_is_built_after_another_was_closed_is_looked_at(tmp_path):
    factory = functools.partial(bad.ReusesNumbers, tmp_path)
    (finding,) = found(factory, "isolation")
    assert finding.severity == "problem"
    assert "behaves differently when another env runs" in finding.measured
    assert "obs[1] is" in finding.measured


def test_what_an_env_says_of_itself_is_tried_all_the_same():
    (finding,) = found(bad.SaysItShares, "isolation")
    assert finding.severity == "problem"
    assert finding.remedy.endswith("its metadata says that it may share one")


def test_envs_with_a_simulator_each_but_calls_that_name_none_are_told():
    pytest.importorskip("pybullet", reason="the twin is written for PyBullet")
    twin = Path(__file__).parents[2] / "zoo" / "broken_pendulum.py"
    sys.path.insert(0, str(twin.parent))
    try:
        from broken_pendulum import BrokenPendulum

        report = check(BrokenPendulum, only=["isolation", "pybullet"])
    finally:
        sys.path.remove(str(twin.parent))
    (finding,) = report.of("isolation")
    assert finding.severity == "problem" and finding.options == {"isolation": "slot"}
    (calls,) = report.of("pybullet")
    assert calls.severity == "problem" and "simulator 0" in calls.measured
    text = str(report)
    assert "self.client = pybullet.connect(pybullet.DIRECT)" in text
    line = "client.stepSimulation(physicsClientId=self.client.client)"
    assert f"BulletPendulum.step: {line}" in text or f"step: {line}" in text


@pytest.mark.slow
def test_upkie_is_told():
    pytest.importorskip("upkie", reason="upkie is not installed")

    def make():
        import gymnasium
        import upkie.envs

        upkie.envs.register()
        options = {"gui": False, "regulate_frequency": False}
        return gymnasium.make("Upkie-PyBullet-Pendulum", **options)

    report = check(make)
    (finding,) = report.of("isolation")
    assert finding.measured.startswith("not safe to share a process: ")
    assert report.verdict.edition == "upkie 13.1.0"
    assert [one.check for one in report.problems] == ["isolation", "pybullet"]
    (calls,) = report.of("pybullet")
    assert len(calls.data["calls"]) == 27
    line = "pybullet.stepSimulation(physicsClientId=self._bullet)"
    assert f"    line 306, PyBulletBackend.step: {line}" in calls.details
    assert {one.check for one in report.warnings} <= {"infos"}  # which are large


def test_good_manners_among_threads_are_told_as_well():
    (finding,) = found(bad.Walk, "threads")
    assert finding.severity in ("ok", "note")  # threads may be worth it
    assert finding.data["threads"] is True and finding.data["gain"] > 0


def test_envs_that_disturb_each_other_do_so_in_threads():
    (finding,) = found(bad.OneWorld, "threads")
    assert (finding.severity, finding.data) == ("note", {"threads": False})
    assert "state that all envs of a process share: OneWorld." in finding.measured


def test_threads_are_not_blamed_for_an_env_that_no_seed_repeats():
    (finding,) = found(bad.Undecided, "threads")
    assert finding.data["threads"] is True
    assert "ran without an error" in finding.measured


def test_an_env_of_the_main_thread_is_no_problem_but_not_for_threads():
    (finding,) = found(bad.MainThreadOnly, "threads")
    assert finding.severity == "note"
    assert "only in the main thread" in finding.measured
    assert finding.data == {"threads": False}


# Randomness ---------------------------------------------------------------------------


def test_global_generators_that_matter_get_isolate_rng_which_helps():
    (finding,) = found(bad.ReseedsGlobally, "global RNG")
    assert finding.severity == "warning"
    assert "numpy.random" in finding.measured
    assert finding.options == {"isolate_rng": True}
    assert finding.tried == "with isolate_rng=True two such runs were equal"


@pytest.mark.parametrize("env", [bad.DrawsGlobally, bad.DrawsInVain])
def test_global_generators_matter_where_values_depend_on_them(env):
    shared = [repeating.measure_with_noise(env, 0, 9, n, False) for n in (1, 2)]
    own = [repeating.measure_with_noise(env, 0, 9, n, True) for n in (1, 2)]
    assert bool(first_difference(*shared)) == (env is bad.DrawsGlobally)
    assert not first_difference(*own)


def test_the_generator_and_the_call_are_named():
    def make():
        import random

        random.random()
        return bad.DrawsGlobally()

    uses = repeating.measure_uses(make, 0, 10)
    assert uses == {"random": "the constructor", "numpy.random": "step"}
    assert repeating.measure_uses(bad.Walk, 0, 10) == {}


@pytest.mark.fresh_workers  # forked ones would have the same hashes
@pytest.mark.parametrize("env", [bad.Undecided, bad.ReadsSets])
def test_an_env_that_no_seed_repeats_is_told(env, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    (finding,) = found(env, "determinism")
    assert finding.severity == "warning"
    assert "step 1: obs[0] is" in finding.measured
    assert "Sort sets" in finding.remedy


def test_what_survives_a_reset_is_told():
    alone = run_alone(bad.Remembers, 0, 0, 30)
    again = repeating.measure_again(bad.Remembers, 0, 30)
    assert first_difference(alone, again) == "step 1: obs[1] is 1 and 29"
    clean = run_alone(bad.Walk, 0, 0, 30)
    assert not first_difference(clean, repeating.measure_again(bad.Walk, 0, 30))


# What a process shares, and what is left in it ----------------------------------------


@pytest.fixture(scope="module")
def untidy():
    """What is said of an env with several bad habits."""
    return check(bad.Untidy, only=["global state", "leftovers", "buffers"])


def test_changes_of_global_state_are_told_by_name_and_call(untidy):
    findings = untidy.of("global state")
    told = {one.measured.split(",")[0]: one for one in findings}
    assert told["changes os.environ"].severity == "note"
    shared = ("the working directory", "numpy's error handling", "the signal handlers")
    for what in shared:
        assert told[f"changes {what}"].severity == "warning"
        assert told[f"changes {what}"].tried
    handlers = told["changes the signal handlers"].measured
    assert "SIGTERM: SIG_DFL became SIG_IGN" in handlers


def test_what_is_left_after_close_is_told_and_ends_with_the_worker(untidy):
    findings = untidy.of("leftovers")
    left = {kind: count for one in findings for kind, count in one.data.items()}
    assert left == {"processes": 3, "threads": 3, "descriptors": 6}
    assert all(one.severity == "warning" and one.tried for one in findings)


def test_a_leak_is_told():
    leaking = functools.partial(Leaking, bytes_per_step=2**14, mean_length=20)
    (finding,) = found(leaking, "memory")
    assert finding.severity == "warning"
    assert "GiB in a million steps" in finding.measured
    assert finding.data["bytes"] > 2**20


# Time ---------------------------------------------------------------------------------


def test_sleeping_is_told_with_the_argument_that_ends_it():
    report = check(bad.Sleeps, only=["waiting"])
    (finding,) = report.of("waiting")
    assert finding.severity == "warning"
    assert finding.remedy.startswith("pass real_time=False")
    assert finding.tried.startswith("with real_time=False a step takes")
    assert "env_kwargs={'real_time': False}" in report.recommendation.code


def test_an_env_that_waits_is_recommended_a_thread_for_each():
    subject = subject_for(bad.Waits)
    subject._profile = profile_of(EpisodeDriver(bad.Waits, 0), 1)
    subject.cost = cost.measure_cost(bad.Waits, 0)
    (finding,) = found(bad.Waits, "threads")
    gain = finding.data["gain"]
    assert gain > 1.0
    shares = Finding("isolation", "ok", "", data={"isolation": "shared"})
    for safe, kind in ((True, "threads"), (False, "processes")):
        tried = Finding("threads", "ok", "", data={"threads": safe, "gain": gain})
        advice = recommend(subject, [shares, tried], num_envs=32)
        assert re.match(rf"32 slots, \d+ {kind}: a step takes ", advice.sentence)


def test_arguments_of_several_findings_are_in_one_line():
    subject = subject_for(bad.Walk)
    subject._profile = profile_of(EpisodeDriver(bad.Walk, 0), 1)
    findings = [
        Finding("window", "warning", "", options={"env_kwargs": {"gui": False}}),
        Finding("waiting", "warning", "", options={"env_kwargs": {"real": False}}),
    ]
    code = recommend(subject, findings, num_envs=2).code
    assert "env_kwargs={'gui': False, 'real': False}" in code


# Observations and infos ---------------------------------------------------------------


def test_a_reused_buffer_is_told(untidy):
    changed = results.measure_buffers(bad.Reuses, 0)
    assert changed.startswith("step 2 changed what was returned before (step 1:")
    assert results.measure_buffers(bad.Walk, 0) == ""
    (finding,) = untidy.of("buffers")
    assert finding.severity == "warning" and "copy" in finding.remedy


def test_every_kind_of_misfit_is_told_once():
    misfits = results.measure_spaces(bad.Misfits, 0, 5)
    told = {one.measured: one.severity for one in misfits}
    assert told == {
        "reset 0: obs['bounds'][1] is 2, its space says -1 to 1": "note",
        "reset 0: obs['dtype'] is float64, its space says float32": "note",
        "reset 0: obs['kind'] is float64, its space says int64": "problem",
        "reset 0: obs['shape'] has shape (2,), its space says (3,)": "problem",
        "reset 0: obs['number'] is 5, which Discrete(2) does not contain": "problem",
    }
    assert results.measure_spaces(bad.Walk, 0, 5) == []


def test_infos_are_weighed():
    seen = results.measure_infos(bad.SaysMuch, 0)
    assert seen.size > 5000 and seen.keys == 3 and seen.odd == ("world",)
    assert "lock" in results.measure_infos(bad.SaysTheUnspeakable, 0).trouble


def test_a_window_is_told_with_the_argument_that_keeps_it_shut():
    assert display.measure_window(bad.Window) == ['its render_mode is "human"']
    assert display.asks_for_window(subject_for(bad.Window)) == "gui=False"
    shut = subject_for(bad.Window, {"gui": False})
    assert display.asks_for_window(shut) == ""


def test_a_connection_to_a_display_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as ours:
        server.bind(".X11-unix")
        server.listen()
        assert list(display._displays()) == []
        ours.connect(".X11-unix")
        assert list(display._displays()) == [".X11-unix"]


def test_a_space_that_cannot_travel_is_told():
    class Odd(bad.gym.spaces.Discrete):
        def __reduce__(self):
            raise TypeError("not this one")

    class Env(bad.Walk):
        action_space = Odd(2)

    assert api.measure_pickling(bad.Walk) == []
    (trouble,) = api.measure_pickling(lambda: Env())
    assert trouble == "the action space: TypeError: not this one"


# Several agents -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parallel_env", "env"])
def test_envs_of_several_agents_play_and_repeat(form):
    games = pytest.importorskip("pettingzoo.classic.rps_v2", reason="no PettingZoo")
    make = functools.partial(getattr(games, form), max_cycles=5)
    one, other = (run_alone(make, 3, 0, 40) for _ in range(2))
    assert sum(moment.over for moment in one) >= 2
    assert not first_difference(one, other)
    assert first_difference(one, run_alone(make, 4, 0, 40))


def test_masked_actions_are_drawn_by_their_mask():
    games = pytest.importorskip("pettingzoo.classic.tictactoe_v3", reason="no games")
    player = EpisodeDriver(games.env)
    moments = list(player.play(60))  # the env itself refuses an illegal move
    assert sum(moment.over for moment in moments) >= 2


@pytest.mark.parametrize("form", ["parallel_env", "env"])
def test_envs_of_several_agents_are_tried_in_one_process(form):
    games = pytest.importorskip("pettingzoo.classic.rps_v2", reason="no PettingZoo")
    (finding,) = found(getattr(games, form), "isolation")
    assert finding.severity == "ok", finding
    assert finding.data == {"isolation": "shared"}


def test_several_agents_get_a_line_of_their_own():
    games = pytest.importorskip("pettingzoo.classic.rps_v2", reason="no PettingZoo")
    report = check(games.parallel_env, only=["api"])
    assert report.severity == "ok"
    assert report.recommendation.code.startswith("envs = corral.make_multi(")


# Differences --------------------------------------------------------------------------


def test_differences_are_found_to_the_last_bit():
    (moment,) = EpisodeDriver(bad.Walk).play(1)
    near = np.nextafter(moment.obs, np.float32(9))
    changed = type(moment)("reset 0", near, 0.0, False, False, None, False)
    assert first_difference([changed], [moment]).startswith("reset 0: obs[0] is ")
    assert first_difference([moment], [moment]) == ""


class Secretive:
    """Tells neither whether it is equal, nor what it is."""

    def __init__(self, value):
        self.value = np.full(2, value)

    def __eq__(self, other):
        return self.value == other.value

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("none of your business")


def test_values_of_an_envs_own_making_are_compared_by_what_they_hold():
    def of(value):
        return [EnvResponse("reset 0", Secretive(value), 0.0, False, False, {}, False)]

    assert first_difference(of(1), of(1)) == ""
    assert first_difference(of(1), of(2)) == "reset 0: obs is Secretive and Secretive"
