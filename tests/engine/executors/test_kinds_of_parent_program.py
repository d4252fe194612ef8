"""Process workers start from every kind of parent, without a guard."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from running import ENV, Script

BODY = """
import corral

print("main ran", flush=True)
bonus = 2.5

class Mine(Env):
    def step(self, action):
        return np.zeros(2, np.float32), helper() * bonus, False, False, {}

def helper():
    return 2.0

envs = corral.make(lambda: Mine(), num_envs=2, backend="process", workers=1)
envs.reset(seed=0)
rewards = envs.step(np.zeros(2, int))[1].tolist()
pids = {os.getpid(), *envs.call("pid")}
envs.close()
print(rewards, len(pids))
"""
SAID = "main ran\n[5.0, 5.0] 2\n"


def test_script_without_a_guard(run):
    assert run(BODY) == SAID


def test_code_on_the_command_line(run):
    assert run("", arguments=["-c", ENV + BODY]) == SAID


def test_code_on_stdin(run):
    assert run("", arguments=["-"], stdin=ENV + BODY) == SAID


def test_script_with_a_guard_inside_a_function(run):
    indented = textwrap.indent(BODY, "    ")
    code = f"def main():\n{indented}\n\nif __name__ == '__main__':\n    main()\n"
    # Locals now: the class and its helper are closures.
    assert run(code) == SAID


def test_package_run_with_m_and_relative_imports(run, tmp_path: Path):
    package = tmp_path / "ranch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "bonuses.py").write_text("BONUS = 2.5\n")
    (package / "horses.py").write_text(
        ENV
        + "from .bonuses import BONUS\n"
        + "class Horse(Env):\n"
        + "    def step(self, action):\n"
        + "        return np.zeros(2, np.float32), 2 * BONUS, False, False, {}\n"
    )
    (package / "__main__.py").write_text(
        "import corral, os, numpy as np\n"
        "from .horses import Horse\n"
        "from . import bonuses\n"
        "class Foal(Horse):\n"
        "    def reset(self, **options):\n"
        "        from .bonuses import BONUS\n"
        "        assert bonuses.BONUS == BONUS\n"
        "        return super().reset(**options)\n"
        "print('main ran', flush=True)\n"
        "envs = corral.make(Foal, num_envs=2, backend='process', workers=1)\n"
        "envs.reset(seed=0)\n"
        "rewards = envs.step(np.zeros(2, int))[1].tolist()\n"
        "print(rewards, len({os.getpid(), *envs.call('pid')}))\n"
        "envs.close()\n"
    )
    assert run("", arguments=["-m", "ranch"]) == SAID


def test_notebook_with_an_env_class_in_a_cell(tmp_path: Path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.v4.new_notebook()
    printing = "class Loud(Mine):\n    def pid(self):\n        print('neigh')\n"
    notebook.cells = [
        nbformat.v4.new_code_cell(cell)
        for cell in (
            ENV,
            BODY,
            printing + "with corral.Pool(Loud, 1, backend='process') as pool:\n"
            "    pool.call('pid')",
        )
    ]
    client = nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {}}
    )
    client.execute(cwd=str(tmp_path))
    said = ["".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells]
    assert said[1:] == [SAID, "neigh\n"]


def test_pytest_in_importlib_mode(start, tmp_path: Path):
    """The test module is in nobody's path, so all of it travels by value."""
    folder, elsewhere = tmp_path / "suite", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    body = textwrap.indent(BODY, "    ").replace("print(rewards, len(pids))", "")
    (folder / "test_mine.py").write_text(
        ENV
        + "class Hidden(Exception): pass\n"
        + "class Task:\n    def __init__(self, n): self.n = n\n"
        + "class Fails(Env):\n"
        + "    def step(self, action): raise Hidden('in a module of its own')\n"
        + "    def reset(self, *, seed=None, options=None):\n"
        + "        return np.full(2, options['task'].n / 8, np.float32), {}\n"
        + f"def test_local():\n{body}\n    assert rewards == [5.0, 5.0]\n"
        + "def test_class_task_and_exception_of_the_module():\n"
        + "    import corral, pytest\n"
        + "    from corral.errors import EnvError\n"
        + "    with corral.Pool(Fails, 2, backend='process', workers=1) as pool:\n"
        + "        step = pool.reset(options=dict(task=Task(4)))\n"
        + "        assert step.obs.tolist() == [[0.5, 0.5]] * 2\n"
        + "        with pytest.raises(EnvError, match='in a module of its own'):\n"
        + "            pool.step([0, 0])\n"
        + "def square(x): return x.n ** 2\n"
        + "def test_module_is_not_importable():\n"
        + "    from corral.engine.worker import serialization\n"
        + "    assert not serialization.importable(__name__)\n"
        + "def test_map():\n"
        + "    import corral\n"
        + "    assert corral.map(square, [Task(2), Task(3)], workers=1) == [4, 9]\n"
    )
    script = start(
        "",
        arguments=[
            *("-m", "pytest", "-q", "--import-mode=importlib"),
            *("-p", "no:cacheprovider", "-W", "error", str(folder)),
        ],
        cwd=elsewhere,
    )
    assert "4 passed" in script.finish(code=None), script.stdout + script.stderr


def test_parent_with_running_threads_that_hold_locks(run):
    code = """
    import corral, threading, logging
    busy, done = threading.Event(), threading.Event()

    def hold():
        # A forked child would inherit these locks locked, for ever.
        with logging.getLogger().handlers[0].lock, gate:
            busy.set()
            done.wait()

    logging.basicConfig()
    gate = threading.Lock()
    threads = [threading.Thread(target=hold)]
    threads += [threading.Thread(target=done.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    busy.wait()
    envs = corral.make(Env, num_envs=2, backend="process", workers=1)
    envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    envs.close()
    done.set()
    for thread in threads:
        thread.join()
    print("fine")
    """
    assert run(code) == "fine\n"


def test_parent_that_has_used_torch_threads(run):
    """Stands in for parents that have used CUDA, which needs a GPU to test."""
    code = """
    import corral, torch
    torch.set_num_threads(2)
    torch.randn(400, 400) @ torch.randn(400, 400)

    class Torch(Env):
        def product(self):
            import torch
            product = torch.ones(400, 400) @ torch.ones(400)
            return torch.get_num_threads(), float(product[0])

    with corral.Pool(Torch, 1, backend="process") as pool:
        print(pool.call("product"), torch.get_num_threads())
    """
    assert run(code) == "((1, 400.0),) 2\n"


def test_daemonic_multiprocessing_child_may_have_workers(run):
    """multiprocessing forbids its daemons to have children; ours are not its."""
    code = """
    import corral, multiprocessing

    def child(queue):
        with corral.Pool(Env, 2, backend="process", workers=1) as pool:
            pool.reset()
            queue.put(len({os.getpid(), *pool.call("pid")}))

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,), daemon=True)
    process.start()
    print(queue.get(timeout=30))
    process.join()
    """
    assert run(code) == "2\n"


def test_pool_made_in_a_short_lived_thread_keeps_its_workers(run):
    code = """
    import corral, threading, psutil
    pools = []
    thread = threading.Thread(
        target=lambda: pools.append(corral.Pool(Env, 2, backend="process", workers=1))
    )
    thread.start()
    thread.join()
    alive = [c.status() != "zombie" for c in psutil.Process().children()]
    pools[0].close()
    print(alive, psutil.Process().children())
    """
    assert run(code) == "[True] []\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-O"], [1, False, []]),
        (["-X", "dev"], [0, True, ["default"]]),
        (["-W", "error::RuntimeWarning"], [0, False, ["error::RuntimeWarning"]]),
    ],
)
def test_interpreter_flags_are_carried(run, flags, expected):
    code = """
    import corral, json

    class Flags(Env):
        def flags(self):
            return [sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions]

    with corral.Pool(Flags, 1, backend="process") as pool:
        print(json.dumps(pool.call("flags")[0]))
    """
    said = run(code, *flags)
    assert json.loads(said) == expected


def test_interpreter_is_the_parents(run):
    code = """
    import corral
    told = corral.map(lambda _: (sys.executable, sys.prefix), [0])
    print(told == [(sys.executable, sys.prefix)])
    """
    assert run(code) == "True\n", sys.executable


def test_script_that_ends_with_an_exception_tells_it_once(start):
    script: Script = start("""
        import corral
        pool = corral.Pool(Env, 2, backend="process", workers=1)
        pool.reset()
        raise SystemError("of the script")
    """)
    script.finish(code=1)
    assert script.stderr.count("Traceback") == 1
    assert script.stderr.endswith("SystemError: of the script\n")
