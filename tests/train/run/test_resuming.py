"""A run that goes on from a checkpoint is the run that was never interrupted."""

from pathlib import Path

import pytest
import torch
from few_updates import same
from small_runs import SMALL

from corral.errors import CheckpointError, OptionError
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl

KINDS = {
    "plain": {},
    "scaled": {"normalise_obs": True, "normalise_reward": True},
    "remembering": {"ppo.memory": "gru", "ppo.memory_size": 4},
    "in processes": {"backend": "process", "workers": 2},
    "two groups": {"mode": "two_groups"},
    "acting in workers": {
        **{"act_in": "workers", "backend": "process", "workers": 2},
        **{"normalise_obs": True, "normalise_reward": True},
    },
    "remembering in workers": {
        **{"act_in": "workers", "backend": "process", "workers": 2},
        **{"ppo.memory": "gru", "ppo.memory_size": 4},
    },
}


def lead(training, updates):
    """Train so far, and leave it there, as a killed program would."""
    config = training.config
    with training:
        while training.progress.update < updates:
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
            if training.progress.update % config.evaluate_every == 0:
                training.evaluate()
            if training.progress.update % config.checkpoint_every == 0:
                training.checkpoint()
    return training.directory


@pytest.mark.parametrize("kind", KINDS)
def test_three_updates_and_three_more_are_six(kind):
    settings = {**SMALL, **KINDS[kind]}
    whole = lead(begin("cartpole", settings, out=Path("whole")), 6)
    # Two more updates than were saved are lost with the program that made them.
    parts = lead(begin("cartpole", settings, out=Path("parts")), 5)
    assert Checkpoint.load(parts.last).update == 3
    lead(resume(parts.path, {}), 6)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update == 6
    assert same(ours.learner, theirs.learner)
    assert same(ours.normalisers, theirs.normalisers)
    assert ours.results == theirs.results
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)
    assert learnt(parts) == learnt(whole)


def learnt(run):
    """All that was measured, but for what the clock says."""
    kept = [
        {
            name: value
            for name, value in line.items()
            if not name.startswith(("time/", "use/", "speed/"))
        }
        for line in jsonl.read(run.metrics)
    ]
    return [line for line in kept if line.keys() != {"step"}]


def test_another_seed_is_another_run(trained):
    ours = Checkpoint.load(trained.best)
    other = lead(begin("cartpole", {**SMALL, "seed": 1}, out=Path("other")), 3)
    assert not same(ours.learner["net"], Checkpoint.load(other.last).learner["net"])


def test_a_run_can_be_made_longer(trained, go_on):
    go_on(trained.path, total_steps=256)
    assert Checkpoint.load(trained.last).update == 8
    assert "total_steps: 256" in trained.config.read_text()


def test_what_ctrl_c_saved_is_gone_once_the_run_is_done(go_on):
    with begin("cartpole", {**SMALL, "checkpoint_every": 4}, out=Path("run")) as one:
        lead(one, 5)
        one.interrupt()
    assert one.directory.interrupted.exists()
    go_on(one.directory.path)
    with pytest.raises(OptionError, match="is done: 192 of 192 steps"):
        resume(one.directory.path, {})


def test_a_run_that_is_done_says_so(trained):
    said = r"is done: 192 of \d+ steps.*--total-steps 384"
    for settings in ({}, {"total_steps": 10}):
        with pytest.raises(OptionError, match=said):
            resume(trained.path, settings)


CHANGES = {
    "processes": {"backend": "process", "workers": 2, "on_fault": "restart"},
    "deadlines": {"backend": "auto", "step_timeout": 60, "start_timeout": 60},
    "limits": {"max_restarts": 7, "restarts_per_minute": 3, "stop_at": 1e9},
    "a slot each": {"backend": "auto", "isolation": "slot", "memory_limit": 1 << 40},
    "evaluations": {"evaluate_every": 2, "evaluate_episodes": 1, "best_is": "min"},
    "looks": {"video": "end", "final_episodes": 1, "best_metric": "eval/length"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of six updates, and one that was left after its first three."""
    path = tmp_path_factory.mktemp("whole")
    lead(begin("cartpole", SMALL, out=path / "whole"), 6)
    lead(begin("cartpole", SMALL, out=path / "half"), 3)
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_what_may_change_changes_no_number(change, whole):
    import shutil

    shutil.copytree(whole / "half", "run")
    with resume(Path("run"), CHANGES[change]) as training:
        lead(training, 6)
        assert all(getattr(training.config, k) == v for k, v in CHANGES[change].items())
    ours = Checkpoint.load(Path("run/checkpoints/last.pt"))
    theirs = Checkpoint.load(whole / "whole/checkpoints/last.pt")
    assert ours.update == theirs.update == 6
    assert same(ours.learner, theirs.learner)


NUMBERS = {
    *(
        "recipe",
        "name",
        "env",
        "env_kwargs",
        "learner",
        "view",
        "pad",
        "opponents",
        "num_envs",
        "isolate_rng",
        "repeat",
        "mode",
        "act_in",
    ),
    *("wrappers", "network", "network_kwargs", "curriculum", "autoreset", "infos"),
    *("per_worker", "worker_init", "shared", "sample_task", "task_by", "rollout_size"),
    *("seed", "normalise_obs", "normalise_reward", "checkpoint_every", "ppo"),
    # of single recipes
    *("data", "model", "parallel", "batched", "validation_routes", "test_routes"),
    *("clone_rows", "clone_epochs", "curriculum_steps", "view", "trials", "sac", "td3"),
    *("boxes", "taac"),
}


def test_every_setting_was_decided_about():
    from corral.train.recipes import RECIPES
    from corral.train.recipes.resolve import kind_of

    for recipe in ("", *RECIPES):
        kind = kind_of(recipe)
        for key in kind.model_fields:
            assert (key in kind.changeable) != (key in NUMBERS), f"{key} of {recipe!r}"


@pytest.mark.parametrize(
    ("key", "value", "then"),
    [("num_envs", 3, 2), ("ppo.lr", 0.5, 0.001), ("checkpoint_every", 1, 3)],
)
def test_what_would_make_it_another_run_cannot_change(trained, key, value, then):
    said = rf"cannot change {key} from {then} to {value}: .*depend on it"
    with pytest.raises(OptionError, match=rf"{said}.*init_from=Path"):
        resume(trained.path, {key: value})
    typed = rf"corral train run/config.yaml --init-from run --set {key}={value}"
    with pytest.raises(OptionError, match=rf"{said}.*{typed}"):
        resume(trained.path, {key: value}, command=["corral"])


def test_a_setting_that_is_set_to_what_it_is_changes_nothing(trained, go_on):
    go_on(trained.path, num_envs=2, total_steps=224)


def test_a_setting_that_does_not_exist_is_told_with_the_one_that_was_meant(trained):
    with pytest.raises(OptionError, match="did you mean on_fault"):
        resume(trained.path, {"on_falt": "restart"})


def test_a_run_that_ended_before_its_first_update_begins_again_as_it_began():
    whole = lead(begin("cartpole", SMALL, out=Path("whole")), 3)
    with begin("cartpole", SMALL, out=Path("parts")):
        pass
    assert Checkpoint.load(Path("parts/checkpoints/last.pt")).update == 0
    parts = lead(resume(Path("parts"), {}), 3)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert same(ours.learner, theirs.learner)
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)


def test_weights_of_another_run_begin_a_new_one(trained):
    settings = {**SMALL, "seed": 5, "ppo.lr": 1e-9}
    with begin("cartpole", settings, out=Path("second"), init_from=trained.path) as new:
        ours = new.parts.learner.net.state_dict()
        theirs = Checkpoint.load(trained.best).learner["net"]
        assert same(dict(ours), theirs)
        assert new.parts.learner.steps == 0


def test_weights_saved_by_themselves_begin_a_run(trained):
    learner = Checkpoint.load(trained.best).learner
    torch.save(learner, "cloned.pt")
    with begin("cartpole", SMALL, out=Path("new"), init_from=Path("cloned.pt")) as new:
        assert same(dict(new.parts.learner.net.state_dict()), learner["net"])


def test_exploration_can_be_set_anew_with_given_weights():
    settings = {**SMALL, "env": "Pendulum-v1"}
    first = begin("cartpole", settings, out=Path("first"))
    with first:
        torch.save(first.parts.learner.state_dict(), "cloned.pt")
    settings["ppo.log_std_init"] = -1.5
    with begin(
        "cartpole", settings, out=Path("new"), init_from=Path("cloned.pt")
    ) as new:
        assert new.parts.learner.net.head.log_std.tolist() == [-1.5]


# Bad input ----------------------------------------------------------------------------


def test_a_checkpoint_of_another_env_is_refused(trained):
    trained.config.write_text(
        trained.config.read_text().replace("CartPole-v1", "run_envs:Counting")
    )
    with pytest.raises(
        CheckpointError, match="made with another env: CartPole-v1 then"
    ):
        resume(trained.last, {"total_steps": 999}, trust=True)


def test_weights_of_another_env_are_refused(trained):
    settings = {**SMALL, "env": "run_envs:Wider"}
    with pytest.raises(CheckpointError, match="another observation space: Box"):
        begin("cartpole", settings, out=Path("second"), init_from=trained.path)
    assert not Path("second").exists()


def test_weights_that_saw_another_scale_are_refused(trained):
    settings = {**SMALL, "normalise_obs": True}
    with pytest.raises(CheckpointError, match="--set normalise_obs=false"):
        begin("cartpole", settings, out=Path("second"), init_from=trained.path)


def test_weights_of_other_nets_are_refused(trained):
    settings = {**SMALL, "ppo.hidden": [16]}
    with pytest.raises(CheckpointError, match=r"best\.pt does not fit.*size mismatch"):
        begin("cartpole", settings, out=Path("second"), init_from=trained.path)


def test_a_checkpoint_of_another_version_is_refused(trained):
    content = torch.load(trained.last, weights_only=True)
    torch.save({**content, "format": 99, "corral": "7.0"}, trained.last)
    with pytest.raises(CheckpointError, match=r"format 99, written by Corral 7\.0"):
        resume(trained.last, {"total_steps": 999})


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut"])
def test_a_file_that_is_no_checkpoint_is_refused(trained, content):
    trained.last.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"last\.pt is not a checkpoint"):
        resume(trained.last, {"total_steps": 999})


def test_a_checkpoint_runs_no_code(trained, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    torch.save({"format": 1, "evil": Evil()}, trained.last)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        Checkpoint.load(trained.last)
    assert not (tmp_path / "touched").exists()


def test_a_checkpoint_that_lacks_something_is_refused(trained):
    content = torch.load(trained.last, weights_only=True)
    del content["learner"]
    torch.save(content, trained.last)
    with pytest.raises(CheckpointError, match="is damaged: its learner is wrong"):
        Checkpoint.load(trained.last)


def test_a_run_that_is_none_is_told_with_the_latest(trained):
    Path("runs/cartpole/first").mkdir(parents=True)
    Path("runs/cartpole/first/config.yaml").touch()
    with pytest.raises(OptionError, match=r"nothing is not a run.*runs/cartpole/first"):
        resume(Path("nothing"), {})


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"a": 1}\n5\n'])
def test_notes_that_are_damaged_cost_nothing_else(trained, go_on, content):
    trained.about.write_bytes(content)
    for path in (trained.metrics, trained.episodes):
        path.write_bytes(path.read_bytes() + content)
    go_on(trained.path, total_steps=224)
    assert trained.read_about()["state"] == "done"
    steps = [line["step"] for line in jsonl.read(trained.metrics)]
    assert sorted(set(steps)) == [32 * update for update in range(1, 8)]


def test_a_run_that_is_under_way_is_left_alone():
    with begin("cartpole", SMALL, out=Path("run")) as running:
        running.checkpoint()
        with pytest.raises(OptionError, match="is being trained by another program"):
            resume(Path("run"), {})
    with resume(Path("run"), {}) as going_on:
        assert going_on.progress.update == 0


def test_what_a_killed_program_was_writing_is_swept_away(trained):
    draft = trained.checkpoints / ".last.pt.4711"
    draft.write_bytes(b"half of it")
    with resume(trained.path, {"total_steps": 999}):
        assert not trained.read_about()["result"]  # nor what was said of its end
        assert sorted(path.name for path in trained.checkpoints.iterdir()) == [
            "best.pt",
            "last.pt",
        ]


def test_where_there_is_nothing_else_a_run_goes_on_from_its_best(trained, go_on):
    trained.last.unlink()
    best = Checkpoint.load(trained.best).update
    if best == 6:
        go_on(trained.path, total_steps=224)
    else:
        go_on(trained.path)
    assert Checkpoint.load(trained.last).update > best


def test_a_run_without_checkpoints_is_told(trained):
    trained.last.unlink()
    trained.best.unlink()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        resume(trained.path, {"total_steps": 999})
