"""Random programs: a sample of them passes, and those that must fail do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import prepared_workers
import pytest

from tests.soak.marked_census import take_census
from tests.soak.programs.draw import APIS, NEED_SB3, draw
from tests.soak.programs.kinds import Kind
from tests.soak.programs.players import PLAYERS, play
from tests.soak.programs.program import Program
from tests.soak.programs.runner import FORKED_WORKERS, left_behind
from tests.soak.programs.shrink import shrunk
from tests.soak.programs.supervisor import ProgramResult, run

SAMPLE = (500, 501, 505, 506, 507)
"""Seeds of programs over five APIs and all backends."""
SHARING = Program(
    seed=7,
    api="make",
    kind=Kind(state="class list", infos="arrays", wrapped=True),
    slots=4,
    autoreset="next_step",
    steps=24,
)
"""Envs that share a list in the caller's process, held against envs that are alone."""


@pytest.mark.first
def test_a_sample_of_programs_gives_no_wrong_row_hang_leak_or_untyped_error(
    monkeypatch,
):
    if prepared_workers.are_possible():
        monkeypatch.setenv(FORKED_WORKERS, "1")
    verdicts = list(run([draw(seed) for seed in SAMPLE], jobs=1))
    wrong = [(str(one.program), one.mistakes) for one in verdicts if one.mistakes]
    assert not wrong
    assert len(verdicts) == len(SAMPLE)


def test_a_seed_always_draws_the_same_program_and_json_keeps_it():
    for seed in range(200):
        program = draw(seed)
        assert program == draw(seed) == Program.from_json(program.to_json())
        assert program.api in PLAYERS


def test_every_api_whose_library_is_installed_is_drawn():
    needs = {"AsyncPettingZooVecEnv": "agilerl"}
    needs |= dict.fromkeys(NEED_SB3, "stable_baselines3")
    absent = {api for api, library in needs.items() if find_spec(library) is None}
    assert set(APIS) == set(PLAYERS) - absent


def test_every_api_and_backend_is_drawn():
    drawn = [draw(seed) for seed in range(400)]
    apis = {program.api for program in drawn}
    assert apis == set(APIS)
    backends = {program.backend for program in drawn}
    assert backends == {"serial", "thread", "process", "auto"}


def test_a_wrong_row_is_found_and_the_program_made_smaller():
    mistakes = play(SHARING)
    assert mistakes and mistakes[0].startswith("wrong row: ")
    smaller = shrunk(ProgramResult(SHARING, mistakes), limit=60.0)
    assert smaller.steps < SHARING.steps and smaller.kind.infos == "none"
    assert not smaller.kind.wrapped and smaller.kind.state == "class list"
    assert play(smaller)
    alone = replace(smaller, kind=replace(smaller.kind, state="own"))
    assert not play(alone)


@pytest.mark.first
def test_a_program_that_hangs_is_ended_with_its_stacks_and_the_next_one_played():
    hanging = Program(seed=1, kind=Kind(waits=600.0))
    verdicts = list(run([hanging, Program(seed=2)], jobs=1, limit=3.0))
    assert [verdict.sort for verdict in verdicts] == ["hang", ""]
    assert "env.py" in verdicts[0].mistakes[0]  # where it sleeps


def test_a_program_that_ends_its_process_is_told_and_the_next_one_played():
    dying = Program(seed=1, kind=Kind(fault="os_exit", rarity=1))
    verdicts = list(run([dying, Program(seed=2)], jobs=1))
    assert [verdict.sort for verdict in verdicts] == ["death", ""]
    assert "exit code 3" in verdicts[0].mistakes[0]


def test_what_is_left_behind_is_told(monkeypatch):
    monkeypatch.setattr("tests.soak.programs.runner.KILLED_EXIT_SECONDS", 0.0)
    before = take_census()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert any("processes" in text for text in left_behind(before, ""))
    finally:
        process.kill()
        process.wait()


def test_the_command_line_says_what_failed_and_how_to_run_it_again():
    for program, failed in ((SHARING, 1), (Program(seed=3), 0)):
        command = [sys.executable, "-m", "tests.soak.programs", "--no-shrink"]
        command += ["--program", program.to_json()]
        played = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert played.returncode == failed, played.stdout
        assert f"1 programs, {failed} failed" in played.stdout
        told = f"--program '{program.to_json()}'" in played.stdout
        assert told == bool(failed), played.stdout
