"""`corral bench` on envs with several agents, at once or in turns."""

from pathlib import Path

import pytest

import tests.api.multi_envs


@pytest.mark.parametrize("env", ["Crowd", "Table"])
def test_several_agents_are_recognised_and_measured(bench, here, env):
    source = Path(tests.api.multi_envs.__file__).read_text()
    (here / "team_envs.py").write_text(source)
    status, out, _, document = bench(
        f"team_envs:{env}",
        *("--num-envs", "2", "--backend", "serial"),
    )
    assert status == 0
    (group,) = document["groups"]
    assert {one["title"]: one["state"] for one in group["candidates"]} == {
        "one bare env": "measured",
        "Corral, serial": "measured",
    }
    assert f"corral.make_multi({env}, num_envs=2" in out
    how, what = {
        "Crowd": ("at once", "A step moves all agents."),
        "Table": ("in turns", "A step is one agent's turn."),
    }[env]
    assert what in out
    assert (document["agents"], document["left_out"]) == (how, [])
    assert document["environment"]["action_space"].startswith(
        "eye_0, eye_1, eye_2: Discrete("
    )
