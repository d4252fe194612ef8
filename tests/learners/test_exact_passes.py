"""Rows of an exact pass depend neither on their number nor on their place."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from corral.learners.tensors import PASS_ROWS, ExactPasses  # noqa: E402

ROWS = 2 * PASS_ROWS + 5


@pytest.mark.parametrize("outputs", [1, 2, 8, 64])
@pytest.mark.parametrize("inputs", [3, 4, 27, 64])
def test_a_row_is_what_it_is_alone(inputs: int, outputs: int) -> None:
    """27 numbers to 8 depended on the place: the last rows of a pass differed."""
    layer = torch.nn.Linear(inputs, outputs)
    obs = np.random.default_rng(1).standard_normal((ROWS, inputs)).astype(np.float32)

    def forward(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return layer(torch.from_numpy(rows)).numpy()

    passes = ExactPasses()
    whole = passes(forward, obs, ROWS)
    assert whole.shape == (ROWS, outputs)
    np.testing.assert_allclose(whole, forward(obs), rtol=1e-4, atol=1e-5)
    for row in range(ROWS):
        assert (passes(forward, obs[row : row + 1], 1) == whole[row]).all()


def test_nets_whose_rows_depend_on_their_place_are_passed_row_by_row() -> None:
    sizes = []

    def forward(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return rows + np.arange(len(rows), dtype=np.float32)[:, None]

    obs = np.ones((3, 2), np.float32)
    assert ExactPasses()(forward, obs, 3).tolist() == obs.tolist()
    assert sizes[-3:] == [1, 1, 1]


def test_other_nets_are_passed_in_few_passes() -> None:
    sizes = []

    def forward(inputs: tuple[np.ndarray, None]) -> np.ndarray:
        sizes.append(len(inputs[0]))
        return 2 * inputs[0]

    passes, obs = ExactPasses(), np.arange(ROWS)
    for _ in range(2):
        assert passes(forward, (obs, None), ROWS).tolist() == (2 * obs).tolist()
    assert sizes[-6:] == [PASS_ROWS] * 6
