"""Whose runs are run: those that this user's key has signed, or that are trusted."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import SMALL

from corral.errors import CheckpointError, OptionError, UnsafeFile
from corral.train.run import signed_config
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.directory import RunDirectory
from corral.train.run.loaded_run import LoadedRun, load_policy
from corral.train.run.start import begin, resume

LONGER = {"total_steps": 999}


def turned(directory, env="os:mkdir", **kwargs):
    """The run's config, with an env that leaves a folder where it is run."""
    kwargs = kwargs or {"path": "touched"}
    config = signed_config.read(directory)
    text = directory.config.read_text()
    body, mark, signature = text.rpartition("# signature: ")
    body = body.replace(f"env: {config.env}\n", f"env: {env}\n")
    shown = "".join(f"\n  {key}: {value}" for key, value in kwargs.items())
    directory.config.write_text(
        body.replace("env_kwargs: {}", f"env_kwargs:{shown}") + mark + signature
    )


def openings(path):
    """All that opens a run to run it."""
    return (
        lambda **options: resume(path, LONGER, **options),
        lambda **options: LoadedRun(path, **options),
    )


def refused(directory, why):
    """That it is refused with this reason, and nothing of it was run."""
    for opening in openings(directory.path):
        with pytest.raises(UnsafeFile, match=why) as caught:
            opening()
        assert str(directory.config) in str(caught.value)
        assert "trust=True" in str(caught.value)
    assert not Path("touched").exists()


def test_what_was_trained_here_needs_no_trust(trained):
    for opening in openings(trained.path):
        with opening():
            pass


def test_a_config_that_was_changed_is_not_run(trained):
    turned(trained)
    refused(trained, r"was changed after it was signed. It would run env 'os:mkdir'")


@pytest.mark.parametrize("more", ["seed: 3\n", "# signature: hmac-sha256 a b\n"])
def test_lines_after_the_signature_are_a_change_too(trained, more):
    trained.config.write_text(trained.config.read_text() + more)
    refused(trained, "was changed after|signed with another key")


def test_a_config_without_a_signature_is_not_run(trained):
    turned(trained)
    text = trained.config.read_text()
    trained.config.write_text(text.partition("# signature: ")[0])
    refused(trained, "is not signed")


def test_a_run_of_another_user_is_not_run(trained, tmp_path, monkeypatch):
    (tmp_path / "private").mkdir(mode=0o700)
    monkeypatch.setenv("CORRAL_KEY", str(tmp_path / "private" / "key"))
    refused(trained, "signed with another key: by another user")  # who has none yet
    with begin("cartpole", SMALL, out=Path("mine")):
        pass
    refused(trained, "signed with another key: by another user")


def test_who_trusts_a_config_runs_it(trained):
    turned(trained)
    with pytest.raises(OptionError, match="returned None, not an env"):  # so it was run
        resume(trained.path, LONGER, trust=True)
    assert Path("touched").is_dir()


def test_an_edit_is_trusted_once_and_signed_by_the_resumed_run(trained):
    text = trained.config.read_text()
    trained.config.write_text(text.replace("video: never", "video: end"))
    refused(trained, "was changed after it was signed")
    with resume(trained.path, LONGER, trust=True):
        pass
    with resume(trained.path, LONGER) as again:
        assert again.config.video == "end"


def test_a_run_can_be_moved_and_copied(trained):
    shutil.move(trained.path, "elsewhere")
    shutil.copytree("elsewhere", "deep/copy")
    for path in ("elsewhere", "deep/copy"):
        for opening in openings(Path(path)):
            with opening():
                pass


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "checkpoints", "checkpoints/last.pt"]
)
def test_a_signed_config_in_a_folder_of_links_is_not_run(trained, name, tmp_path):
    """It would write to where they lead."""
    path = trained.path / name
    shutil.move(path, tmp_path / "other")
    os.symlink(tmp_path / "other", path)
    refused(trained, "was changed after it was signed")
    with resume(trained.path, LONGER, trust=True):
        pass
    with resume(trained.path, LONGER):  # signed with where it leads
        pass


def test_a_signed_config_beside_anothers_checkpoint_runs_no_code(trained, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    torch.save({"format": 1, "learner": Evil()}, trained.best)
    with pytest.raises(CheckpointError, match=r"best\.pt"):
        LoadedRun(trained.path)
    assert not Path("touched").exists()


def test_weights_alone_are_data_whoever_trained_them(trained):
    turned(trained)
    trained.config.write_text(trained.config.read_text().partition("# sig")[0])
    with begin("cartpole", SMALL, out=Path("new"), init_from=trained.path) as new:
        spec = new.parts.pool.spec
        load_policy(trained.path, spec)
    assert not Path("touched").exists()


def test_without_a_key_a_run_trains_and_says_that_it_is_not_signed(
    train, monkeypatch, capsys
):
    Path("file").touch()
    monkeypatch.setenv("CORRAL_KEY", "file/key")  # where nothing can be written
    directory = train(settings={"total_steps": 32})
    out = capsys.readouterr().out
    assert "This run is not signed: the key" in out and "--trust" in out
    refused(directory, "is not signed")
    with LoadedRun(directory.path, trust=True):
        pass


def test_a_run_signed_before_the_key_was_opened_to_others_is_doubted(trained):
    key = Path(os.environ["CORRAL_KEY"])
    key.chmod(0o640)
    try:
        refused(trained, r"cannot be checked: others have access to .*mode 640")
    finally:
        key.chmod(0o600)


# Names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "../../x", "a/../../x", "/tmp/x", "~/x", "..", ".", ".hidden"),
        *("a//b", "a/", " ", "a\0b", "a\nb", "a\\b", "C:x", "x" * 300),
    ],
)
def test_a_name_that_leaves_runs_is_refused(name, here):
    with pytest.raises(OptionError, match="a name is a folder inside runs/"):
        begin("cartpole", {**SMALL, "name": name})
    assert sorted(path.name for path in here.iterdir()) == ["run_envs.py"]


def test_names_of_folders_in_runs_are_fine(here):
    for name in ("a", "a-b_c.1", "robots/arm", "näme"):
        with begin("cartpole", {**SMALL, "name": name}) as training:
            assert training.directory.path.parent == Path("runs", name)


def test_a_link_that_leads_out_of_runs_is_refused(here, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (here / "runs").mkdir()
    (here / "runs" / "out").symlink_to(other)
    with pytest.raises(OptionError, match=r"runs/out is a link to .*--out"):
        begin("cartpole", {**SMALL, "name": "out"})
    assert not list(other.iterdir())


def test_runs_itself_may_be_a_link(here, tmp_path_factory):
    (here / "runs").symlink_to(tmp_path_factory.mktemp("disk"))
    with begin("cartpole", {**SMALL, "name": "a"}):
        pass


# Checkpoints ----------------------------------------------------------------------


def test_a_checkpoint_with_code_is_told_without_advice_to_run_it(trained):
    torch.save({"format": 1, "model": torch.nn.Linear(2, 2)}, trained.last)
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.load(trained.last)
    said = str(caught.value)
    assert "weights_only" not in said and "torch.nn.modules.linear.Linear" in said
    assert "last.pt" in said and "Corral runs no code from a checkpoint" in said


def test_whatever_is_in_a_checkpoint_the_error_is_ours(trained):
    whole = trained.last.read_bytes()
    for size in range(0, len(whole), len(whole) // 40):
        trained.last.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"last\.pt"):
            Checkpoint.load(trained.last)
    content = torch.load(trained.best, weights_only=True)
    for wrong in (
        *({"update": "x"}, {"steps": None}, {"learner": 3}, {"normalisers": []}),
        *({"best": "x"}, {"results": 5}, {"env": 7}, {"seconds": {}}),
    ):
        torch.save({**content, **wrong}, trained.last)
        with pytest.raises(CheckpointError, match=f"damaged: its {next(iter(wrong))}"):
            Checkpoint.load(trained.last)
    for other in ([1, 2], torch.zeros(3), {"format": 1}, {}):
        torch.save(other, trained.last)
        with pytest.raises(CheckpointError):
            Checkpoint.load(trained.last)


def test_the_rundirectory_knows_all_that_a_run_writes(trained):
    inside = {path.name for path in trained.path.iterdir()}
    assert inside <= {path.name for path in RunDirectory(trained.path).written()}
