"""Envs that must not share a process get one each; whoever asks otherwise is told."""

import functools
import os

import pytest
from lonely_envs import (
    Crashing,
    Deadly,
    Declared,
    Entangled,
    GlobalDice,
    Hopeless,
    Impatient,
    Lonely,
    Moody,
    MoodyAtFirst,
    MoodyProcesses,
    MoodySteps,
    Particular,
    Rude,
    RudeLater,
    Stubborn,
    Unlucky,
    Untidy,
    Walk,
)

import corral
from corral.engine.adapters.isolation import (
    IsolationVerdict,
    edition_of,
    save_verdict,
    subject_of,
)
from corral.engine.pool import fault_rerun
from corral.errors import EnvError, IsolationError, WorkerDied


@pytest.fixture(autouse=True)
def verdicts(tmp_path, monkeypatch):
    """None of the user's own."""
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path))


@pytest.fixture
def long_checks(monkeypatch):
    """What failed is done again, however busy the machine is."""
    monkeypatch.setattr(fault_rerun, "MAX_RERUN_SECONDS", 60.0)


def made(kind, **options):
    return corral.Pool(kind, **{"num_envs": 3, "seed": 0, **options})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            Lonely,
            "the second one in a process cannot be built and reset (RuntimeError: "
            "getJointState failed.)",
        ),
        (
            Entangled,
            "an env changes what all envs of a process share: Entangled.places changed",
        ),
        (Deadly, "the process that two of them were tried in ended (SIGKILL)"),
        (Declared, 'metadata["corral.isolation"] is "slot"'),
    ],
    ids=["fails", "differs", "dies", "declares"],
)
def test_auto_gives_each_slot_a_process(kind, reason):
    with made(kind) as pool:
        assert (pool.layout.backend, pool.layout.workers) == ("process", 3)
        assert pool.layout.reason == f"one process per slot, since {reason}"
        pool.reset()
        assert pool.step([1, 0, 1]).reward.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", [Walk, Stubborn, Particular])
def test_auto_lets_others_share(kind):
    with made(kind) as pool:
        assert "one process per slot" not in pool.layout.reason


def test_an_env_that_draws_from_global_generators_may_share_if_it_has_its_own():
    with made(GlobalDice) as pool:
        assert pool.layout.workers == 3
        assert "seeds numpy.random (in reset or step)" in pool.layout.reason
        assert "isolate_rng=True" in pool.layout.reason
    with made(GlobalDice, isolate_rng=True) as pool:
        assert "one process per slot" not in pool.layout.reason


def test_an_env_that_cannot_be_built_now_and_then_starts_all_the_same(tmp_path):
    with made(functools.partial(MoodyAtFirst, tmp_path, (1,))) as pool:
        assert "an env failed once beside another" in pool.layout.reason
        assert pool.reset().started.all()


def test_what_the_probe_broke_is_dismissed_without_a_word(capfd):
    with made(Untidy, num_envs=2) as pool:
        assert "one process per slot" in pool.layout.reason
    assert "not connected" not in "".join(capfd.readouterr())


def test_the_stack_of_a_trial_that_crashed_is_said_to_be_a_trials(capsys):
    with made(Crashing, num_envs=2) as pool:
        assert "tried in ended (SIGSEGV)" in pool.layout.reason
        err = capsys.readouterr().err
    _, stack, said = err.partition("Fatal Python error: Segmentation fault")
    assert stack
    *_, said = said.splitlines()
    assert said.startswith("corral: pid ")
    assert "ended by SIGSEGV, ran a trial" in said and "not affected" in said


def test_a_saved_verdict_counts_for_its_edition_alone():
    env = Walk()
    for edition, alone in ((edition_of(env), True), ("walk 0.0.1", False)):
        save_verdict(
            IsolationVerdict(subject_of(env), edition, "slot", reason="it was found")
        )
        with made(Walk) as pool:
            assert ("one process per slot, since it was found" in str(pool.layout)) == (
                alone
            )


def test_an_explicit_backend_listens_to_what_the_env_declares():
    with made(Declared, backend="process") as pool:
        assert pool.layout.workers == 3
        assert 'metadata["corral.isolation"] is "slot"' in pool.layout.reason


@pytest.mark.parametrize("asked", [{"backend": "serial"}, {"workers": 2}])
def test_what_would_put_them_together_is_refused(asked):
    with pytest.raises(IsolationError, match=r'must .*isolation="slot"'):
        made(Declared, **asked)
    assert Declared.made == 0


def test_shared_asks_nobody():
    with made(Entangled, isolation="shared") as pool:
        assert "one process per slot" not in pool.layout.reason


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_env_that_another_broke_is_told_so(long_checks, backend):
    asked = {"num_envs": 2, "backend": backend}
    if backend == "process":
        asked |= {"workers": 1, "isolation": "shared"}
    with made(Lonely, **asked) as pool:
        with pytest.raises(EnvError, match=r"slot 1.*getJointState failed") as caught:
            pool.reset()
        text = str(caught.value)
        assert "It failed beside another env in one process" in text
        assert 'isolation="slot" gives every slot its own' in text


def failed(kind, **options):
    """The fault of a slot that is stepped until it fails, and its second reset."""
    asked = {"num_envs": 2, "isolation": "shared", "backend": "serial", **options}
    with made(kind, **asked) as pool, pytest.raises(EnvError) as caught:
        pool.reset()
        for _ in range(40):
            pool.step([1] * pool.num_envs)
        pool.reset()
    return caught.value.fault, str(caught.value)


@pytest.mark.parametrize(("kind", "command"), [(Rude, "step"), (RudeLater, "reset")])
def test_an_env_that_another_broke_later_is_told_so(long_checks, kind, command):
    fault, text = failed(kind, backend="process", workers=1)
    assert (fault.command, fault.alone) == (command, False)
    assert f"RuntimeError in {command}: {command}Simulation failed." in text
    assert 'isolation="slot" gives every slot its own' in text


def test_an_env_that_fails_in_some_step_blames_nobody(long_checks, tmp_path):
    for kind in (functools.partial(MoodySteps, tmp_path / "mark"), Unlucky):
        fault, text = failed(kind)
        assert (fault.command, fault.company) == ("step", 1)
        assert fault.alone is not False
        assert "So they break each other" not in text


def test_an_env_that_fails_in_some_processes_blames_nobody(long_checks, tmp_path):
    factory = functools.partial(MoodyProcesses, tmp_path)
    fault, text = failed(factory, backend="process", workers=1)
    assert (fault.company, fault.alone) == (1, True)
    assert "break each other" not in text


def test_what_an_env_takes_along_is_not_held_against_it(long_checks):
    class Crowded(Walk):  # by value, and with it those who have walked
        walked = set()  # noqa: RUF012

        def step(self, action):
            self.walked.add(id(self))
            if self.at > 2.0 and len(self.walked) > 1:
                raise RuntimeError("stepSimulation failed.")
            return super().step(action)

    fault, text = failed(Crowded)
    assert (fault.company, fault.alone) == (1, None)
    assert "if it works alone" in text


def test_whoever_stops_a_retrial_sees_what_it_was_about(long_checks, tmp_path):
    factory = functools.partial(Impatient, os.getpid(), tmp_path / "mark")
    with made(factory, num_envs=2, isolation="shared", backend="serial") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt) as caught:
            for _ in range(4):
                pool.step([1, 0])
        assert isinstance(caught.value.__cause__, EnvError)
        assert "stepSimulation failed" in str(caught.value.__cause__)
        assert pool.reset().started.all()


def test_long_episodes_are_not_done_again(monkeypatch):
    monkeypatch.setattr(fault_rerun, "MAX_RERUN_SECONDS", 1e-4)
    fault, text = failed(Rude)
    assert (fault.company, fault.alone) == (1, None)
    assert "if it works alone" in text


def test_an_env_that_fails_now_and_then_blames_nobody(long_checks, tmp_path):
    factory = functools.partial(Moody, tmp_path / "mark")
    asked = {"backend": "process", "workers": 1, "isolation": "shared"}
    with corral.Pool(factory, 2, **asked) as pool:
        with pytest.raises(EnvError, match="getJointState failed") as caught:
            pool.reset()
        assert caught.value.fault.alone is None
        assert "if it works alone" in str(caught.value)


def test_an_env_that_fails_alone_as_well_blames_nobody(long_checks):
    with corral.Pool(Hopeless, 2, backend="process", workers=1) as pool:
        with pytest.raises(EnvError, match="getJointState failed") as caught:
            pool.reset()
        assert caught.value.faults[1].alone in (True, None)
        assert "break each other" not in str(caught.value)


@pytest.mark.parametrize(("kind", "suspected"), [(Crashing, True), (Deadly, False)])
def test_a_crash_beside_others_names_the_remedy(kind, suspected):
    with made(kind, backend="process", workers=1, isolation="shared") as pool:
        pool.reset()
        with pytest.raises(WorkerDied) as caught:
            pool.step([0, 0, 0])
    told = 'Its process ran other envs too (2); if it works alone (isolation="slot")'
    assert (told in str(caught.value)) is suspected
