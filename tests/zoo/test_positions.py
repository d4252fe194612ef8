"""CartPole without velocities is CartPole otherwise."""

import gymnasium
import numpy as np

from corral.zoo.positions import make


def test_positions_are_those_of_cartpole_and_nothing_else_is_shown():
    ours, theirs = make(), gymnasium.make("CartPole-v1")
    seen, whole = ours.reset(seed=3)[0], theirs.reset(seed=3)[0]
    assert ours.observation_space.shape == (2,)
    for _ in range(5):
        assert (seen == whole[[0, 2]]).all()
        assert ours.observation_space.contains(np.asarray(seen))
        seen, *ours_rest = ours.step(1)
        whole, *theirs_rest = theirs.step(1)
        assert ours_rest == theirs_rest
    ours.close()
    theirs.close()
