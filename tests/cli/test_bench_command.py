"""`corral bench` measures, keeps what it has, and ends with a status that says how."""

import json
import os
import signal
import subprocess
import sys

import pytest
from running import SOURCE, Script, children, wait_until

from corral.cli.main import main


def states(document):
    return {
        (group["num_envs"], one["title"]): one["state"]
        for group in document["groups"]
        for one in group["candidates"]
    }


@pytest.mark.first
def test_the_whole_of_it(here, capsys):
    arguments = ["bench", "cli_envs:Env", "--num-envs", "2,1", "--rounds", "2"]
    arguments += ["--seconds", "0.01", "--policy-ms", "0.1", "--kwargs", '{"size": 2}']
    arguments += ["--json", "report.json", "--html", "report.html"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "cli_envs:Env" in out
    assert "Where the time goes" in out
    assert "from cli_envs import Env" in out
    assert "env_kwargs={'size': 2}" in out
    assert not err
    document = json.loads((here / "report.json").read_text())
    assert document["command"] == ["corral", *arguments]
    found = states(document)
    assert set(found.values()) == {"measured"}
    assert (1, "one bare env") in found
    assert (2, "Gymnasium Async") in found
    assert (2, "Corral, serial") in found
    for group in document["groups"]:
        assert sum(one["auto"] for one in group["candidates"]) == 1
        assert sum(one["best"] for one in group["candidates"]) == 1
    page = (here / "report.html").read_text()
    assert page.count("<svg") == 3


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["CartPol-v1"], 2, "near names: CartPole-v1"),
        (["no_such_module_y:make"], 2, "no module 'no_such_module_y'"),
        (["cli_envs:Evn"], 2, "near names: Env"),
        (["cli_envs:needs"], 2, "has the arguments (size, depth)"),
        (["cli_envs:nothing"], 2, "returned None"),
        (["cli_envs:Team"], 2, "PettingZoo"),
        (["cli_envs:cannot"], 1, "could not be built: ValueError: no such robot"),
        (["CartPole-v1", "--kwargs", "{"], 2, "is not JSON"),
        (["CartPole-v1", "--kwargs", "3"], 2, "is not a JSON object"),
        (["CartPole-v1", "--num-envs", "8,0"], 2, "integer >= 1, got '0'"),
        (["CartPole-v1", "--policy-ms", "-1"], 2, "must be a number >= 0"),
        (["CartPole-v1", "--seconds", "0"], 2, "must be a number > 0"),
        (["CartPole-v1", "--backend", "threads"], 2, "did you mean thread?"),
        (["CartPole-v1", "--html", "no/such/folder.html"], 2, "cannot be written"),
        (["CartPole-v1", "--html", "."], 2, "--html . is a directory; name a file"),
        (["CartPole-v1", "--seed", "-1"], 2, "must be an integer >= 0, got '-1'"),
        (["cli_envs.py:Env"], 2, "without .py, relative to the working directory"),
        ([], 2, "required: ENV"),
    ],
)
def test_bad_input_gets_one_message_and_no_traceback(bench, arguments, status, told):
    found, out, err, document = bench(*arguments)
    assert found == status
    assert told in err
    assert "Traceback" not in out + err
    assert document is None


def test_a_wrong_peer_is_refused(here, capsys):
    assert main(["bench", "CartPole-v1", "--against", "sb4"]) == 2
    assert "did you mean sb3?" in capsys.readouterr().err
    assert main(["bench", "CartPole-v1", "--against", "sb3,none"]) == 2
    assert "--against none cannot be combined" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_costs_no_other(here, capsys):
    arguments = "--num-envs 1 --backend serial --rounds 1 --seconds 0.01 --against none"
    files = ["--json", "/dev/full", "--html", "kept.html"]
    assert main(["bench", "cli_envs:Env", *arguments.split(), *files]) == 1
    assert "/dev/full cannot be written: No space left" in capsys.readouterr().err
    assert (here / "kept.html").read_text().startswith("<!")


def test_files_are_written_when_nobody_reads(here):
    arguments = "--num-envs 1 --backend serial --rounds 1 --seconds 0.01 --against none"
    arguments += " --json kept.json --html kept.html"
    bench = [sys.executable, "-m", "corral", "bench", "cli_envs:Env"]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as nobody:
        script = subprocess.run(
            [*bench, *arguments.split()],
            cwd=here,
            stdout=nobody,
            stderr=subprocess.PIPE,
        )
    assert script.returncode == 1
    assert script.stderr == b""
    assert (here / "kept.json").exists() and (here / "kept.html").exists()


def test_two_reports_need_two_files(here, capsys):
    files = ["--json", "one.html", "--html", "./one.html"]
    assert main(["bench", "CartPole-v1", *files]) == 2
    assert "--json and --html name the same file" in capsys.readouterr().err


def test_debug_shows_the_traceback(bench):
    status, _, err, _ = bench("cli_envs:cannot", "--debug")
    assert status == 1
    assert 'raise ValueError("no such robot")' in err


@pytest.mark.parametrize(
    ("env", "reason"), [("Raises", "the arm left the table"), ("Dies", "SIGKILL")]
)
def test_a_layout_that_fails_costs_its_own_row(bench, env, reason):
    status, out, err, document = bench(
        f"cli_envs:{env}", "--num-envs", "2", "--backend", "serial,process"
    )
    assert status == 1
    assert states(document) == {
        (2, "one bare env"): "measured",
        (2, "Corral, serial"): "failed",
        (2, "Corral, 2 processes"): "measured",
    }
    assert "Corral, serial ×2 failed:" in out
    assert reason in document["groups"][0]["candidates"][1]["reason"]
    assert document["recommendation"]["backend"] == "process"
    assert "Traceback" not in out + err
    assert not children()


def test_an_env_that_never_works_is_tried_once(bench):
    status, out, _, document = bench("cli_envs:AlwaysRaises", "--num-envs", "1,2")
    assert status == 1
    assert states(document) == {(1, "one bare env"): "failed"}
    assert "one bare env ×1 failed: RuntimeError: never works" in out


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(here):
    arguments = ["cli_envs:Waits", "--num-envs", "1,2", "--backend", "serial"]
    arguments += ["--rounds", "1", "--seconds", "0.01", "--against", "none"]
    command = [
        sys.executable,
        "-m",
        "corral",
        "bench",
        *arguments,
        "--json",
        "kept.json",
    ]
    script = Script(command, None, cwd=here)
    try:
        wait_until(lambda: (here / "reached").exists())
        os.kill(script.process.pid, signal.SIGINT)
        out = script.finish(130)
    finally:
        script.process.kill()
    assert "Interrupted" in out
    assert "Traceback" not in out + script.stderr
    document = json.loads((here / "kept.json").read_text())
    assert document["interrupted"]
    found = states(document)
    assert found[1, "Corral, serial"] == "measured"
    assert found[2, "Corral, serial"] == "stopped"
    wait_until(lambda: not script.family())


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("matplotlib", ["--html", "report.html"]), ("rich", []), ("psutil", [])],
)
def test_a_missing_package_is_named_before_anything_is_measured(
    here, package, arguments
):
    code = f"import sys; sys.modules[{package!r}] = None; "
    code += "from corral.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "bench", "cli_envs:Env", *arguments]
    script = Script(command, None, cwd=here)
    assert script.finish(2) == ""
    assert package in script.stderr
    assert "pip install 'corral[bench]'" in script.stderr
    assert "Traceback" not in script.stderr


def test_it_needs_no_terminal_and_no_particular_path(here):
    """As an installed program runs: the working directory is not on its path."""
    code = f"import sys; sys.path[0] = {str(SOURCE)!r}; "
    code += "from corral.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["bench", "cli_envs:Env", "--num-envs", "1", "--backend", "serial"]
    arguments += ["--rounds", "1", "--seconds", "0.01", "--against", "none"]
    script = Script([sys.executable, "-c", code, *arguments], None, cwd=here)
    assert "Corral, serial" in script.finish(0)
    assert script.stderr == ""
