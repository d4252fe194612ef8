"""A rollout buffer keeps what it was told, by row and slot, in memory of its own."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from contracts.reference import same
from gymnasium import spaces
from made_steps import step_of

from corral import Collector, Decision, ObsNorm, Pool, Rollout, Step
from corral.errors import Fault, OptionError
from corral.rollouts.filling import Boundary, Filled
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.space_rows import SpaceParts

BOX = spaces.Box(-9, 9, (2,), np.float64)
NESTED = spaces.Dict(
    {"image": spaces.Box(0, 255, (2, 2), np.uint8), "word": spaces.Text(9)}
)
SLOTS = 3
EVERY = list(range(SLOTS))


def buffer_of(
    rows: int = 3, space: Any = BOX, action: Any = None, norm: ObsNorm | None = None
) -> RolloutBuffer:
    """A buffer whose slot 0 has just started an episode."""
    action = spaces.Discrete(9) if action is None else action
    started = np.array([True, False, False])
    return RolloutBuffer(SpaceParts(space), SpaceParts(action), rows, started, norm)


def boxes(*numbers: float) -> Any:
    """One observation per number, which tells them apart."""
    return np.array([[number, -number] for number in numbers], np.float64)


def decision_of(*actions: int, **extras: Any) -> Decision:
    return Decision(np.array(actions), extras=extras)


def add(buffer: RolloutBuffer, at: Any, step: Step, decision: Decision) -> Any:
    """Tell of a decision about a step that the policy saw as it came."""
    return buffer.add_decision(at, step, step, decision)


# Decisions ----------------------------------------------------------------------------


def test_a_decision_is_kept_in_its_row_and_no_other() -> None:
    buffer = buffer_of()
    add(
        buffer, 1, step_of(EVERY, boxes(1, 2, 3)), decision_of(4, 5, 6, value=[7, 8, 9])
    )
    nothing = [0, 0, 0]
    assert buffer.obs.whole()[..., 0].tolist() == [nothing, [1, 2, 3], nothing]
    assert buffer.action.whole().tolist() == [nothing, [4, 5, 6], nothing]
    assert buffer.extras["value"].tolist() == [nothing, [7, 8, 9], nothing]


def test_the_order_in_which_slots_are_decided_about_does_not_matter() -> None:
    """Each slot three times: all together, or one by one in any order of slots."""
    whole = buffer_of()
    for row in range(3):
        numbers = [10 * row + slot for slot in EVERY]
        value = np.array(numbers) / 8
        decision = decision_of(*(number % 9 for number in numbers), value=value)
        add(whole, row, step_of(EVERY, boxes(*numbers)), decision)
    for order in itertools.islice(itertools.permutations(EVERY * 3), 0, None, 40_000):
        buffer, row_of = buffer_of(), [0] * SLOTS
        for slot in order:
            row, row_of[slot] = row_of[slot], row_of[slot] + 1
            number, at = 10 * row + slot, (np.array([row]), np.array([slot]))
            decision = decision_of(number % 9, value=np.array([number]) / 8)
            add(buffer, at, step_of([slot], boxes(number)), decision)
        assert same(buffer.obs.whole(), whole.obs.whole())
        assert same(buffer.action.whole(), whole.action.whole())
        assert same(buffer.extras, whole.extras)


def test_nothing_of_a_step_or_decision_is_shared() -> None:
    """A step may be one of views, and a policy may use its arrays again."""
    buffer = buffer_of()
    step = step_of(EVERY, boxes(1, 2, 3))
    decision = decision_of(4, 5, 6, value=np.array([7.0, 8.0, 9.0]))
    add(buffer, 0, step, decision)
    for array in (step.obs, decision.action, decision.extras["value"]):
        array[:] = 0
    assert buffer.obs.whole()[0, :, 0].tolist() == [1, 2, 3]
    assert buffer.action.whole()[0].tolist() == [4, 5, 6]
    assert buffer.extras["value"][0].tolist() == [7, 8, 9]


def test_the_actions_come_back_as_they_are_stored() -> None:
    buffer = buffer_of()
    (stored,) = add(buffer, 2, step_of(EVERY, boxes(1, 2, 3)), decision_of(4, 5, 6))
    assert stored.tolist() == [4, 5, 6]
    assert np.shares_memory(stored, buffer.action.whole())
    at = np.array([0, 1]), np.array([2, 0])
    step = step_of([2, 0], boxes(1, 2))
    (stored,) = add(buffer, at, step, Decision([7, 8]))
    assert stored.tolist() == [7, 8] and stored.dtype == np.int64


def test_what_the_policy_saw_and_what_the_envs_gave_are_kept_apart() -> None:
    norm = ObsNorm(BOX)
    buffer = buffer_of(norm=norm)
    step = step_of(EVERY, boxes(1, 2, 3))
    seen = step_of(EVERY, boxes(0.1, 0.2, 0.3).astype(np.float32))
    buffer.add_decision(0, step, seen, decision_of(1, 1, 1))
    assert buffer.raw is not None
    assert same(buffer.raw.whole()[0], step.obs)
    assert same(buffer.obs.whole()[0], seen.obs)
    assert buffer_of().raw is None


def test_nested_observations_and_actions_are_kept_part_by_part() -> None:
    action = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32)])
    buffer = buffer_of(2, NESTED, action)
    image = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    push = np.array([[0.5], [0.25], [0.125]], np.float32)
    step = step_of(EVERY, {"image": image, "word": ("a", "b", "c")})
    stored = add(buffer, 1, step, Decision((np.array([2, 1, 0]), push)))
    obs, actions = buffer.obs.whole(), buffer.action.whole()
    assert list(obs) == ["image", "word"] and type(actions) is tuple
    assert same(obs["image"][1], image) and not obs["image"][0].any()
    assert obs["word"][1].tolist() == ["a", "b", "c"]
    assert actions[0][1].tolist() == [2, 1, 0] and same(actions[1][1], push)
    assert all(map(same, stored, [actions[0][1], actions[1][1]]))


# Extras -------------------------------------------------------------------------------


def test_extras_of_some_slots_leave_the_others_at_zero() -> None:
    buffer = buffer_of(2)
    at = np.array([0, 1]), np.array([2, 0])
    extras = {"carry": np.ones((2, 4), np.float32)}
    add(buffer, at, step_of([2, 0], boxes(1, 2)), decision_of(1, 1, **extras))
    carry = buffer.extras["carry"]
    assert carry.shape == (2, SLOTS, 4) and carry.dtype == np.float32
    assert carry[..., 0].tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("later", "dtype"),
    [(np.full(3, 0.1), np.float64), ([1, 2, 3], np.float64), (np.ones(3, bool), "f4")],
    ids=["wider", "integers", "narrower"],
)
def test_extras_get_a_dtype_that_loses_nothing(later: Any, dtype: Any) -> None:
    buffer, step = buffer_of(2), step_of(EVERY, boxes(1, 2, 3))
    first = np.full(3, 0.1, np.float32)
    add(buffer, 0, step, decision_of(1, 1, 1, value=first))
    add(buffer, 1, step, decision_of(1, 1, 1, value=later))
    value = buffer.extras["value"]
    assert value.dtype == np.dtype(dtype)
    assert value[0].tolist() == first.tolist()
    assert value[1].tolist() == [float(number) for number in later]


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "another name": (
        {"log_prob": np.zeros(3)},
        r"extras are \['log_prob'\]; before they were \['value'\]",
    ),
    "a name more": (
        {"value": np.zeros(3), "log_prob": np.zeros(3)},
        r"extras are \['log_prob', 'value'\]; before they were \['value'\]",
    ),
    "no name": ({}, r"extras are \[\]; before they were \['value'\]"),
    "a row less": (
        {"value": np.zeros(2)},
        r"extras\['value'\] has shape \(2,\); expected \(3\)",
    ),
    "a column more": (
        {"value": np.zeros((3, 1))},
        r"extras\['value'\] has shape \(3, 1\); expected \(3\)",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_extras_other_than_those_of_the_first_decision_are_refused(name: str) -> None:
    extras, message = MISFITS[name]
    buffer, step = buffer_of(), step_of(EVERY, boxes(1, 2, 3))
    add(buffer, 0, step, decision_of(1, 1, 1, value=np.ones(3)))
    with pytest.raises(OptionError, match=message):
        add(buffer, 1, step, decision_of(1, 1, 1, **extras))


def test_extras_without_a_row_for_each_of_the_step_are_refused() -> None:
    buffer, step = buffer_of(), step_of(EVERY, boxes(1, 2, 3))
    with pytest.raises(OptionError, match=r"shape \(2,\); expected \(3, \.\.\.\)"):
        add(buffer, 0, step, decision_of(1, 1, 1, value=np.zeros(2)))


# Flags --------------------------------------------------------------------------------


def test_rows_are_in_the_middle_of_an_episode_until_told_otherwise() -> None:
    buffer = buffer_of()
    assert buffer.started.tolist() == [[True, False, False]] + [[False] * 3] * 2
    assert not (buffer.terminated | buffer.truncated).any()
    assert buffer.valid.all()


def test_a_start_belongs_to_the_row_after_the_end() -> None:
    buffer = buffer_of()
    ended, late = [True, False, False], [False, False, True]
    step = step_of(EVERY, boxes(1, 2, 3), terminated=ended, started=ended)
    buffer.add_flags(0, step)
    step = step_of(EVERY, boxes(1, 2, 3), truncated=late, valid=ended, started=late)
    buffer.add_flags(2, step)
    nowhere = [False] * 3
    assert buffer.terminated.tolist() == [ended, nowhere, nowhere]
    assert buffer.truncated.tolist() == [nowhere, nowhere, late]
    assert buffer.valid.tolist() == [[True] * 3, [True] * 3, ended]
    # What starts after the last row is the next rollout's to say.
    assert buffer.started.tolist() == [ended, ended, nowhere]


def test_flags_of_some_slots_go_to_their_own_rows() -> None:
    buffer = buffer_of()
    at = np.array([1, 0]), np.array([0, 2])
    yes = [True, True]
    buffer.add_flags(at, step_of([0, 2], boxes(1, 2), truncated=yes, started=yes))
    assert np.argwhere(buffer.truncated).tolist() == [[0, 2], [1, 0]]
    assert np.argwhere(buffer.started).tolist() == [[0, 0], [1, 2], [2, 0]]


# Ends ---------------------------------------------------------------------------------


def ending(obs: Any, final: Any, **fields: Any) -> Step:
    """Slots 0 and 2 come back, and the episode of slot 2 has ended."""
    flags = {"terminated": [False, True], **fields}
    return step_of(
        [0, 2],
        obs,
        final_obs=final,
        episode_return=[1.0, 2.5],
        episode_length=[3, 7],
        seed=[50, 51],
        **flags,
    )


def end(buffer: RolloutBuffer, row: int, step: Step, position: int) -> None:
    buffer.add_end(row, step, position, seed=40, carry=None)


def summary(buffer: RolloutBuffer, row: int, slot: int) -> EpisodeSummary:
    found = buffer.ends[row, slot].summary
    assert found is not None
    return found


def finals(buffer: RolloutBuffer) -> Any:
    """The last observations, as a batch."""
    return buffer._space.stacked([one.final_obs for one in buffer.ends.values()])


def test_an_episode_that_terminated_is_summed_up() -> None:
    buffer = buffer_of()
    step = ending(boxes(1, 2), boxes(3, 4), final_infos={1: {"won": True}})
    end(buffer, 1, step, 1)
    assert list(buffer.ends) == [(1, 2)]
    one = summary(buffer, 1, 2)
    assert (one.slot, one.row, one.seed) == (2, 1, 40)  # not the next episode's seed
    assert (one.return_, one.length, one.terminated) == (2.5, 7, True)
    assert one.info == {"won": True}
    assert not buffer.ends[1, 2].bootstrapped


def test_the_last_info_is_in_the_step_where_no_reset_followed() -> None:
    buffer = buffer_of()
    step = ending(boxes(1, 2), boxes(3, 4), infos={1: {"won": False}})
    end(buffer, 0, step, 1)
    end(buffer, 1, ending(boxes(1, 2), boxes(3, 4)), 1)
    assert summary(buffer, 0, 2).info == {"won": False}
    assert summary(buffer, 1, 2).info == {}


def test_an_episode_that_was_truncated_is_bootstrapped() -> None:
    buffer = buffer_of()
    flags = {"terminated": [False, False], "truncated": [False, True]}
    end(buffer, 1, ending(boxes(1, 2), boxes(3, 4), **flags), 1)
    assert buffer.ends[1, 2].bootstrapped
    assert not summary(buffer, 1, 2).terminated


def test_an_episode_that_both_terminated_and_was_truncated_terminated() -> None:
    buffer = buffer_of()
    step = ending(boxes(1, 2), boxes(3, 4), truncated=[False, True])
    end(buffer, 1, step, 1)
    assert not buffer.ends[1, 2].bootstrapped
    assert summary(buffer, 1, 2).terminated


def test_a_fault_is_kept_and_its_episode_is_not_summed_up() -> None:
    buffer, fault = buffer_of(), Fault("raised", "step", slot=2)
    flags = {"terminated": [False] * 2, "truncated": [False, True]}
    step = ending(
        boxes(1, 2),
        boxes(3, 4),
        valid=[True, False],
        infos={1: {"fault": fault}},
        **flags,
    )
    end(buffer, 1, step, 1)
    one = buffer.ends[1, 2]
    assert one.fault is fault and one.summary is None and not one.bootstrapped
    assert one.final_obs[0].tolist() == [4, -4]  # its row is truncated all the same


def test_last_observations_are_copies() -> None:
    buffer = buffer_of()
    final = boxes(7)
    end(buffer, 2, step_of([0], boxes(0), final_obs=final, terminated=[True]), 0)
    final[:] = 0  # a view: the next episode's end is written over it
    assert finals(buffer).tolist() == [[7, -7]]


def test_last_observations_of_a_nested_space_have_its_structure() -> None:
    buffer = buffer_of(space=NESTED)
    empty = finals(buffer)
    assert empty["image"].shape == (0, 2, 2) and empty["word"] == ()
    image = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    step = ending(None, {"image": image.copy(), "word": ("a", "b")})
    end(buffer, 1, step, 0)
    end(buffer, 2, step, 1)
    step.final_obs["image"][:] = 0
    assert same(finals(buffer), {"image": image, "word": ("a", "b")})


# Truncated episodes -------------------------------------------------------------------


def test_an_end_has_the_carry_after_its_last_action() -> None:
    buffer, carry = buffer_of(), {"trace": np.array([[2, 1]])}
    step = step_of([1], boxes(0), final_obs=boxes(5), truncated=[True])
    buffer.add_end(0, step, 0, seed=0, carry=carry)
    assert buffer.ends[0, 1].carry is carry


def test_what_is_running_after_the_last_row_can_be_truncated_there() -> None:
    buffer = buffer_of()
    now = step_of(EVERY, boxes(7, 8, 9))
    buffer.truncate_after_last_row(now.obs, 1, np.array([3.0]))
    now.obs[:] = 0
    assert np.argwhere(buffer.truncated).tolist() == [[2, 1]]
    (one,) = buffer.ends.values()
    assert list(buffer.ends) == [(2, 1)] and one.bootstrapped
    assert finals(buffer).tolist() == [[8, -8]] and one.carry.tolist() == [3]
    assert one.summary is None  # it did not end by itself


# Rows that were filled elsewhere ------------------------------------------------------


def memory_of(buffer: RolloutBuffer) -> dict[str, Any]:
    """Memory for another buffer with the same arrays."""
    return {name: array.copy() for name, array in buffer.arrays().items()}


def part_of(memory: dict[str, Any], slots: slice, started: Any = False) -> Any:
    """A buffer of some slots, with their part of the memory."""
    given = {name: array[:, slots] for name, array in memory.items()}
    space, action, rows = SpaceParts(BOX), SpaceParts(spaces.Discrete(9)), 3
    began = np.full(slots.stop - slots.start, started)
    return RolloutBuffer(space, action, rows, began, None, given)


def valued(memory: dict[str, Any], slots: slice, value: Any) -> Any:
    """Such a buffer whose row 1 has these values, and ends an episode."""
    part, own = part_of(memory, slots), range(slots.stop - slots.start)
    numbers = np.arange(slots.start, slots.stop)
    step = step_of([*own], boxes(*numbers), terminated=[True for _ in own])
    step.final_obs = boxes(*numbers + 10)
    add(part, 1, step, decision_of(*numbers, value=np.array(value)))
    part.reward[1] = numbers
    part.add_flags(1, step)
    end(part, 1, step, 0)
    return part


def adopt(buffer: RolloutBuffer, slots: slice, part: RolloutBuffer) -> None:
    arrays = part.private_arrays()
    buffer.adopt(slots, part.extras.keys(), arrays, part.packed_ends())


def whole_of_three() -> RolloutBuffer:
    """A buffer for rows that are filled elsewhere, with memory for their values."""
    first = buffer_of()
    add(first, 0, step_of(EVERY, boxes(0, 0, 0)), decision_of(0, 0, 0, value=[0.0] * 3))
    return part_of(memory_of(first), slice(0, 3))


FIRST, REST = slice(0, 1), slice(1, 3)


def test_parts_that_have_their_memory_in_common_are_adopted_as_they_are() -> None:
    whole = whole_of_three()
    adopt(whole, FIRST, valued(whole.memory, FIRST, [0.5]))
    adopt(whole, REST, valued(whole.memory, REST, [1.5, 2.5]))
    assert whole.private_arrays() == {}
    assert whole.extras["value"].tolist() == [[0, 0, 0], [0.5, 1.5, 2.5], [0, 0, 0]]
    assert whole.obs.whole()[1, :, 0].tolist() == [0, 1, 2]
    assert whole.action.whole()[1].tolist() == whole.reward[1].tolist() == [0, 1, 2]
    assert whole.terminated.sum(axis=1).tolist() == [0, 3, 0]
    ends = whole.packed_ends()
    assert ends.numbers[:, :2].tolist() == [[1, 0], [1, 1]]  # slots of the whole pool
    assert ends.final_obs[0][:, 0].tolist() == [10, 11]


@pytest.mark.parametrize("wide_first", [True, False])
def test_parts_with_extras_of_another_dtype_are_adopted_beside_the_others(
    wide_first: bool,
) -> None:
    whole = whole_of_three()
    for slots in (REST, FIRST) if wide_first else (FIRST, REST):
        value = [2**53, 1j] if slots == REST else [0.5]
        adopt(whole, slots, valued(whole.memory, slots, value))
    assert whole.extras["value"].dtype == complex
    assert whole.extras["value"][1].tolist() == [0.5, 2**53, 1j]
    assert list(whole.private_arrays()) == ["extras/value"]


def test_parts_whose_extras_have_other_names_are_refused() -> None:
    whole = whole_of_three()
    adopt(whole, FIRST, valued(whole.memory, FIRST, [0.5]))
    part = part_of(whole.memory, REST)
    add(part, 0, step_of([0, 1], boxes(1, 2)), decision_of(1, 1))
    with pytest.raises(OptionError, match=r"are \[\]; before they were \['value'\]"):
        adopt(whole, REST, part)


def test_rows_that_were_lost_are_padding_that_nothing_crosses() -> None:
    whole = whole_of_three()
    for slots, value in ((FIRST, [0.5]), (REST, [1.5, 2.5])):
        adopt(whole, slots, valued(whole.memory, slots, value))
    fault = Fault("died", "step", worker=1)
    whole.lose(range(1, 3), fault)
    lost = {name: array[:, REST] for name, array in whole.arrays().items()}
    truncated, started = lost.pop("truncated"), lost.pop("started")
    assert not any(array.any() for array in lost.values())  # not even valid
    assert truncated.tolist() == [[False] * 2, [False] * 2, [True] * 2]
    assert started.all()
    assert [*whole.ends] == [(2, 1), (2, 2)]
    assert [one.fault for one in whole.ends.values()] == [fault, None]  # told once
    assert not any(one.bootstrapped or one.summary for one in whole.ends.values())
    assert whole.extras["value"][1].tolist() == [0.5, 0, 0] and whole.valid[:, 0].all()


def test_memory_that_was_used_before_is_as_in_the_middle_of_an_episode() -> None:
    whole = whole_of_three()
    valued(whole.memory, slice(0, 3), [0.5, 1.5, 2.5])
    whole.lose(range(3), Fault("died", "step"))
    again = part_of(whole.memory, slice(0, 3), started=True)
    assert same(again.started, np.arange(3)[:, None].repeat(3, 1) == 0)
    assert not (again.terminated | again.truncated).any() and again.valid.all()
    assert again.ends == {}


def test_a_rollout_that_owns_its_arrays_keeps_them_when_the_memory_is_used_again() -> (
    None
):
    whole = whole_of_three()
    adopt(whole, slice(0, 3), valued(whole.memory, slice(0, 3), [0.5, 1.5, 2.5]))
    memory, before = whole.memory, memory_of(whole)
    whole.own()
    for array in memory.values():
        array[:] = 1
    assert same(whole.arrays(), before)
    assert np.shares_memory(whole.started, whole.arrays()["started"])
    assert whole.private_arrays().keys() == memory.keys()


# In a rollout -------------------------------------------------------------------------


class Still(gymnasium.Env[Any, Any]):
    observation_space, action_space = BOX, spaces.Discrete(9)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2), {}


class Valuing:
    """Values an observation by its number and by what was remembered."""

    def initial_carry(self, rows: int) -> dict[str, Any]:
        return {"trace": np.zeros((rows, 2))}

    def act(self, *_: Any) -> Any:
        raise AssertionError("it is asked for values alone")

    def value(self, obs: Any, carry: dict[str, Any]) -> Any:
        return 100 * obs[:, 0] + carry["trace"] @ [10, 1]


def finished(buffer: RolloutBuffer) -> Rollout:
    """The rollout of a collector that has filled this buffer."""
    nothing: Any = {"trace": np.zeros((SLOTS, 2))}
    after = Boundary(boxes(0, 0, 0), np.zeros(SLOTS, bool), nothing)
    with Pool(Still, num_envs=SLOTS, backend="serial") as pool:
        collector = Collector(pool, Valuing())  # type: ignore[arg-type]
        fill: Any = lambda steps: Filled(buffer, nothing, after)  # noqa: E731
        collector._filler.fill = fill  # type: ignore[method-assign]
        return collector.collect(buffer.rows)


def test_last_observations_are_in_the_order_of_rows_and_slots() -> None:
    buffer = buffer_of()
    for row, slot in ((2, 0), (0, 2), (0, 1), (1, 0)):
        final = boxes(10 * row + slot)
        end(buffer, row, step_of([slot], None, final_obs=final, terminated=[True]), 0)
    assert finished(buffer).final_obs[:, 0].tolist() == [1, 2, 10, 20]
    assert finished(buffer_of()).final_obs.shape == (0, 2)


def test_a_truncated_episode_is_valued_by_its_own_last_observation_and_carry() -> None:
    buffer = buffer_of()
    for row, slot, terminated in ((2, 1, False), (1, 0, True), (0, 2, False)):
        flags = {"terminated": [terminated], "truncated": [not terminated]}
        step = step_of([slot], None, final_obs=boxes(10 * row + slot), **flags)
        carry = {"trace": np.array([[row, slot]])}
        buffer.add_end(row, step, 0, seed=0, carry=carry)
    rollout = finished(buffer)
    assert rollout.bootstrap.tolist() == [[0, 0, 202], [0, 0, 0], [0, 2121, 0]]
    assert len(rollout.final_obs) == 3
