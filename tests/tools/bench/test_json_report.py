"""The JSON of a report: the keys a reader can count on."""

import json

from samples import ASYNC, entry, failed, group, report

from corral.tools.bench.candidates import PEERS
from corral.tools.bench.json_report import FORMAT, document

TOP = {
    "format",
    "command",
    "environment",
    "settings",
    "machine",
    "versions",
    "interrupted",
    "missing",
    "agents",
    "left_out",
    "recommendation",
    "groups",
}
GROUP = {"num_envs", "limit", "step_seconds", "cpu_share", "auto", "candidates"}
CANDIDATE = {
    "title",
    "library",
    "kind",
    "workers",
    "state",
    "reason",
    "auto",
    "best",
    "steps_per_second",
    "spread",
    "rounds",
    "over_loop",
    "efficiency",
    "startup_seconds",
    "memory_bytes",
    "cpu_burnt",
    "time",
}


def written(*groups, **changes):
    """The document after a trip through JSON."""
    command = ["corral", "bench", "Sample-v0"]
    made = document(report(*groups, **changes), command)
    return json.loads(json.dumps(made, allow_nan=False))


def by_title(group):
    return {one["title"]: one for one in group["candidates"]}


def test_every_key_is_there_and_no_other():
    made = written()
    assert made.keys() == TOP
    assert made["format"] == FORMAT == 1
    (group,) = made["groups"]
    assert group.keys() == GROUP
    assert all(one.keys() == CANDIDATE for one in group["candidates"])


def test_the_figures_are_in_plain_numbers():
    (group,) = written()["groups"]
    process = by_title(group)["Corral, 2 processes"]
    assert group["limit"] == 2000.0
    assert process["steps_per_second"] == 1800.0
    assert process["rounds"] == [1800.0, 1800.0]
    assert process["efficiency"] == 0.9
    assert process["memory_bytes"] == 3 << 20
    assert process["auto"] and process["best"]
    assert process["time"].keys() == {"env", "policy", "waiting", "copying"}


def test_one_that_failed_says_why_and_keeps_its_rounds():
    broken = entry(ASYNC, 500.0)
    broken.error = failed(ASYNC, "it broke").error
    (found,) = written(group(8, 2, broken))["groups"]
    told = by_title(found)[ASYNC.title]
    assert (told["state"], told["reason"]) == ("failed", "it broke")
    assert told["rounds"] == [500.0]


def test_missing_peers_come_with_their_install_line():
    assert written(missing=(PEERS["sb3"],))["missing"] == [
        {"name": "sb3", "install": "pip install stable-baselines3"}
    ]
