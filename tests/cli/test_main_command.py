"""`corral` finds its commands, prints errors readably, and imports nothing early."""

import argparse
import subprocess
import sys

import pytest

from corral.cli import main as command_line
from corral.errors import Fault, FaultError, OptionError
from corral.train.commands.requirements import Need


@pytest.fixture
def ending(monkeypatch):
    """`corral` with one more command, which ends as it is told."""

    class Ending:
        __doc__ = "Ends as it is told."
        SUMMARY = "ends"
        error: BaseException | None = None

        def add_arguments(self, parser: argparse.ArgumentParser) -> None:
            pass

        def need(self, arguments: argparse.Namespace) -> Need:
            return Need()

        def run(self, arguments: argparse.Namespace) -> int:
            if self.error is not None:
                raise self.error
            return 0

    command = Ending()
    commands = {**command_line.COMMANDS, "end": command}
    monkeypatch.setattr(command_line, "COMMANDS", commands)
    return command


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (OptionError("a mistake"), 2),
        (FaultError("a fault", Fault("raised", "step")), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_status_says_how_it_ended(ending, capsys, error, status):
    ending.error = error
    assert command_line.main(["end"]) == status
    told = capsys.readouterr().err
    assert told == (f"corral end: {error}\n" if status in (1, 2) else "")


def test_debug_shows_where_it_came_from(ending, capsys):
    ending.error = OptionError("a mistake")
    assert command_line.main(["end", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_mistake_of_ours_is_not_hidden(ending):
    ending.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        command_line.main(["end"])


@pytest.mark.parametrize("arguments", [[], ["no-such-command"]])
def test_without_a_command_the_commands_are_named(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        command_line.main(arguments)
    assert end.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_a_setting_without_its_flag_is_told_how_it_is_written(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["train", "cartpole", "num_envs=4"])
    assert "; a setting is written --set num_envs=4" in capsys.readouterr().err


def test_help_says_what_the_columns_mean(capsys):
    with pytest.raises(SystemExit) as end:
        command_line.main(["bench", "--help"])
    assert end.value.code == 0
    assert "N / (policy + N × step / min(N, cores))" in capsys.readouterr().out


def test_a_reader_that_goes_away_gets_no_traceback():
    command = f"{sys.executable} -m corral bench --help | head -c 1"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "u"
    assert "Traceback" not in result.stderr


def test_asking_for_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from corral.cli.main import parser\n"
        "parser()\n"
        "heavy = {'rich', 'matplotlib', 'psutil', 'gymnasium', 'numpy'}\n"
        "assert not heavy.intersection(sys.modules), heavy.intersection(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
