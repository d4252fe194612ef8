"""A candidate runs in a process of its own; when it breaks, the others go on."""

import os
import signal
from importlib.util import find_spec

import psutil
import pytest

from corral.errors import FaultError, OptionError
from corral.tools.bench.candidate_process import CandidateProcess, close_all
from corral.tools.bench.candidates import LOOP, PEERS, BuildOrder, layout

ENVS = """
import gymnasium, numpy as np, os, signal, time

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.happen()
        return np.zeros(2, np.float32), 1.0, self.steps % 10 == 0, False, {}

    def happen(self):
        pass

class Raises(Env):
    def happen(self):
        if self.steps == 3:
            raise RuntimeError("the arm left the table")

class Silent(Env):
    def happen(self):
        raise NotImplementedError

class Dies(Env):
    def happen(self):
        if self.steps == 3:
            print("about to go", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

class Hangs(Env):
    def happen(self):
        if self.steps == 3:
            signal.pause()

def nothing():
    pass
"""


@pytest.fixture
def start_candidate(tmp_path, monkeypatch):
    """Start candidates over the envs above; none of them survives the test."""
    (tmp_path / "candidate_envs.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    candidates = []

    def start(name, candidate=LOOP, num_envs=2, policy_iterations=0, deadline=60.0):
        env = name if "-" in name else f"candidate_envs:{name}"
        order = BuildOrder(candidate, env, {}, num_envs, 0, policy_iterations)
        candidates.append(CandidateProcess(order, deadline))
        return candidates[-1]

    yield start
    close_all(candidates)


def test_the_loop_steps_one_env_and_counts_its_episodes(start_candidate):
    loop = start_candidate("Env")
    built = loop.build()
    assert built.action_space == "Discrete(2)"
    assert built.import_line == "from candidate_envs import Env"
    seconds = loop.run(10)
    (turn,) = loop.turns
    assert (turn.steps, turn.episodes, turn.seconds) == (20, 2, seconds)
    assert turn.policy == 0.0


def test_a_layout_of_ours_tells_where_it_runs_and_what_its_times_are(start_candidate):
    ours = start_candidate("Env", layout("process", 2), policy_iterations=10)
    built = ours.build()
    assert (built.layout.backend, built.layout.workers) == ("process", 2)
    ours.run(5)
    (turn,) = ours.turns
    assert turn.steps == 10
    assert min(turn.policy, turn.env, turn.busy, turn.waiting, turn.cpu) > 0


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(
            candidate,
            id=candidate.title,
            marks=pytest.mark.skipif(
                find_spec(PEERS[name].package) is None,
                reason=f"{name} is not installed",
            ),
        )
        for name, wanted in (("gymnasium", 2), ("sb3", 1), ("supersuit", 2))
        for candidate in PEERS[name].candidates[:wanted]
    ],
)
def test_a_peer_takes_its_turn(start_candidate, candidate):
    peer = start_candidate("CartPole-v1", candidate)
    assert peer.build().action_space == "Discrete(2)"
    assert peer.run(3) > 0
    assert peer.turns[0].steps == 6


def test_an_env_that_raises_fails_its_candidate(start_candidate):
    loop = start_candidate("Raises")
    loop.build()
    with pytest.raises(FaultError, match="RuntimeError: the arm left") as caught:
        loop.run(5)
    assert "in happen" in caught.value.fault.traceback


def test_an_exception_without_a_message_is_told_by_its_name(start_candidate):
    loop = start_candidate("Silent")
    loop.build()
    with pytest.raises(FaultError, match=r"^NotImplementedError$"):
        loop.run(5)


def test_a_peer_that_lacks_a_package_says_what_to_install(start_candidate, tmp_path):
    (tmp_path / "supersuit").mkdir()
    (tmp_path / "supersuit" / "__init__.py").write_text("import absent_package.part\n")
    peer = start_candidate("Env", PEERS["supersuit"].candidates[0])
    with pytest.raises(FaultError, match="pip install absent_package"):
        peer.build()


def test_a_fault_of_ours_names_the_slot(start_candidate):
    ours = start_candidate("Raises", layout("serial"))
    ours.build()
    with pytest.raises(FaultError, match="slot 1: RuntimeError in step"):
        ours.run(5)


def test_an_env_that_ends_its_process_fails_its_candidate(start_candidate):
    loop = start_candidate("Dies")
    loop.build()
    with pytest.raises(FaultError, match=r"SIGKILL.*about to go") as caught:
        loop.run(5)
    assert caught.value.fault.signal_name == "SIGKILL"


def test_an_env_that_hangs_is_given_up(start_candidate):
    loop = start_candidate("Hangs", deadline=3.0)
    loop.build()
    with pytest.raises(FaultError, match=r"no answer within 3 s"):
        loop.run(5)


@pytest.mark.parametrize("name", ["nothing", "no_such_function"])
def test_what_makes_no_env_is_the_callers_mistake(start_candidate, name):
    with pytest.raises(OptionError):
        start_candidate(name).build()


def test_closing_leaves_no_process(start_candidate):
    me = psutil.Process()
    before = me.children(recursive=True)
    ours = start_candidate("Env", layout("process", 2))
    ours.build()
    family = [one for one in me.children(recursive=True) if one not in before]
    assert len(family) >= 3
    ours.close()
    ours.close()
    gone, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    assert len(gone) == len(family)


def test_a_candidate_ends_when_the_benchmark_is_killed(start):
    script = start(
        """
        from corral.tools.bench.candidates import LOOP
        from corral.tools.bench.candidate_process import CandidateProcess
        from corral.tools.bench.candidates import BuildOrder
        loop = CandidateProcess(BuildOrder(LOOP, "CartPole-v1", {}, 1, 0, 0), 60.0)
        print(loop.build().action_space, flush=True)
        import signal
        signal.pause()
        """
    )
    assert script.line() == "Discrete(2)"
    family = script.family()
    assert len(family) == 2
    os.kill(script.process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
