"""Send and recv, on all slots or some, the same on every executor."""

from __future__ import annotations

import fcntl
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import corral
from corral import Pool
from corral.engine.worker.seeds import episode_seed
from corral.errors import (
    ClosedError,
    EnvError,
    OptionError,
    OrderError,
    StaleViewError,
)

from .envs import Broken, Countdown, Deaf, Doubled, Echo, Gated, MetaTasked, Tasked

MakePool = Callable[..., Pool]


@pytest.fixture(scope="module", params=["serial", "thread", "process"])
def echoes(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Four echoes, for tests that leave nothing under way."""
    workers = 1 if request.param == "serial" else 2
    with Pool(Echo, 4, backend=request.param, workers=workers, seed=7) as pool:
        yield pool


@pytest.fixture
def echo(echoes: Pool) -> Pool:
    """The four echoes, freshly reset."""
    echoes.reset(seed=7)
    return echoes


# Subsets and order --------------------------------------------------------------------


def test_a_subset_is_stepped_alone(echo: Pool) -> None:
    echo.send([30, 10], slots=[3, 1])
    assert echo.waiting == 2
    step = echo.recv()
    assert step.slots.tolist() == [1, 3] and len(step) == 2
    assert step.obs.tolist() == [10, 30]
    assert echo.waiting == 0


def test_rows_stay_right_after_partial_sends(echo: Pool) -> None:
    for number, slots in enumerate(([0], [0, 1], [2], [0, 3], [0, 1, 2, 3], [1])):
        step = echo.step([number + slot for slot in slots], slots=slots)
        assert step.obs.tolist() == [number + slot for slot in slots]
    lengths = echo.step([9, 9, 9, 9]).episode_length
    assert lengths.tolist() == [5, 4, 3, 3]
    assert echo.observe().tolist() == [9, 9, 9, 9]


def test_draining_drops_what_is_under_way_and_nothing_else(echo: Pool) -> None:
    echo.drain()  # nothing is
    echo.send([1, 2], slots=[0, 1])
    echo.send([3], slots=[2])
    echo.drain()
    assert echo.waiting == 0
    step = echo.step([5, 6, 7, 8])
    assert step.obs.tolist() == [5, 6, 7, 8]
    assert step.episode_length.tolist() == [2, 2, 2, 1]  # dropped, but stepped


def test_draining_drops_errors_of_envs(make_pool: MakePool) -> None:
    wrong = functools.partial(Broken, "step raises")
    pool = make_pool([wrong, functools.partial(Broken), wrong])
    pool.reset()
    for slot in range(3):
        pool.send([0], slots=[slot])
    pool.drain()
    assert pool.waiting == 0
    assert pool.reset().started.all()


@pytest.mark.parametrize(
    ("wrong", "value"), [("step obs", np.zeros(3)), ("step returns", (1, 2))]
)
def test_draining_drops_results_that_do_not_fit(
    make_pool: MakePool, wrong: str, value: Any
) -> None:
    unfit = functools.partial(Broken, wrong, value)
    pool = make_pool([unfit, functools.partial(Broken)])
    pool.reset()
    pool.send([0, 0])
    pool.drain()
    assert pool.waiting == 0
    assert pool.reset().started.all()


def test_draining_drops_a_step_after_the_end(make_pool: MakePool) -> None:
    pool = make_pool(functools.partial(Countdown, longest=1), 2, autoreset="off")
    pool.reset()
    assert pool.step([1, 1]).terminated.all()
    pool.send([1, 1])
    pool.drain()
    assert pool.waiting == 0
    assert pool.reset().started.all()


def test_idle_slots_can_be_sent_to_while_others_are_under_way(echo: Pool) -> None:
    echo.send([1, 2], slots=[0, 1])
    echo.send([3], slots=[2])
    with pytest.raises(OrderError, match=r"slots \[1\] have a pending command"):
        echo.send([4, 5], slots=[1, 3])
    echo.send_reset([3])
    step = echo.recv()
    assert step.slots.tolist() == [0, 1, 2, 3]
    assert step.obs[:3].tolist() == [1, 2, 3]
    assert step.started.tolist() == [False, False, False, True]


def test_recv_takes_at_most_max_slots_and_keeps_the_rest(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    seen: list[int] = []
    while echo.waiting:
        step = echo.recv(min_slots=1, max_slots=3)
        assert 1 <= len(step) <= 3
        assert step.slots.tolist() == sorted(step.slots.tolist())
        assert (step.obs == step.slots + 1).all()
        seen += step.slots.tolist()
    assert sorted(seen) == [0, 1, 2, 3]


def test_max_slots_alone_waits_for_that_many(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    assert len(echo.recv(max_slots=3)) == 3
    assert len(echo.recv(max_slots=3)) == 1


def test_of_those_ready_the_ones_sent_to_longest_ago_are_taken(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Echo, 4)
    pool.send_reset()
    taken: list[list[int]] = []
    for _ in range(5):
        pool.get_attr("_count")  # answered after all that was sent, so all is ready
        step = pool.recv(max_slots=3)
        taken.append(step.slots.tolist())
        pool.send(step.slots + 1, slots=step.slots)
    assert taken == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3], [0, 1, 2]]


def test_recv_of_some_slots_leaves_the_others_under_way(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    step = echo.recv(slots=[3, 1])
    assert step.slots.tolist() == [1, 3] and step.obs.tolist() == [2, 4]
    assert echo.waiting == 2
    echo.send([9], slots=[3])
    assert echo.recv(slots=[3]).obs.tolist() == [9]
    assert echo.recv().obs.tolist() == [1, 3]


def test_slots_that_were_sent_to_last_can_be_received_first(echo: Pool) -> None:
    echo.reset()
    echo.send([10, 20, 30], slots=[2, 1, 0])
    assert echo.recv(slots=[0]).obs.tolist() == [30]
    assert echo.recv(slots=[1]).obs.tolist() == [20]
    assert echo.recv().obs.tolist() == [10]


def test_recv_of_slots_that_are_not_under_way_is_refused(echo: Pool) -> None:
    echo.send([1, 2], slots=[0, 1])
    with pytest.raises(OrderError, match=r"slots \[2\] have no pending command"):
        echo.recv(slots=[1, 2])
    with pytest.raises(OptionError, match="not both"):
        echo.recv(2, slots=[0, 1])
    assert echo.recv(slots=[0, 1]).obs.tolist() == [1, 2]


@pytest.mark.parametrize("bounds", [(0, None), (3, 2), (5, None)])
def test_recv_bounds_without_a_meaning_are_refused(
    echo: Pool, bounds: tuple[int, int | None]
) -> None:
    echo.send([1, 2, 3, 4])
    with pytest.raises(OptionError, match="recv"):
        echo.recv(*bounds)
    assert len(echo.recv()) == 4


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The env of this file does not finish its step within this context."""
    with open(path, "rb") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


@pytest.fixture(params=["thread", "process"])
def gated(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Four slots with a gate each, on one worker each, or on fewer."""
    paths = [tmp_path / f"gate-{slot}" for slot in range(4)]
    for path in paths:
        path.touch()

    def make(workers: int) -> tuple[Pool, list[Path]]:
        factories = [functools.partial(Gated, str(path)) for path in paths]
        pool = stack.enter_context(
            Pool(factories, backend=request.param, workers=workers, seed=0)
        )
        pool.reset()
        return pool, paths

    with ExitStack() as stack:
        yield make


def test_the_first_ready_come_first_in_ascending_order(gated: Any) -> None:
    pool, gates = gated(workers=4)
    with held(gates[0]), held(gates[2]):
        pool.send([10, 11, 12, 13])
        step = pool.recv(min_slots=2)
        assert step.slots.tolist() == [1, 3] and step.obs.tolist() == [11, 13]
        pool.send([23, 21], slots=[3, 1])
        step = pool.recv(min_slots=2)
        assert step.slots.tolist() == [1, 3] and step.obs.tolist() == [21, 23]
        assert pool.waiting == 2
    step = pool.recv()
    assert step.slots.tolist() == [0, 2] and step.obs.tolist() == [10, 12]


def test_a_result_is_there_when_its_slot_is_done_not_its_shard(gated: Any) -> None:
    pool, gates = gated(workers=1)
    with held(gates[1]):
        pool.send([1, 2, 3, 4])
        assert pool.recv(min_slots=1).slots.tolist() == [0]
    assert pool.recv().slots.tolist() == [1, 2, 3]


def test_recv_of_some_slots_waits_for_them_whoever_else_is_ready(gated: Any) -> None:
    pool, gates = gated(workers=4)
    with held(gates[1]), held(gates[2]):
        pool.send([10, 11, 12, 13])
        assert pool.recv(slots=[3]).obs.tolist() == [13]
        pool.get_attr("_path", slots=[0])  # answered after its step
        with pytest.raises(
            TimeoutError, match=r"the results did not .* 3 slots have a pending"
        ):
            pool.recv(slots=[2, 0, 1], timeout=0.05)
    assert pool.recv(slots=[2, 0]).obs.tolist() == [10, 12]
    assert pool.recv(slots=[1]).obs.tolist() == [11]


def test_a_recv_that_timed_out_loses_nothing(gated: Any) -> None:
    pool, gates = gated(workers=4)
    with held(gates[2]):
        pool.send([5, 6, 7, 8])
        with pytest.raises(TimeoutError, match="4 slots have a pending command"):
            pool.recv(timeout=0.01)
    step = pool.recv(timeout=30)
    assert step.obs.tolist() == [5, 6, 7, 8] and step.reward.tolist() == [5, 6, 7, 8]


# Deadlines of a batch -----------------------------------------------------------------


def test_a_deadline_takes_what_is_ready_and_leaves_the_rest_under_way(
    gated: Any,
) -> None:
    pool, gates = gated(workers=4)
    with held(gates[2]):
        pool.send([10, 11, 12, 13])
        pool.get_attr("_path", slots=[0, 1, 3])  # answered after their steps
        step = pool.recv(within=0.01)
        assert step.slots.tolist() == [0, 1, 3] and step.obs.tolist() == [10, 11, 13]
        assert pool.waiting == 1
    assert pool.recv().obs.tolist() == [12]


def test_min_slots_are_waited_for_past_the_deadline(gated: Any) -> None:
    pool, gates = gated(workers=4)
    with ExitStack() as holding:
        holding.enter_context(held(gates[2]))
        pool.send([10, 11, 12, 13])
        with pytest.raises(TimeoutError, match=r"within 0\.05 s; 4 slots have a pend"):
            pool.recv(min_slots=4, within=0.001, timeout=0.05)
        opener = threading.Timer(0.02, holding.pop_all().close)
        opener.start()
        step = pool.recv(min_slots=4, within=0.001)
        opener.join()
    assert step.obs.tolist() == [10, 11, 12, 13]


def test_enough_results_do_not_wait_for_the_deadline(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    assert len(echo.recv(1, 3, within=3600)) == 3
    assert len(echo.recv(within=3600)) == 1
    echo.send([1, 2, 3, 4])
    assert echo.recv(within=np.float32(3600)).obs.tolist() == [1, 2, 3, 4]


def test_a_deadline_of_zero_takes_the_first_that_are_ready(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    step = echo.recv(min_slots=2, max_slots=3, within=0)
    assert 2 <= len(step) <= 3 and (step.obs == step.slots + 1).all()
    assert len(echo.recv()) == 4 - len(step)


@pytest.mark.parametrize("slots", [None, range(6)])
def test_the_caller_runs_envs_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, slots: range | None
) -> None:
    """One that runs is not interrupted, and the next is not begun."""
    clock = itertools.count(0.0, 0.4)  # seconds between two looks
    with Pool(Echo, 6, backend="serial", seed=7) as pool:
        pool.reset()
        pool.send([1, 2, 3, 4, 5, 6], slots=slots)
        monkeypatch.setattr("corral.engine.pool.pool.perf_counter", clock.__next__)
        assert pool.recv(within=1.0).slots.tolist() == [0, 1, 2]
        assert pool.recv(2, within=0.0).slots.tolist() == [3, 4]
        assert pool.recv(within=1.0).slots.tolist() == [5]


@pytest.mark.parametrize("within", [-1, float("nan"), np.float32(-1), True, "1"])
def test_deadlines_that_are_no_seconds_are_refused(echo: Pool, within: Any) -> None:
    echo.send([1, 2, 3, 4])
    with pytest.raises(OptionError, match=r"recv\(within=.*needs seconds >= 0"):
        echo.recv(within=within)
    with pytest.raises(OptionError, match="min_slots, max_slots and within, not both"):
        echo.recv(within=1.0, slots=[1])
    with pytest.raises(OptionError, match="1 <= min_slots"):
        echo.recv(0, within=1.0)
    assert len(echo.recv()) == 4


# Episodes: seeds, options, tasks ------------------------------------------------------


def test_every_episode_has_a_seed_of_its_own(make_pool: MakePool) -> None:
    pool = make_pool(functools.partial(Echo, end_after=1), 2, seed=5)
    seeds = [pool.reset().seed, *(pool.step([1, 1]).seed for _ in range(3))]
    for episode, of_slots in enumerate(seeds):
        assert of_slots.tolist() == [episode_seed(5, slot, episode) for slot in (0, 1)]


def test_a_seed_that_is_drawn_is_told_and_repeats_the_run(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, 2, seed=None)
    first = pool.reset().obs
    again = make_pool(Countdown, 2, seed=pool.seed)
    assert (again.reset().obs == first).all()


def test_seeds_options_and_tasks_are_given_per_slot(echo: Pool) -> None:
    step = echo.reset(slots=[2, 0], seeds=[40, None], options=[{"a": 1}, None])
    at = dict(
        zip(step.slots.tolist(), (step.infos.of(0), step.infos.of(1)), strict=True)
    )
    assert at[2] == {"seed": 40, "options": {"a": 1}}
    assert at[0] == {"seed": episode_seed(7, 0, 1), "options": None}
    assert step.seed.tolist() == [episode_seed(7, 0, 1), 40]
    assert echo.reset(options={"b": 2}).infos.of(3)["options"] == {"b": 2}
    assert echo.reset().infos.of(3)["options"] is None


def test_a_seed_of_any_size_reaches_the_env(echo: Pool) -> None:
    step = echo.reset(slots=[1], seeds=[2**70])
    assert step.infos.of(0)["seed"] == 2**70


@pytest.mark.parametrize(
    "wrong", [{"seeds": [1]}, {"tasks": [1, 2, 3]}, {"options": [{}, {}, {}]}]
)
def test_as_many_seeds_tasks_and_options_as_slots(
    echo: Pool, wrong: dict[str, Any]
) -> None:
    with pytest.raises(OptionError, match="for 2 slots"):
        echo.send_reset([0, 1], **wrong)
    assert len(echo.reset([0, 1])) == 2


def test_a_task_without_set_task_comes_in_the_options(make_pool: MakePool) -> None:
    pool = make_pool(Tasked, 2)
    step = pool.reset(tasks=["left", None], options={"speed": 3})
    assert step.infos.of(0)["options"] == repr({"speed": 3, "task": "left"})
    assert step.infos.of(1)["options"] == repr({"speed": 3, "task": None})
    assert pool.reset().infos.of(0)["options"] == "None"


def test_a_task_is_given_by_set_task_where_there_is_one(make_pool: MakePool) -> None:
    pool = make_pool(MetaTasked, 2, wrappers=[Doubled])
    step = pool.reset(tasks=["left", "right"])
    assert [step.infos.of(slot)["task"] for slot in (0, 1)] == ["'left'", "'right'"]
    assert step.infos.of(0)["options"] == "None"


@pytest.mark.parametrize(
    ("task_by", "task", "options"),
    [
        ("options", "'none yet'", "{'task': 'left'}"),
        ("set_task", "'left'", "None"),
        (lambda env, task: setattr(env.unwrapped, "task", [task]), "['left']", "None"),
    ],
)
def test_task_by_says_how_envs_are_told_their_tasks(
    make_pool: MakePool, task_by: Any, task: str, options: str
) -> None:
    pool = make_pool(MetaTasked, 1, task_by=task_by)
    info = pool.reset(tasks=["left"]).infos.of(0)
    assert (info["task"], info["options"]) == (task, options)


def test_a_pool_says_how_its_envs_are_told_their_tasks(make_pool: MakePool) -> None:
    assert make_pool(Tasked, 1).task_by == "options"
    assert make_pool(MetaTasked, 1).task_by == "set_task"
    assert make_pool(MetaTasked, 1, task_by="options").task_by == "options"


def test_task_by_must_be_something_that_the_envs_have(make_pool: MakePool) -> None:
    with pytest.raises(OptionError, match=r"task_by is 3; name a method of the env"):
        make_pool(Tasked, 1, task_by=3)
    with pytest.raises(OptionError, match=r"'choose_task', and .* no suc"):
        make_pool(Tasked, 1, task_by="choose_task")
    with pytest.raises(OptionError, match="task_by='options' works slot by slot"):
        make_pool(Tasked, 1, task_by="options", batched=True)


def test_an_env_that_cannot_be_told_a_task_says_so(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, 1, wrappers=[Deaf])
    with pytest.raises(
        OptionError, match=r"Deaf takes no options\. Give the env a method"
    ):
        pool.reset(tasks=["left"])
    assert pool.reset().seed.tolist() == [episode_seed(7, 0, 1)]  # it goes on


def test_an_assigned_task_is_for_the_next_episode_only(make_pool: MakePool) -> None:
    pool = make_pool(Tasked, 2)
    pool.reset()
    pool.step([0, 0])
    pool.assign(1, {"goal": 4})
    options = []
    for _ in range(5):
        infos = pool.step([0, 0]).infos
        options.append((infos.of(0)["options"], infos.of(1)["options"]))
    task = repr({"task": {"goal": 4}})
    # Two steps to an episode: the end of the running one already shows the next.
    assert options == [("None", task)] * 2 + [("None", "None")] * 3


def test_a_task_assigned_while_its_slot_is_under_way_waits_its_turn(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Tasked, 2)
    pool.reset()
    pool.step([0, 0])
    pool.send([0, 0])  # ends both episodes, and starts the next ones
    pool.assign(0, "late")
    assert pool.recv().infos.of(0)["options"] == "None"
    pool.step([0, 0])
    assert pool.step([0, 0]).infos.of(0)["options"] == repr({"task": "late"})


def test_assign_names_a_slot_that_is_not_there(echo: Pool) -> None:
    with pytest.raises(OptionError, match="slots 0 to 3"):
        echo.assign(4, "task")


def test_sampled_tasks_are_the_same_on_every_backend(make_pool: MakePool) -> None:
    scale = 1000

    def sample_task(slot: int, episode: int, rng: np.random.Generator) -> Any:
        return slot, episode, int(rng.integers(scale))

    pool = make_pool(Tasked, 3, sample_task=sample_task, seed=3)
    step = pool.reset()
    tasks = [step.infos.of(slot)["options"] for slot in range(3)]
    pool.step([0, 0, 0])
    step = pool.step([0, 0, 0])
    tasks += [step.infos.of(slot)["options"] for slot in range(3)]
    expected = []
    for episode in (0, 1):
        for slot in range(3):
            rng = np.random.default_rng(episode_seed(3, slot, episode, 1))
            expected.append(repr({"task": sample_task(slot, episode, rng)}))
    assert tasks == expected


def test_a_given_task_goes_before_a_sampled_one(make_pool: MakePool) -> None:
    pool = make_pool(Tasked, 2, sample_task=lambda slot, episode, rng: "sampled")
    infos = pool.reset(slots=[1], tasks=["given"]).infos
    assert infos.of(0)["options"] == repr({"task": "given"})
    assert pool.reset().infos.of(1)["options"] == repr({"task": "sampled"})


# Questions ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["serial", "thread", "process"])
def wrapped_echoes(request: pytest.FixtureRequest) -> Iterator[Pool]:
    workers = 1 if request.param == "serial" else 2
    with Pool(
        functools.partial(Echo, render_mode="rgb_array"),
        4,
        backend=request.param,
        workers=workers,
        wrappers=[Doubled, functools.partial(gymnasium.wrappers.TimeLimit, **LIMIT)],
        seed=7,
    ) as pool:
        pool.reset()
        yield pool


LIMIT = {"max_episode_steps": 1000}


def test_calls_reach_through_wrappers_on_chosen_slots(wrapped_echoes: Pool) -> None:
    pool = wrapped_echoes
    pool.set_attr("gain", [1, 2, 3, 4])
    assert pool.call("add", 10) == (11, 12, 13, 14)
    assert pool.call("add", 10, times=2, slots=[3, 1]) == (24, 22)
    assert pool.call("shout", "hey") == ("hey",) * 4
    assert pool.call("gain", slots=[2]) == (3,)


def test_attributes_are_set_on_the_layer_that_has_them(wrapped_echoes: Pool) -> None:
    pool = wrapped_echoes
    pool.set_attr("loud", True, slots=[0, 2])
    assert pool.get_attr("loud") == (True, False, True, False)
    assert pool.call("shout", "hey") == ("HEY", "hey", "HEY", "hey")
    pool.set_attr("gain", 9, slots=[1])
    assert pool.step([0], slots=[1]).reward.tolist() == [9.0]
    pool.set_attr("loud", False)


def test_a_set_attr_with_too_few_values_is_refused(wrapped_echoes: Pool) -> None:
    with pytest.raises(OptionError, match="`3` values for 4"):
        wrapped_echoes.set_attr("gain", [1, 2, 3])


def test_a_missing_attribute_names_it_and_the_slot(wrapped_echoes: Pool) -> None:
    with pytest.raises(corral.errors.EnvError, match=r"slot 2.*AttributeError.*colour"):
        wrapped_echoes.get_attr("colour", slots=[2])


@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_what_the_pool_does_itself_cannot_be_called(
    wrapped_echoes: Pool, name: str
) -> None:
    with pytest.raises(OptionError, match=f"use `{name}` directly"):
        wrapped_echoes.call(name)


def test_render_gives_one_frame_per_slot(wrapped_echoes: Pool) -> None:
    pool = wrapped_echoes
    pool.reset()
    pool.step([1, 1], slots=[0, 3])
    frames = pool.render()
    assert [int(frame.max()) for frame in frames] == [1, 0, 0, 1]
    assert [frame.shape for frame in pool.render(slots=[2])] == [(2, 2, 3)]


def test_a_function_is_applied_beside_the_envs_of_chosen_slots(
    wrapped_echoes: Pool,
) -> None:
    pool = wrapped_echoes
    asked = pool.question_count
    layers = pool.apply(lambda env: (type(env).__name__, type(env.env).__name__))
    assert layers == (("TimeLimit", "Doubled"),) * 4
    pool.apply(setattr, "mark", 3, slots=[2, 1])  # on the outermost wrapper alone
    marks = pool.apply(lambda env, name: vars(env).get(name), "mark", slots=[1, 3])
    assert marks == (3, None)
    assert pool.question_count == asked + 3


def test_a_function_that_raises_names_its_slot(wrapped_echoes: Pool) -> None:
    with pytest.raises(EnvError, match=r"slot 1.*AttributeError in apply"):
        wrapped_echoes.apply(getattr, "nothing_of_the_kind", slots=[1])


def test_what_cannot_be_sent_with_a_question_is_refused_and_harms_nothing() -> None:
    with Pool(Echo, 2, backend="process", workers=2) as pool:
        for ask in (pool.apply, lambda *values: pool.call("add", *values)):
            with pytest.raises(OptionError, match=r"cannot be sent.*lock"):
                ask(threading.Lock())
        assert pool.reset().obs.shape == (2,)
        assert pool.get_attr("_count") == (0, 0)


def test_a_question_waits_for_what_was_sent_and_leaves_it_under_way(echo: Pool) -> None:
    echo.send([1, 2, 3, 4])
    assert echo.get_attr("_count") == (1, 1, 1, 1)
    assert echo.waiting == 4
    assert echo.recv().obs.tolist() == [1, 2, 3, 4]


# Lifetimes ----------------------------------------------------------------------------


def test_the_context_manager_closes(make_pool: MakePool) -> None:
    with make_pool(Echo, 2) as pool:
        assert not pool.closed
    assert pool.closed
    pool.close()
    with pytest.raises(ClosedError):
        pool.reset()


def test_copies_are_the_callers_own(echo: Pool) -> None:
    first = echo.step([1, 2, 3, 4])
    for number in range(5, 9):
        echo.step([number] * 4)
    assert first.obs.tolist() == [1, 2, 3, 4]
    first.obs[:] = 77
    assert echo.observe().tolist() == [8] * 4


@pytest.mark.parametrize("slots", [None, [0, 1]], ids=["all", "one shard"])
def test_views_stay_intact_during_the_next_step(
    make_pool: MakePool, slots: list[int] | None
) -> None:
    pool = make_pool(functools.partial(Countdown, float, 100), 4, copy=False)
    pool.reset()
    for number in range(6):
        pool.send([number] * (4 if slots is None else 2), slots=slots)
        before = pool.recv()
        kept = before.obs.copy(), before.reward.copy(), before.episode_length.copy()
        pool.send([50] * (4 if slots is None else 2), slots=slots)
        pool.recv()
        assert (before.obs == kept[0]).all() and (before.reward == kept[1]).all()
        assert (before.episode_length == kept[2]).all()


def test_views_are_views_and_copies_are_not(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, 2, copy=False)
    assert not pool.reset().obs.flags.owndata
    pool.send([1, 1])
    assert pool.recv(copy=True).obs.base is None


@pytest.mark.parametrize("field", ["obs", "reward", "valid", "seed", "final_obs"])
def test_a_view_kept_too_long_is_told_of_in_debug_mode(
    make_pool: MakePool, field: str
) -> None:
    pool = make_pool(
        functools.partial(Countdown, float, 100), 2, copy=False, debug=True
    )
    pool.reset()
    kept = getattr(pool.step([1, 1]), field)
    pool.step([2, 2])
    with pytest.raises(StaleViewError, match=r"slots \[0, 1\]"):
        pool.step([3, 3])
    del kept
    # What was refused was not sent: the pool goes on as if it had not been asked.
    assert pool.waiting == 0
    assert pool.step([4, 4]).episode_length.tolist() == [3, 3]


def test_a_stale_view_of_one_slot_is_enough(make_pool: MakePool) -> None:
    pool = make_pool(
        functools.partial(Countdown, float, 100), 2, copy=False, debug=True
    )
    kept = pool.reset().obs
    pool.step([1], slots=[1])
    with pytest.raises(StaleViewError):
        pool.step([1], slots=[1])
    del kept
    assert pool.step([4], slots=[1]).episode_length.tolist() == [2]
    assert pool.step([4, 4]).episode_length.tolist() == [1, 3]


def test_debug_mode_leaves_those_alone_who_let_go_in_time(make_pool: MakePool) -> None:
    pool = make_pool(
        functools.partial(Countdown, float, 100), 2, copy=False, debug=True
    )
    step = pool.reset()
    for number in range(6):
        step = pool.step([number, number])
    assert step.episode_length.tolist() == [6, 6]
