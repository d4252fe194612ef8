"""The grid world: PettingZoo's own tests, and the rules one by one."""

import warnings

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="the grid world is a PettingZoo env")

with warnings.catch_warnings():
    # Its tests import an env of its own by a name that it has given up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import api_test, parallel_api_test, seed_test
    from pettingzoo.test.seed_test import parallel_seed_test
from pettingzoo.utils import aec_to_parallel

from corral.zoo import grid_world
from corral.zoo.grid_world.world import (
    AGENT,
    CLOUD,
    GOAL,
    HIDDEN,
    OBSTACLE,
    TARGET,
    Agent,
    Board,
    Rules,
    Target,
    World,
    see,
)

RIGHT, UP, LEFT, DOWN, STAY, CLIMB, HOLD, SINK = range(8)


def world_of(*agents, **rules):
    """An empty board with agents where they say they are, the target far away."""
    rules = {"obstacles": 0, "clouds": 0, "target_speed": 0.0, "new_cell": 0, **rules}
    places = [agent.cell for agent in agents]
    world = World(Rules(**rules), list(agents), np.random.default_rng(0))
    for agent, cell in zip(agents, places, strict=True):
        agent.start(cell)
    world.target.cell = (9, 9)
    return world


def ground(*cell, number=0):
    agent = Agent(f"ground_{number}", number, flies=False)
    agent.cell = cell
    return agent


def air(*cell, level=1):
    agent = Agent("air_0", 0, flies=True)
    agent.cell = cell
    agent.altitude = level
    return agent


# PettingZoo's own ---------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"flat": True, "goal": True}])
def test_petting_zoos_own_tests_pass_all_at_once(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        parallel_api_test(grid_world.parallel_env(**options), num_cycles=300)
    parallel_seed_test(lambda: grid_world.parallel_env(**options), num_cycles=60)


@pytest.mark.parametrize("options", [{}, {"flat": True, "goal": True}])
def test_petting_zoos_own_tests_pass_by_turns(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # advice on Dict observations
        api_test(grid_world.env(**options), num_cycles=100)
    seed_test(lambda: grid_world.env(**options), num_cycles=60)


def test_by_turns_it_is_the_same_world():
    rules = {"size": "medium", "death_on_sight": False}
    together = grid_world.parallel_env(**rules)
    turns = aec_to_parallel(grid_world.env(**rules))
    first, _ = together.reset(seed=3)
    again, _ = turns.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(300):
        np.testing.assert_equal(again, first)
        if not together.agents:
            break
        actions = {
            name: int(rng.integers(together.action_space(name).n))
            for name in together.agents
        }
        first, reward, terminated, truncated, _ = together.step(actions)
        again, *rest, _ = turns.step(actions)
        assert rest == [reward, terminated, truncated]
    assert not together.agents
    assert not turns.agents


# What is declared is what is seen -----------------------------------------------------


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_every_observation_and_state_is_within_its_space(size):
    env = grid_world.parallel_env(
        size=size, ground=3, air=2, goal=True, show_target=True, max_steps=40
    )
    rng = np.random.default_rng(1)
    for seed in range(4):
        observations, _ = env.reset(seed=seed)
        while env.agents:
            for name, observation in observations.items():
                assert env.observation_space(name).contains(observation), name
            assert env.state_space.contains(env.state())
            observations, *_ = env.step(
                {name: rng.integers(env.action_space(name).n) for name in env.agents}
            )


def test_flat_observations_have_27_and_55_numbers():
    env = grid_world.parallel_env(flat=True)
    assert env.observation_space("ground_0").shape == (27,)
    assert env.observation_space("air_0").shape == (55,)
    assert env.observation_space("air_0").dtype == np.float32
    observations, _ = env.reset(seed=0)
    for name, observation in observations.items():
        assert env.observation_space(name).contains(observation)


def test_agents_on_the_ground_have_five_actions_and_those_in_the_air_eight():
    env = grid_world.parallel_env(ground=1, air=1)
    assert env.possible_agents == ["ground_0", "air_0"]
    assert env.action_space("ground_0").n == 5
    assert env.action_space("air_0").n == 8


def test_a_seed_decides_everything_whatever_the_global_generators_do():
    env = grid_world.parallel_env()

    def episode():
        env.reset(seed=5)
        seen = []
        while env.agents and len(seen) < 30:
            np.random.seed(len(seen))
            seen.append(env.step(dict.fromkeys(env.agents, STAY))[:2])
        return seen

    first = episode()
    np.random.seed(1234)
    np.testing.assert_equal(episode(), first)


def test_without_a_seed_the_next_episode_is_another_and_follows_from_the_last():
    one, other = grid_world.parallel_env(), grid_world.parallel_env()
    states = []
    for env in (one, other):
        env.reset(seed=0)
        start = env.state()
        env.reset()
        states.append(env.state())
        assert not np.array_equal(states[-1], start)
    assert np.array_equal(*states)


# Views --------------------------------------------------------------------------------


def test_the_ground_view_shows_border_obstacles_agents_and_target():
    board = Board(10, 0, 0, np.random.default_rng(0))
    board.ground[3 + 1, 3 + 2] = OBSTACLE
    agent = ground(0, 1)
    seen = see(agent, board, [agent, ground(1, 1)], (2, 1), (0, 2))
    assert (seen[:2] == OBSTACLE).all()  # left of the board
    assert (seen[:, 0] == OBSTACLE).all()  # below it
    assert seen[3, 3] == OBSTACLE
    assert seen[3, 2] == AGENT
    assert seen[4, 2] == TARGET
    assert seen[2, 3] == GOAL
    assert seen[2, 2] == 0


@pytest.mark.parametrize(("level", "rings"), [(1, 2), (2, 1), (3, 0)])
def test_the_higher_the_more_is_seen(level, rings):
    board = Board(10, 0, 0, np.random.default_rng(0))
    agent = air(5, 5, level=level)
    hidden = see(agent, board, [agent], None, None) == HIDDEN
    expected = np.ones((7, 7), bool)
    expected[rings : 7 - rings, rings : 7 - rings] = False
    assert np.array_equal(hidden, expected)


def test_clouds_hide_agents_from_above_and_not_the_target():
    board = Board(10, 0, 0, np.random.default_rng(0))
    board.cover[3 + 5, 3 + 6] = board.cover[3 + 6, 3 + 5] = True
    agent = air(5, 5, level=3)
    seen = see(agent, board, [agent, ground(5, 6)], (6, 5), None)
    assert seen[3, 4] == CLOUD
    assert seen[4, 3] == TARGET


@pytest.mark.parametrize(("level", "share"), [(1, 1.0), (2, 0.66), (3, 0.33)])
def test_a_target_is_seen_from_above_as_often_as_its_level_says(level, share):
    agent = air(5, 5)
    world = world_of(agent)
    agent.altitude = level
    world.target.cell = (5, 6)
    looks = [TARGET in world.look(agent) for _ in range(3000)]
    assert np.mean(looks) == pytest.approx(share, abs=0.03)


def test_the_flight_level_climbs_sinks_and_starts_anew_with_each_episode():
    env = grid_world.parallel_env(ground=0, air=1, death_on_sight=False)
    env.reset(seed=0)
    levels = []
    for action in (CLIMB, CLIMB, CLIMB, HOLD, SINK):
        observations, *_ = env.step({"air_0": action})
        levels.append(int(observations["air_0"]["flight_level"]))
    assert levels == [2, 3, 3, 3, 2]
    observations, _ = env.reset()
    assert observations["air_0"]["flight_level"] == 1


# Rewards and ends ---------------------------------------------------------------------


def settled(world, agent, action=STAY):
    return world.step({agent.name: action})[agent.name]


def test_nothing_in_sight_costs_a_little():
    agent = ground(1, 1)
    outcome = settled(world_of(agent), agent)
    assert (outcome.reward, outcome.ended) == (-0.01, False)


def test_the_target_in_view_is_worth_one_less_lambda():
    agent = ground(5, 5)
    world = world_of(agent, watch=0.3)
    world.target.cell = (7, 5)
    outcome = settled(world, agent)
    assert outcome.reward == pytest.approx(0.7)
    assert outcome.info["detects_target"]
    assert not outcome.ended


@pytest.mark.parametrize("death", [True, False])
def test_being_seen_costs_lambda_and_may_be_the_end(death):
    agent = ground(5, 5)
    world = world_of(agent, death_on_sight=death)
    world.target.cell = (6, 6)
    outcome = settled(world, agent)
    assert outcome.reward == -0.5
    assert outcome.info["seen_by_target"]
    assert outcome.ended is death


def test_reaching_the_target_costs_lambda_and_is_the_end():
    agent = ground(5, 5)
    world = world_of(agent, death_on_sight=False)
    world.target.cell = (6, 5)
    outcome = settled(world, agent, RIGHT)
    assert (outcome.reward, outcome.ended) == (-0.5, True)


def test_obstacles_stop_those_on_the_ground_at_a_cost_and_nobody_in_the_air():
    walker, flyer = ground(5, 5), air(5, 5)
    world = world_of(walker, flyer)
    world.board.obstacles[6, 5] = True
    outcomes = world.step({walker.name: RIGHT, flyer.name: RIGHT})
    assert walker.cell == (5, 5)
    assert flyer.cell == (6, 5)
    assert outcomes[walker.name].reward == pytest.approx(-0.06)
    assert outcomes[flyer.name].reward == pytest.approx(-0.01)


def test_two_on_the_ground_do_not_share_a_cell():
    one, other = ground(5, 5), ground(7, 5, number=1)
    world_of(one, other).step({one.name: RIGHT, other.name: LEFT})
    assert (one.cell, other.cell) == ((6, 5), (7, 5))


def test_new_cells_are_worth_something_once():
    agent = ground(1, 1)
    world = world_of(agent, new_cell=0.025)
    rewards = [settled(world, agent, move).reward for move in (RIGHT, LEFT, RIGHT)]
    assert rewards == pytest.approx([0.015, -0.01, -0.01])


def test_the_goal_draws_near_and_is_paid_once():
    agent = ground(1, 1)
    world = world_of(agent, goal=True)
    world.goal = (3, 1)
    nearer = settled(world, agent, RIGHT)
    assert nearer.reward == pytest.approx(0.04)
    assert not nearer.ended
    there = settled(world, agent, RIGHT)
    assert there.reward == pytest.approx(20.04)
    assert there.ended


def test_agents_leave_one_at_a_time_and_the_last_are_truncated():
    env = grid_world.parallel_env(size="medium", ground=3, air=2, max_steps=30)
    counts = set()
    for seed in range(8):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        while env.agents:
            before = list(env.agents)
            _, _, terminated, truncated, _ = env.step(
                {name: rng.integers(5) for name in env.agents}
            )
            assert list(terminated) == list(truncated) == before
            left = [name for name in before if terminated[name] or truncated[name]]
            assert env.agents == [name for name in before if name not in left]
            counts.add(len(env.agents))
    assert counts == set(range(6))


def test_the_target_goes_around_obstacles_and_never_into_one():
    rng = np.random.default_rng(0)
    board = Board(10, 5, 0, rng)
    (start,) = board.free_cells(1, rng)
    target = Target(start)
    visited = set()
    for _ in range(300):
        target.move(board, rng)
        assert not board.blocks(target.cell)
        visited.add(target.cell)
    assert len(visited) > 10


# Pictures and refusals ----------------------------------------------------------------


def test_a_frame_shows_what_moves_without_a_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    env = grid_world.parallel_env(render_mode="rgb_array", goal=True)
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (240, 240, 3)
    assert first.dtype == np.uint8
    env.step(dict.fromkeys(env.agents, RIGHT))
    assert not np.array_equal(env.render(), first)


def test_without_a_render_mode_there_is_no_frame():
    env = grid_world.parallel_env()
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": "huge"}, "choose small, medium, large"),
        ({"size": 2}, "smallest board"),
        ({"ground": 0, "air": 0}, "at least one agent is needed"),
        ({"render_mode": "human"}, "rgb_array"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        grid_world.parallel_env(**arguments)


def test_an_unknown_rule_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'obstacle_count'"):
        grid_world.parallel_env(obstacle_count=3)


def test_stepping_before_a_reset_says_so():
    with pytest.raises(RuntimeError, match="call reset first"):
        grid_world.parallel_env().step({})
