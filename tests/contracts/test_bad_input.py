"""A mistake gets a clear error at the earliest call, and leaves nothing behind."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral import Pool
from corral.errors import (
    ClosedError,
    EnvError,
    FactoryError,
    OptionError,
    OrderError,
    OwnershipError,
    RemoteTraceback,
    SpaceMismatch,
    SpacesDiffer,
    StartError,
    UsageError,
)

from .envs import Broken, Countdown, Echo, Mixed, Talker

pytestmark = pytest.mark.usefixtures("no_child_stays")
MakePool = Callable[..., Pool]
GOOD = functools.partial(Broken)


def broken(wrong: str, value: Any = None) -> list[Callable[[], Any]]:
    """Three slots, of which slot 1 does the wrong thing."""
    return [GOOD, functools.partial(Broken, wrong, value), GOOD]


def cause_of(error: BaseException, kind: type[BaseException]) -> str:
    """The text of the cause: the env's own exception, or its traceback from afar."""
    cause = error.__cause__
    assert isinstance(cause, (kind, RemoteTraceback)), cause
    return f"{type(cause).__name__} {cause}"


def assert_still_works(pool: Pool, actions: Any) -> None:
    """The mistake was not sent: the next call is as good as ever."""
    assert pool.waiting == 0
    step = pool.step(actions)
    assert step.valid.all() and len(step) == pool.num_envs


# Construction -------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [0, -1, "3", 2.0, True])
def test_num_envs_has_to_be_a_count(make_pool: MakePool, num_envs: Any) -> None:
    with pytest.raises(OptionError, match=f"num_envs is {num_envs!r}"):
        make_pool(Echo, num_envs)


@pytest.mark.parametrize("name", ["serial", "thread"])
def test_a_deadline_is_refused_where_nobody_can_be_given_up(name: str) -> None:
    with pytest.raises(
        OptionError, match=f"start_timeout=.* backend='{name}' has none"
    ):
        Pool(Countdown, 2, backend=name, start_timeout=60.0)


def test_a_deadline_makes_auto_choose_processes() -> None:
    with Pool(Countdown, 1, start_timeout=60.0) as pool:
        assert pool.layout.backend == "process"
        assert "start_timeout" in pool.layout.reason


def test_an_unknown_backend_is_named_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'gpu'.*serial, thread, process"):
        Pool(Echo, 2, backend="gpu")


@pytest.mark.parametrize("workers", [0, -2, 1.5, "2"])
def test_workers_has_to_be_a_count(workers: Any) -> None:
    with pytest.raises(OptionError, match=f"workers is {workers!r}"):
        Pool(Echo, 2, backend="process", workers=workers)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="has one worker"):
        Pool(Echo, 2, backend="serial", workers=2)
    with pytest.raises(OptionError, match='isolation="slot"'):
        Pool(Echo, 2, backend="thread", isolation="slot")
    with pytest.raises(OptionError, match="isolation is 'env'"):
        Pool(Echo, 2, isolation="env")


@pytest.mark.parametrize("shared", [[1], "table", 3])
def test_shared_arrays_have_names(make_pool: MakePool, shared: Any) -> None:
    with pytest.raises(OptionError, match=r"shared is .*; it must be a dict of arrays"):
        make_pool(Echo, 2, shared=shared)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_seed_has_to_be_a_number(make_pool: MakePool, seed: Any) -> None:
    with pytest.raises(OptionError, match=f"seed is {seed!r}"):
        make_pool(Echo, 2, seed=seed)
    pool = make_pool(Echo, 2)
    with pytest.raises(OptionError, match=f"seed is {seed!r}"):
        pool.reset(seed=seed)
    assert len(pool.reset()) == 2


def test_what_is_no_way_to_make_an_env_is_refused(make_pool: MakePool) -> None:
    with pytest.raises(OptionError, match="pass its id, its class or a function"):
        make_pool(Echo(), 2)
    with pytest.raises(OptionError, match="item 1 of the list is 5"):
        make_pool([Echo, 5])
    with pytest.raises(OptionError, match="the list has 2 factories"):
        make_pool([Echo, Echo], 3)
    with pytest.raises(OptionError, match="one factory per slot"):
        make_pool([])
    with pytest.raises(OptionError, match=r"no environment 'CartPoll-v1'.*CartPole-v1"):
        make_pool("CartPoll-v1", 2)


def test_envs_with_different_spaces_are_refused_by_slot(make_pool: MakePool) -> None:
    other = functools.partial(Echo, spaces.Discrete(7))
    with pytest.raises(SpacesDiffer, match=r"slot 2.*Discrete\(7\).*Discrete\(100\)"):
        make_pool([Echo, Echo, other])


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, "returned None"),
        (3, "returned int"),
        (object(), "not a gymnasium.Env"),
    ],
    ids=["None", "int", "object"],
)
def test_a_factory_that_makes_no_env_is_named_by_slot(
    make_pool: MakePool, made: Any, text: str
) -> None:
    kind = type(made)

    def make() -> Any:
        return None if kind is type(None) else kind()

    with pytest.raises(OptionError, match=f"slot 1.*{text}"):
        make_pool([Echo, make])


def test_a_factory_that_raises_is_named_by_slot_with_its_traceback(
    make_pool: MakePool,
) -> None:
    def make() -> Any:
        raise FileNotFoundError("no map of Atlantis")

    with pytest.raises(StartError, match=r"slot 2.*no map of Atlantis") as caught:
        make_pool([Echo, Echo, make])
    assert "no map of Atlantis" in cause_of(caught.value, FileNotFoundError)
    assert caught.value.fault.slot == 2
    assert caught.value.fault.traceback is not None
    assert "in make" in caught.value.fault.traceback


def test_a_factory_that_cannot_be_pickled_says_what_in_it() -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return Echo()

    with pytest.raises(FactoryError, match=r"slot 0.*variable 'lock'.*_thread\.lock"):
        Pool(make, 2, backend="process")
    partial = functools.partial(Talker, [{"deep": [lock]}])
    with pytest.raises(FactoryError, match=r"slot 1.*argument 0.*key 'deep'.*item 0"):
        Pool([Echo, partial], backend="process")


@pytest.mark.parametrize("name", ["worker_init", "per_worker", "sample_task"])
def test_other_functions_that_cannot_be_pickled_are_named(name: str) -> None:
    lock = threading.Lock()
    option: dict[str, Any] = {name: lambda *_: lock}
    with pytest.raises(FactoryError, match=f"{name} cannot be sent.*'lock'"):
        Pool(Echo, 2, backend="process", **option)


def test_an_import_that_fails_in_the_worker_names_module_and_path() -> None:
    sys.modules["only_in_the_parent"] = types.ModuleType("only_in_the_parent")

    def make() -> Any:
        import only_in_the_parent  # type: ignore[import-not-found]

        return only_in_the_parent

    try:
        with pytest.raises(StartError) as caught:
            Pool(make, 1, backend="process", workers=1)
    finally:
        del sys.modules["only_in_the_parent"]
    text = str(caught.value)
    assert "slot 0" in text and "'only_in_the_parent'" in text
    assert "sys.path" in text and sys.path[-1] in text


# Actions ------------------------------------------------------------------------------

BOX = spaces.Box(-1, 1, (2,), np.float32)
WRONG_ACTIONS: dict[str, tuple[Any, Any, Any, str]] = {
    "too few": (None, [1, 2], [0, 0, 0], r"\(2,\).*\(3,\).*each of 3 slots"),
    "too many": (None, [1] * 4, [0, 0, 0], r"\(4,\).*\(3,\)"),
    "one for all": (None, 1, [0, 0, 0], r"actions is 1 .*each of 3 slots"),
    "none": (None, None, [0, 0, 0], "actions is None"),
    "float": (None, [0, 1.5, 0], [0, 0, 0], r"actions.*1\.5.*needs an integer"),
    "floats": (
        None,
        np.zeros(3),
        [0, 0, 0],
        r"actions\[0\] is 0\.0 .*needs an integer",
    ),
    "text": (None, ["a", "b", "c"], [0, 0, 0], r"actions\[0\].*needs an integer"),
    "shape": (BOX, np.zeros((3, 3)), np.zeros((3, 2)), r"\(3, 3\).*\(3, 2\)"),
    "ragged": (BOX, [[0, 0], [0], [0, 0]], np.zeros((3, 2)), r"actions\[1\].*\(1,\)"),
    "complex": (BOX, np.zeros((3, 2), complex), np.zeros((3, 2)), "complex128"),
}


# Refused before anything is sent, so before any executor is asked.
@pytest.mark.parametrize("backend", ["serial"])
@pytest.mark.parametrize("name", WRONG_ACTIONS)
def test_actions_that_do_not_fit_are_named_and_not_sent(
    make_pool: MakePool, name: str
) -> None:
    space, wrong, right, text = WRONG_ACTIONS[name]
    pool = make_pool(functools.partial(Echo, space), 3)
    pool.reset()
    with pytest.raises(SpaceMismatch, match=text):
        pool.send(wrong)
    assert_still_works(pool, right)


@pytest.mark.parametrize("backend", ["serial"])
@pytest.mark.parametrize("raw", [[1, 2], [1] * 4, ""])
def test_raw_actions_that_are_not_one_for_each_slot_are_not_sent(
    make_pool: MakePool, raw: Any
) -> None:
    pool = make_pool(Echo, 3)
    pool.reset()
    with pytest.raises(SpaceMismatch, match="one for each of 3 slots"):
        pool.send_raw(raw)
    assert_still_works(pool, [1, 1, 1])


def test_parts_of_an_action_are_named_by_their_path(make_pool: MakePool) -> None:
    pool = make_pool(Mixed, 2)
    pool.reset()
    good = pool.spec.action_space.sample()
    for key, value, text in (
        ("gear", 1.5, r"actions\[1\]\['gear'\] is 1\.5"),
        ("parts", (np.zeros(3), np.zeros(2, int)), r"actions\[1\]\['parts'\]\[0\]"),
        ("parts", (np.zeros(2), np.zeros(2)), r"actions\[1\]\['parts'\]\[1\]"),
        ("parts", None, r"actions\[1\]\['parts'\] is None"),
    ):
        with pytest.raises(SpaceMismatch, match=text):
            pool.send([good, {**good, key: value}])
    with pytest.raises(SpaceMismatch, match=r"actions\[0\] has keys \['gear'\]"):
        pool.send([{"gear": 1}, good])
    assert_still_works(pool, [good, good])


WRONG_SLOTS: list[tuple[Any, str]] = [
    ([0, 3], "slots 0 to 2"),
    ([-1], "slots 0 to 2"),
    ([1, 1], "only once"),
    ([], "at least one integer"),
    ([0.5], "integer"),
    ([[0, 1]], "integer"),
    (1, "integer"),
]


def test_slots_that_are_not_there_are_refused(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 3)
    pool.reset()
    calls: list[Callable[[Any], Any]] = [
        lambda slots: pool.send([1], slots=slots),
        lambda slots: pool.send_reset(slots),
        lambda slots: pool.call("add", 1, slots=slots),
        lambda slots: pool.set_attr("gain", 1, slots=slots),
    ]
    for slots, text in WRONG_SLOTS:
        for call in calls:
            with pytest.raises(OptionError, match=text):
                call(slots)
    assert_still_works(pool, [1, 1, 1])


def test_an_action_that_cannot_be_pickled_leaves_the_pool_usable() -> None:
    with Pool(functools.partial(Echo, spaces.Text(4)), 2, backend="process") as pool:
        pool.reset()
        with pytest.raises((UsageError, TypeError), match="lock"):
            pool.send(["a", threading.Lock()])
        assert pool.step(["x", "y"]).obs == ("x", "y")


# What envs return ---------------------------------------------------------------------

SHAPES = [
    (np.zeros(3, np.float32), r"float32 \(3,\).*float32 \(4,\)"),
    (np.zeros((1, 4), np.float32), r"\(1, 4\)"),
    (np.float32(0), r"is 0\.0"),
    (None, "None"),
    ("text", "obs"),
    (np.zeros(4, complex), "complex128"),
    ({"a": 1}, "obs"),
]


# The shard is the same everywhere: one process pool is enough to see the way home.
PLACED = [(place, *shape) for place in ("serial", "thread") for shape in SHAPES]
PLACED.append(("process", *SHAPES[0]))


@pytest.mark.parametrize(
    ("backend", "value", "text"), PLACED, ids=lambda value: repr(value)[:12]
)
def test_an_observation_that_does_not_fit_names_its_slot(
    make_pool: MakePool, value: Any, text: str
) -> None:
    pool = make_pool(broken("step obs", value))
    pool.reset()
    with pytest.raises(SpaceMismatch, match=f"slot 1.*{text}"):
        pool.step([0, 0, 0])
    assert pool.reset().valid.all()
    assert pool.step([0, 0], slots=[0, 2]).valid.all()
    resets = make_pool(broken("reset obs", value))
    with pytest.raises(SpaceMismatch, match=f"slot 1.*{text}"):
        resets.reset()
    assert resets.step([0, 0], slots=[0, 2]).valid.all()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((np.zeros(4, np.float32), 0.0, False, {}), "a tuple of 4 values"),
        (None, "None"),
        (7, "7"),
        ((), "a tuple of 0 values"),
    ],
    ids=["4-tuple", "None", "int", "empty"],
)
def test_a_step_that_returns_something_else_names_its_slot(
    make_pool: MakePool, value: Any, text: str
) -> None:
    pool = make_pool(broken("step returns", value), workers=1)
    pool.reset()
    with pytest.raises(SpaceMismatch, match=rf"slot 1.*step\(\) returned {text}"):
        pool.step([0, 0, 0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(4, np.float32), r"array\("),
        (None, "None"),
        ((1, 2, 3), "a tuple of 3"),
    ],
    ids=["observation alone", "None", "3-tuple"],
)
def test_a_reset_that_returns_something_else_names_its_slot(
    make_pool: MakePool, value: Any, text: str
) -> None:
    pool = make_pool(broken("reset returns", value), workers=1)
    with pytest.raises(SpaceMismatch, match=rf"slot 1.*reset\(\) returned {text}"):
        pool.reset()


@pytest.mark.parametrize("value", [None, "much", np.zeros(2), [1, 2]], ids=repr)
def test_a_reward_that_is_no_number_names_its_slot(
    make_pool: MakePool, value: Any
) -> None:
    pool = make_pool(broken("reward", value), workers=1)
    pool.reset()
    with pytest.raises(SpaceMismatch, match=r"slot 1.*reward is"):
        pool.step([0, 0, 0])


@pytest.mark.parametrize("moment", ["step", "reset"])
def test_an_env_that_raises_is_named_with_all_that_is_known(
    make_pool: MakePool, moment: str
) -> None:
    pool = make_pool(broken(f"{moment} raises"))
    with pytest.raises(EnvError, match=f"slot 1.*in {moment}") as caught:
        pool.reset()
        pool.step([0, 1, 0])
    fault = caught.value.fault
    assert fault.slot == 1 and fault.command == moment and fault.seed is not None
    kind = ZeroDivisionError if moment == "step" else RuntimeError
    assert str(fault.error_text) in cause_of(caught.value, kind)
    assert fault.traceback is not None and "envs.py" in fault.traceback
    if moment == "step":
        assert [int(action) for action in fault.last_actions] == [1]


def test_after_an_env_raised_its_slot_wants_a_reset_and_others_go_on(
    make_pool: MakePool,
) -> None:
    pool = make_pool(broken("step raises"))
    pool.reset()
    with pytest.raises(EnvError, match="slot 1"):
        pool.step([0, 0, 0])
    assert pool.waiting == 0
    with pytest.raises(OrderError, match=r"slots \[1\] have not been reset"):
        pool.step([0, 0, 0])
    step = pool.step([0, 0], slots=[0, 2])
    assert step.episode_length.tolist() == [2, 2]
    assert pool.reset(slots=[1]).valid.all()


def test_a_fault_is_told_when_its_slot_is_taken_and_not_before(
    make_pool: MakePool,
) -> None:
    pool = make_pool(broken("step raises"))
    pool.reset()
    pool.send([0, 0, 0])
    pool.get_attr("spec")  # answered after the steps: all results are there
    first = pool.recv(min_slots=1, max_slots=1)
    assert first.slots.tolist() == [0] and first.valid.all()
    with pytest.raises(EnvError, match="slot 1"):
        pool.recv(min_slots=1, max_slots=1)
    assert pool.recv().slots.tolist() == [2]
    assert pool.waiting == 0


def test_infos_of_a_batch_that_failed_do_not_show_up_later(make_pool: MakePool) -> None:
    chatty = functools.partial(Talker, [{}, {"word": "early"}, {}])

    class Failing(Talker):
        def step(self, action: Any) -> Any:
            raise RuntimeError("not today")

    pool = make_pool([chatty, functools.partial(Failing, [{}])])
    pool.reset()
    with pytest.raises(EnvError, match="slot 1"):
        pool.step([0, 0])
    assert pool.step([0], slots=[0]).infos.of(0) == {}


def test_several_faults_of_one_batch_are_all_carried(make_pool: MakePool) -> None:
    pool = make_pool(functools.partial(Broken, "step raises"), 3)
    pool.reset()
    with pytest.raises(EnvError, match="slot 0") as caught:
        pool.step([0, 0, 0])
    assert [fault.slot for fault in caught.value.faults] == [0, 1, 2]  # type: ignore[attr-defined]


# Order, threads, forks, closing -------------------------------------------------------


def test_step_before_reset_names_the_slots(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 3)
    with pytest.raises(OrderError, match=r"slots \[0, 1, 2\] have not been reset"):
        pool.send([1, 1, 1])
    pool.reset(slots=[1])
    with pytest.raises(OrderError, match=r"slots \[0, 2\]"):
        pool.step([1, 1, 1])
    assert pool.step([5], slots=[1]).obs.tolist() == [5]


def test_recv_with_nothing_sent_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 2)
    with pytest.raises(OrderError, match="nothing sent"):
        pool.recv()
    pool.reset()
    with pytest.raises(OrderError, match="nothing sent"):
        pool.recv(min_slots=1)


@pytest.mark.parametrize("bad", [2.0, 2.5, float("inf"), "2"])
@pytest.mark.parametrize("name", ["min_slots", "max_slots"])
def test_recv_takes_whole_numbers_of_slots(
    make_pool: MakePool, name: str, bad: Any
) -> None:
    pool = make_pool(Echo, 3)
    pool.reset()
    pool.send([0, 0, 0])
    for more in ({}, {"within": 0.0}):
        with pytest.raises(OptionError, match=rf"{name}={bad!r}.* needs integers"):
            pool.recv(**{name: bad}, **more)
    assert len(pool.recv(min_slots=np.int64(3))) == 3


def test_sending_twice_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 2)
    pool.send_reset()
    for again in (lambda: pool.send([1, 1]), pool.send_reset):
        with pytest.raises(OrderError, match=r"slots \[0, 1\] have a pending command"):
            again()
    assert len(pool.recv()) == 2


def uses(pool: Pool) -> list[Callable[[], Any]]:
    return [
        lambda: pool.send_reset(),
        lambda: pool.send([1, 1]),
        lambda: pool.recv(),
        lambda: pool.reset(),
        lambda: pool.step([1, 1]),
        lambda: pool.call("add", 1),
        lambda: pool.get_attr("gain"),
        lambda: pool.set_attr("gain", 1),
        lambda: pool.render(),
        lambda: pool.assign(0, "task"),
        lambda: pool.observe(),
    ]


def test_after_close_everything_but_close_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 2)
    pool.reset()
    pool.close()
    for use in uses(pool):
        with pytest.raises(ClosedError, match="closed"):
            use()
    pool.close()


def test_another_thread_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(Echo, 2)
    pool.reset()
    caught: list[BaseException] = []

    def elsewhere() -> None:
        for use in uses(pool):
            try:
                use()
            except BaseException as error:
                caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == len(uses(pool))
    for error in caught:
        assert isinstance(error, OwnershipError) and "thread" in str(error)
    assert_still_works(pool, [1, 1])


FORKED = """
import os, sys
import corral
from corral.errors import OwnershipError

pool = corral.Pool("CartPole-v1", 2, backend=sys.argv[1], seed=0)
before = pool.reset().obs
child = os.fork()
if not child:
    code = 1
    try:
        pool.step([0, 0])
    except OwnershipError as error:
        code = 0 if "fork" in str(error) else 2
    pool.close()
    with pool:
        pass
    del pool
    if code:
        os._exit(code)
    sys.exit(0)  # the interpreter's own way out: atexit runs in the child too
_, status = os.waitpid(child, 0)
assert status == 0, status
assert (pool.step([0, 1]).obs != before).any()
pool.close()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child stays")
"""


def test_a_forked_child_is_refused_and_closes_nothing(backend: str) -> None:
    # Python 3.12 warns of forking with threads, which is the user's own affair.
    command = [sys.executable, "-W", "ignore", "-c", FORKED, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "no child stays\n", done.stderr
    assert done.returncode == 0 and not done.stderr


def test_the_vector_env_raises_the_same_errors_as_the_pool(backend: str) -> None:
    envs = corral.make(Countdown, 2, backend=backend)
    try:
        envs.reset(seed=0)
        with pytest.raises(SpaceMismatch):
            envs.step(np.zeros(2))
        with pytest.raises(gymnasium.error.NoAsyncCallError):
            envs.step_wait()
    finally:
        envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()
