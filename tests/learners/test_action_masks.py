"""Action masks in observations: what they forbid is never chosen."""

import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch", reason="learners need torch")
heads = pytest.importorskip("corral.learners.nets.heads")

FEATURES = 3


class Drawn:
    """Numbers close to 1, for which rounding matters."""

    def random(self, count):
        return np.full((ROWS, count), 1.0 - 1e-12)


ROWS = 4


def outputs(space, allowed):
    head = heads.head_for(space, FEATURES, torch.Generator().manual_seed(0), 0.0)
    features = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(1))
    return head, head(features, torch.as_tensor(allowed)), head(features)


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.MultiDiscrete([4, 2])])
def test_forbidden_options_have_no_chance_and_the_rest_all_of_it(space):
    allowed = np.ones((ROWS, 4 if isinstance(space, spaces.Discrete) else 6), np.int8)
    allowed[0, [0, 3]] = 0
    allowed[1, 1:4] = 0
    allowed[2, :4] = 0  # nothing: then all are allowed
    head, masked, free = outputs(space, allowed)
    chance = masked.exp().detach().numpy()
    assert np.allclose(chance[:, :4].sum(1), 1)
    assert not chance[0, [0, 3]].any() and chance[1, 0] == pytest.approx(1)
    assert torch.equal(masked[2:], free[2:])
    assert torch.isfinite(head.entropy(masked)).all()
    logs = masked.detach().numpy()
    for chosen, log_prob in (head.mode(logs), head.sample(logs, Drawn())):
        assert chosen[0, 0] in (1, 2) and chosen[1, 0] == 0
        assert np.isfinite(log_prob).all() and (log_prob > -1e6).all()


def test_gradients_are_finite_and_do_not_reach_forbidden_options():
    allowed = np.array([[1, 1, 0, 0]] * ROWS, np.int8)
    head, masked, _ = outputs(spaces.Discrete(4), allowed)
    (head.entropy(masked).sum() + masked[:, 0].sum()).backward()
    slope = head.layer.weight.grad
    assert torch.isfinite(slope).all()
    assert not slope[2:].any() and slope[:2].any()
