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
    Lonely,
    MoodyAtFirst,
    Particular,
    Rude,
    RudeLater,
    Stubborn,
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
from corral.errors import EnvError, IsolationError, WorkerDied


@pytest.fixture(autouse=True)
def verdicts(tmp_path, monkeypatch):
    """None of the user's own."""
    monkeypatch.setenv("CORRAL_VERDICTS", str(tmp_path))


def made(kind, **options):
    return corral.Pool(kind, **{"num_envs": 3, "seed": 0, **options})


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            Lonely,
            "side by side in one process the second env fails in reset(): "
            "RuntimeError: getJointState failed.",
        ),
        (
            Entangled,
            "an env changes state that all envs of a process share: Entangled.places "
            "changed",
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
    assert "ended by SIGSEGV in a trial" in said and "does not end the pool" in said


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


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"backend": "serial"}, 'isolation="slot", backend="process"'),
        ({"workers": 2}, 'isolation="slot" in place of workers=2'),
        ({"backend": "thread"}, 'backend="process"'),
        ({"backend": "thread", "workers": 2}, 'backend="process" without workers='),
    ],
)
def test_what_would_put_them_together_is_refused(asked, remedy):
    with pytest.raises(IsolationError) as caught:
        made(Declared, **asked)
    first, *rest = str(caught.value).splitlines()
    assert "must" in first and 'metadata["corral.isolation"] is "slot"' in first
    assert asked != {"workers": 2} or "a process, as with workers=2: " in first
    assert rest == [
        "Next steps:",
        f"  give each env a process: {remedy}",
        '  share anyway: isolation="shared"',
    ]
    assert Declared.made == 0
    with made(Declared, isolation="slot", backend="process") as pool:
        assert pool.layout.workers == 3


def test_shared_asks_nobody():
    with made(Entangled, isolation="shared") as pool:
        assert "one process per slot" not in pool.layout.reason


def failed(kind, error=EnvError, **options):
    """The error of a pool that is stepped until it fails, and its second reset."""
    asked = {"num_envs": 2, "isolation": "shared", "backend": "serial", **options}
    with made(kind, **asked) as pool, pytest.raises(error) as caught:
        pool.reset()
        for _ in range(5):
            pool.step([1] * pool.num_envs)
        pool.reset()
    return caught.value


HINT = '  continue: on_fault="restart"; if envs interfere: isolation="slot"'
HINT_IN_CALLER = HINT.replace("on_fault", 'backend="process", on_fault')


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize(
    ("kind", "command"), [(Lonely, "reset"), (Rude, "step"), (RudeLater, "reset")]
)
def test_an_env_that_failed_beside_another_is_told_so(backend, kind, command):
    # Two threads are two workers in one process.
    workers = 2 if backend == "thread" else 1
    error = failed(kind, backend=backend, workers=workers)
    assert (error.fault.command, error.fault.company) == (command, 1)
    hint = HINT if backend == "process" else HINT_IN_CALLER
    assert hint in str(error).splitlines()


def test_an_env_that_was_alone_in_its_process_is_not_told_of_others():
    error = failed(Hopeless, isolation="slot", backend="process")
    assert error.fault.company == 0
    assert "interfere" not in str(error)


def test_an_env_that_fails_is_run_nowhere_else(tmp_path):
    class Counted(Rude):
        def __init__(self):
            (tmp_path / f"{os.getpid()}-{id(self)}").touch()

    error = failed(Counted, backend="process", workers=1)
    assert (error.fault.company, error.fault.alone) == (1, None)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(("kind", "suspected"), [(Crashing, True), (Deadly, False)])
def test_a_crash_beside_others_names_the_remedy(kind, suspected):
    error = failed(kind, WorkerDied, num_envs=3, backend="process", workers=1)
    assert (HINT in str(error).splitlines()) is suspected
