"""One agent plays, and random moves are made for the others."""

import numpy as np
import pytest

import corral
from corral.errors import OptionError

tictactoe = pytest.importorskip(
    "pettingzoo.classic.tictactoe.tictactoe", reason="the game of these tests"
)


def game(seed, seat):
    """Play free cells; return the reward, whether it was won, and what was seen."""
    env = corral.AgainstRandom(tictactoe.env())
    env.set_task(seat)
    seen, _ = env.reset(seed=seed)
    (player,) = env.agents
    assert player == env.possible_agents[seat]
    got, boards = 0.0, []
    while env.agents:
        boards.append(seen[player]["observation"].copy())
        mask = seen[player]["action_mask"]
        assert mask.any()  # it is the player's turn
        action = {player: int(mask.argmax())}
        seen, rewards, terminated, truncated, infos = env.step(action)
        got += rewards[player]
    assert terminated[player] and not truncated[player]
    return got, infos[player]["is_success"], boards


def test_games_are_the_same_with_the_same_seed_and_moves_are_allowed():
    for seat in (0, 1):
        for seed in range(10):
            ours, theirs = game(seed, seat), game(seed, seat)
            assert ours[:2] == theirs[:2]
            assert all(map(np.array_equal, ours[2], theirs[2]))


def test_a_draw_is_not_won():
    results = [game(seed, seed % 2)[:2] for seed in range(150)]
    assert {got for got, _ in results} == {1.0, 0.0, -1.0}
    assert all(won == (got > 0) for got, won in results)


def test_without_a_task_the_seat_is_drawn():
    env = corral.AgainstRandom(tictactoe.env())
    players = set()
    for seed in range(12):
        env.reset(seed=seed)
        players.update(env.agents)
    assert players == set(env.possible_agents)


def test_seats_are_tasks_of_pools_and_evaluations():
    class First:
        def act(self, step, carry, rng):
            masks = step.obs["player"]["obs"]["action_mask"]
            return corral.Decision({"player": masks.argmax(-1)})

    envs = corral.make_multi(
        lambda: corral.AgainstRandom(tictactoe.env()), 2, backend="serial"
    )
    seats = [number % 2 for number in range(20)]
    result = corral.evaluate(First(), envs.pool, episodes=20, seed=0, tasks=seats)
    envs.close()
    assert set(result.returns.tolist()) <= {1.0, 0.0, -1.0}


def test_seats_that_are_not_there_are_refused():
    env = corral.AgainstRandom(tictactoe.env())
    with pytest.raises(OptionError, match="the seat is 2; this env has seats 0 to 1"):
        env.set_task(2)
