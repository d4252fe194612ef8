"""The boxes: PettingZoo's own tests, then physics, rewards and ends by hand."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import corral
from corral.errors import FaultError, OptionError

pytest.importorskip("pettingzoo", reason="the boxes are a PettingZoo env")
pytest.importorskip("Box2D", reason="it simulates the boxes")

with warnings.catch_warnings():
    # Its tests import an env of its own by a name that it has given up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test
    from pettingzoo.test.seed_test import parallel_seed_test

from corral.zoo import box_jump
from corral.zoo.box_jump.rewards import MODES, Moment

STAY, LEFT, RIGHT, JUMP = range(4)
X, HEIGHT, SPEED_X, SPEED_Y = range(4)
LEFT_OF, RIGHT_OF, ABOVE, BELOW, CAN_JUMP = range(6, 11)
# One physics step of 0.05 s per action.
SINGLE = {"physics_steps_per_action": 1, "random_spacing": 0.0}


def made(num_boxes=1, **options):
    env = box_jump.parallel_env(num_boxes=num_boxes, **options)
    return env, env.reset(seed=0)[0]


def stepped(env, *actions, times=1):
    """The results of the last of these steps, agents in order."""
    for _ in range(times):
        obs, rewards, over, late, infos = env.step(
            dict(zip(env.agents, actions, strict=True))
        )
    return [list(part.values()) for part in (obs, rewards, over, late, infos)]


def totals(env, choose, seed=0):
    """Rewards of all boxes and steps together, the last infos, and the steps."""
    env.reset(seed=seed)
    total, steps = 0.0, 0
    while env.agents:
        _, rewards, _, _, infos = env.step(choose(env, steps))
        total, steps = total + sum(rewards.values()), steps + 1
    return total, infos[env.possible_agents[0]], steps


def jumping(env, step):
    return dict.fromkeys(env.agents, JUMP)


# PettingZoo's own ---------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"num_boxes": 1}, {"agent_one_hot": True}])
def test_pettingzoo_accepts_it(options):
    parallel_api_test(box_jump.parallel_env(max_timestep=30, **options), 80)


def test_the_same_seed_gives_the_same_episode():
    parallel_seed_test(lambda: box_jump.parallel_env(max_timestep=20), 10)


def test_a_reset_without_a_seed_continues_the_generator():
    env, first = made(2)
    later = [env.reset()[0]["box-1"][X] for _ in range(2)]
    env.reset(seed=0)
    again = [env.reset()[0]["box-1"][X] for _ in range(2)]
    assert later == again
    assert len({first["box-1"][X], *later}) == 3


# Physics ------------------------------------------------------------------------------


def test_boxes_start_side_by_side_in_the_middle():
    _, obs = made(3, random_spacing=0.0)
    places = [(row[X] + 1) / 2 * 800 / 30 for row in obs.values()]
    np.testing.assert_allclose(places, np.array([-1.5, 0, 1.5]) + 400 / 30, atol=1e-5)
    apart = 1.5 / (800 / 30)
    np.testing.assert_allclose(obs["box-2"][[LEFT_OF, RIGHT_OF]], apart, rtol=1e-5)
    assert obs["box-1"][LEFT_OF] == obs["box-3"][RIGHT_OF] == 1
    # Nothing above, and half a box to the floor, of a field 20 high.
    np.testing.assert_allclose(obs["box-1"][[ABOVE, BELOW]], [1, 0.5 / 20])
    for row in obs.values():
        assert (row[HEIGHT], row[SPEED_X], row[CAN_JUMP], row[-1]) == (0, 0, 0, 3)


def test_starts_are_moved_by_up_to_half_a_box():
    env, _ = made(1)
    places = [(env.reset()[0]["box-1"][X]) / 2 * 800 / 30 for _ in range(300)]
    assert -0.5 <= min(places) < -0.45 and 0.45 < max(places) <= 0.5


@pytest.mark.parametrize(("action", "way"), [(LEFT, -1), (RIGHT, 1)])
def test_a_push_overcomes_friction_up_to_a_speed(action, way):
    env, _ = made(**SINGLE)
    (row,), *_ = stepped(env, action)
    # Force 5, friction sqrt(0.8 x 0.2) x 10 = 4, mass 1, 0.05 s; shown as half of it.
    assert row[SPEED_X] == pytest.approx(way * 0.05 / 2, abs=1e-6)
    (row,), *_ = stepped(env, action, times=60)
    # Above 2 there is no push: friction takes 0.2 per step, a push adds 0.05.
    assert 1.8 / 2 < way * row[SPEED_X] <= 2.05 / 2


def test_a_box_jumps_after_ten_calm_steps_with_one_kick():
    env, _ = made(**SINGLE)
    for _ in range(9):
        (row,), *_ = stepped(env, JUMP)
        assert (row[SPEED_Y], row[CAN_JUMP]) == (0, 0)
    (row,), *_ = stepped(env, JUMP)
    # Force 125 upwards, gravity 10 downwards, 0.05 s; shown as an eighth.
    assert row[SPEED_Y] == pytest.approx(-(125 - 10) * 0.05 / 8)
    assert row[CAN_JUMP] == 1
    (row,), *_ = stepped(env, JUMP)
    assert row[SPEED_Y] == pytest.approx(-(125 - 20) * 0.05 / 8)
    assert row[CAN_JUMP] == 0
    heights = [stepped(env, STAY)[0][0][HEIGHT] for _ in range(60)]
    # Steps of 0.05 s that lose 0.5 each: 5.75 + 5.25 + ... + 0.25, and a little sink.
    assert max(heights) == pytest.approx(0.05 * sum(np.arange(5.75, 0, -0.5)), abs=0.03)
    assert heights[-1] == pytest.approx(0, abs=0.02)


def test_an_action_lasts_six_physics_steps_of_a_twentieth_of_a_second():
    slow, _ = made(random_spacing=0.0)
    fast, _ = made(**SINGLE)
    for action in (RIGHT, JUMP, JUMP, LEFT):
        (whole,), *_ = stepped(slow, action)
        (last,), *_ = stepped(fast, action, times=6)
        np.testing.assert_array_equal(whole, last)


def test_a_box_on_another_is_one_high_and_sees_it_below():
    env, _ = made(2, spacing=0.0, random_spacing=0.0)
    (low, high), *_ = stepped(env, STAY, STAY, times=30)
    if low[HEIGHT] > high[HEIGHT]:
        low, high = high, low
    assert high[HEIGHT] == pytest.approx(1, abs=0.05)
    assert high[BELOW] == low[ABOVE] == pytest.approx(1 / 20, abs=0.003)
    assert high[ABOVE] == 1


def test_boxes_turn_unless_their_rotation_is_fixed():
    def turned(**options):
        env, _ = made(2, spacing=0.9, random_spacing=0.0, **options)
        return stepped(env, JUMP, RIGHT, times=10)[0][0][4]

    assert turned() == 0 != turned(fixed_rotation=False)


# Rewards ------------------------------------------------------------------------------


def test_an_episode_of_highest_pays_the_best_height_divided_by_six():
    env = box_jump.parallel_env(num_boxes=3, max_timestep=40)
    total, info, steps = totals(env, jumping)
    assert steps == 41 and info["boxes"] == 3
    assert info["best_height"] > 1.5
    assert total == pytest.approx(info["best_height"] / 6)


def test_highest_stable_does_not_pay_jumps():
    env = box_jump.parallel_env(max_timestep=40, reward_mode="highest_stable")
    total, info, _ = totals(env, jumping)
    assert total == pytest.approx(info["best_height"] / 6)
    assert info["best_height"] < 0.1


# Two boxes, 2 high in a jump and 1 high and steady; the best height rose by 0.5.
MOMENT = Moment([2.0, 1.0], [False, True], 0.5, 100)
PAID = {
    "highest": [0.5, 0.5],
    "highest_stable": [0.5, 0.5],
    "height_sq": [0.04, 0.01],
    "stable_sum": [0.0, 0.5],
    "dense_height": [1.0, 1.0],
    "dense_height_stable": [0.5, 0.5],
    "dense_height_sq": [0.4, 0.4],
    "dense_height_stable_sq": [0.1, 0.1],
    "dense_height_cube": [0.8, 0.8],
    "dense_height_stable_cube": [0.1, 0.1],
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_pays_what_its_line_says(mode):
    assert MODES[mode](MOMENT) == pytest.approx(PAID[mode])


@pytest.mark.parametrize("mode", ["dense_height_sq", "dense_height_cube"])
def test_no_box_is_paid_more_than_a_thousand(mode):
    high = Moment([1e6, 0.0], [True, True], 0.0, 1)
    assert MODES[mode](high) == [2000.0, 2000.0]  # before it is divided by the boxes


@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_divided_by_boxes_and_physics_steps(mode):
    """As the sum over single physics steps, computed again from what is seen."""
    options = {"num_boxes": 2, "reward_mode": mode, **SINGLE}
    env = box_jump.parallel_env(**options)
    obs, _ = env.reset(seed=0)
    best = 0.0
    for step in range(40):
        heights = [float(row[HEIGHT]) for row in obs.values()]
        obs, rewards, *_ = env.step({"box-1": JUMP, "box-2": RIGHT if step % 2 else 0})
        # Speeds are recorded before, heights are those before the boxes move.
        steady = [bool(row[CAN_JUMP]) for row in obs.values()]
        counted = steady if mode == "highest_stable" else [True, True]
        known = [one for one, counts in zip(heights, counted, strict=True) if counts]
        before, best = best, max([best, *known])
        expected = MODES[mode](Moment(heights, steady, best - before, 400))
        np.testing.assert_allclose(
            list(rewards.values()), np.array(expected) / 2, atol=1e-5
        )


# Ends ---------------------------------------------------------------------------------


def test_a_fall_ends_the_episode_for_all_and_costs_the_faller():
    env = box_jump.parallel_env(num_boxes=3, spacing=8, random_spacing=0.0)
    env.reset(seed=0)
    while env.agents:
        _, rewards, over, late, _ = env.step({"box-1": 0, "box-2": 0, "box-3": RIGHT})
    assert rewards == {"box-1": 0, "box-2": 0, "box-3": -100}
    assert all(over.values()) and not any(late.values())
    assert env.step({}) == ({}, {}, {}, {}, {})


def test_boxes_after_the_faller_get_nothing_in_that_step():
    options = {"reward_mode": "dense_height", "spacing": 8, **SINGLE}
    env, _ = made(3, **options)
    env._begun().bodies[2].position = (12, 5)  # ten boxes high
    env._begun().bodies[1].position = (30, 14.5)
    _, rewards, over, *_ = stepped(env, STAY, STAY, STAY)
    assert rewards == pytest.approx([9.5 * 50 / 400 / 3, -100, 0])
    assert over == [True] * 3


def test_falls_can_be_fined_by_the_step_instead():
    options = {"spacing": 8, "termination_on_fall": False, "max_timestep": 100}
    env, _ = made(3, **options)
    env._begun().bodies[1].position = (-2, 14.5)  # the floor goes on here
    _, rewards, over, *_ = stepped(env, STAY, STAY, STAY)
    # The others come to rest a little above the floor, and are paid for that.
    assert rewards == pytest.approx([0, -20 / 100, 0], abs=1e-3)
    assert over == [False] * 3


def test_a_height_can_end_the_episode_and_multiplies_the_last_rewards():
    env = box_jump.parallel_env(num_boxes=2, termination_max_height=1.0)
    total, info, _ = totals(env, jumping)
    assert info["best_height"] >= 1.0
    plain = box_jump.parallel_env(
        num_boxes=2, termination_max_height=1.0, termination_reward_coef=1.0
    )
    once, _, _ = totals(plain, jumping)
    assert once == pytest.approx(info["best_height"] / 6)
    assert once < total < 100 * once


def test_the_step_after_the_last_is_truncated_and_not_paid():
    env, _ = made(2, max_timestep=3, reward_mode="dense_height")
    env._begun().bodies[0].position = (12, 2)
    for _ in range(3):
        _, rewards, over, late, infos = stepped(env, STAY, STAY)
        assert min(rewards) > 0 and not any(over + late) and infos == [{}, {}]
    _, rewards, over, late, infos = stepped(env, STAY, STAY)
    assert rewards == [0, 0] and over == [False] * 2 and late == [True] * 2
    assert infos[0] == infos[1] and infos[0]["best_height"] > 10
    assert env.agents == []


# Teams of any size --------------------------------------------------------------------


def test_a_task_says_how_many_boxes_play():
    env = box_jump.parallel_env(num_boxes=5, max_timestep=4)
    env.set_task(2)
    obs, infos = env.reset(seed=0)
    assert env.agents == list(obs) == list(infos) == ["box-1", "box-2"]
    assert len(env.possible_agents) == 5
    assert obs["box-1"][-1] == env.get_task() == 2
    alone = box_jump.parallel_env(num_boxes=2, max_timestep=4)
    alone.reset(seed=0)
    for _ in range(5):
        ours, theirs = (one.step(jumping(one, 0)) for one in (env, alone))
        np.testing.assert_equal(ours, theirs)
    with pytest.raises(ValueError, match="1 to 5 boxes can play"):
        env.set_task(6)
    drawn = env.sample_tasks(100, np.random.default_rng(0))
    assert set(drawn) == {1, 2, 3, 4, 5}


def test_teams_of_several_sizes_run_side_by_side():
    def how_many(slot, episode, rng):
        return slot + 1

    options = {"env_kwargs": {"num_boxes": 3, "max_timestep": 5}}
    with corral.make_multi(
        "corral.zoo.box_jump:parallel_env",
        3,
        backend="serial",
        sample_task=how_many,
        **options,
    ) as envs:
        obs, _ = envs.reset(seed=0)
        alive = np.stack(list(envs.alive.values()), axis=1)
        assert np.array_equal(alive, np.tri(3, dtype=bool))
        assert obs["box-1"][:, -1].tolist() == [1, 2, 3]
        assert not obs["box-3"][:2].any()
        for _ in range(5):
            _, rewards, *_ = envs.step({f"box-{n}": [JUMP] * 3 for n in (1, 2, 3)})
            assert rewards["box-3"][:2].tolist() == [0, 0]


# Options ------------------------------------------------------------------------------


def test_options_add_to_what_is_seen_in_boxjumps_order():
    def width(**options):
        return box_jump.parallel_env(**options).observation_space("box-1").shape[0]

    assert width() == 12
    assert width(include_time=True, include_highest=True) == 14
    assert width(include_num_boxes=False) == 11
    options = {"include_time": True, "include_highest": True, "agent_one_hot": True}
    env, obs = made(3, **options)
    assert obs["box-2"][11:].tolist() == [0, 0, 0, 1, 0, 3]
    (_, row, _), *_ = stepped(env, JUMP, JUMP, JUMP, times=4)
    best, time = row[11], row[12]
    assert best > 0.1 and time == pytest.approx(4 / 400)


def test_the_state_is_what_all_see_without_doubles():
    env = box_jump.parallel_env(num_boxes=3, include_highest=True, include_time=True)
    env.set_task(2)
    obs, _ = env.reset(seed=0)
    state = env.state()
    assert state.shape == env.state_space.shape == (3 * 11 + 3,)
    assert np.array_equal(state[:11], obs["box-1"][:11])
    assert np.array_equal(state[11:22], obs["box-2"][:11])
    assert not state[22:33].any()
    assert state[33:].tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_boxes": 0}, "at least one box"),
        ({"reward_mode": "best"}, "choose one of highest, highest_stable"),
        ({"render_mode": "ascii"}, "use 'rgb_array', 'human' or None"),
        ({"num_boxes": 40}, "the field is 26.7 wide"),
        ({"max_timestep": 0}, "both must be >= 1"),
    ],
)
def test_impossible_options_are_refused_with_their_value(options, match):
    with pytest.raises(ValueError, match=match):
        box_jump.parallel_env(**options)


def test_wrong_actions_and_steps_before_a_reset_are_refused():
    env = box_jump.parallel_env(num_boxes=1)
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step({"box-1": 0})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="must be 0, 1, 2 or 3"):
        env.step({"box-1": 4})


def test_it_can_be_imported_where_warnings_are_errors():
    code = "import corral.zoo.box_jump"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


# Pictures -----------------------------------------------------------------------------


def test_frames_show_the_boxes_on_the_floor():
    env, _ = made(2, render_mode="rgb_array")
    frame = env.render()
    assert frame.shape == (300, 400, 3) and frame.dtype == np.uint8
    above, floor = frame[:224], frame[230:]
    assert len(np.unique(floor.reshape(-1, 3), axis=0)) == 1
    # Paper, the line of the best height, two boxes and their rims.
    assert len(np.unique(above.reshape(-1, 3), axis=0)) == 5
    stepped(env, JUMP, STAY, times=3)
    assert (env.render() != frame).any()
    assert box_jump.parallel_env().render() is None


def test_neither_importing_nor_frames_need_pygame():
    code = (
        "import sys; from corral.zoo import box_jump\n"
        "env = box_jump.parallel_env(render_mode='rgb_array'); env.reset(seed=0)\n"
        "env.render(); assert 'pygame' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_window_shows_every_step(monkeypatch):
    pygame = pytest.importorskip("pygame", reason="it opens the window")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env, _ = made(1, render_mode="human")
    stepped(env, JUMP, times=2)
    shown = pygame.surfarray.array3d(pygame.display.get_surface())
    env.render_mode = "rgb_array"
    assert np.array_equal(shown.swapaxes(0, 1), env.render())
    env.close()
    assert pygame.display.get_surface() is None


def test_a_window_without_a_display_is_refused(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    env = box_jump.parallel_env(render_mode="human")
    with pytest.raises(OptionError, match="there is no display here"):
        env.reset(seed=0)


@pytest.mark.skipif(sys.platform != "linux", reason="displays are named on Linux")
def test_a_display_that_does_not_answer_is_no_window_that_nobody_sees(monkeypatch):
    pytest.importorskip("pygame", reason="it opens the window")
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":987")
    env = box_jump.parallel_env(render_mode="human")
    with pytest.raises(OptionError, match="a window cannot be opened here"):
        env.reset(seed=0)


def test_a_pool_names_the_task_that_does_not_fit():
    envs = corral.make_multi(
        "corral.zoo.box_jump:parallel_env",
        1,
        backend="serial",
        sample_task=lambda slot, episode, rng: 9,
    )
    with envs, pytest.raises(FaultError, match="1 to 4 boxes can play"):
        envs.reset(seed=0)
