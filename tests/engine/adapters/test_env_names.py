"""A name on a command line finds its environment, or says what was looked for."""

import sys

import gymnasium
import numpy as np
import pytest

import corral
from corral.engine.adapters.env_names import is_pettingzoo, resolve_env
from corral.errors import OptionError

MODULE = """
import gymnasium

class Arm(gymnasium.Env):
    def __init__(self, size, depth=3):
        self.size, self.depth = size, depth

class Plain(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=2):
        self.size = size

    def reset(self, seed=None, options=None):
        self.at = 0
        return 0, {}

    def step(self, action):
        self.at += 1
        return 0, 1.0, self.at == self.size, False, {}

class Box:
    Plain = Plain

def make_plain(size=2):
    return Plain(size)

def make_batch(num_envs, size):
    return gymnasium.vector.SyncVectorEnv([lambda: Plain(size)] * num_envs)

def cart():
    return gymnasium.make("CartPole-v1")

def make_arm():
    return Arm(1)

def by_position(size, depth=3, /):
    return Arm(size, depth)

gymnasium.register("NamedTestEnv-v3", entry_point=Plain)
number = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module that only the working directory has."""
    (tmp_path / "robots_here.py").write_text(MODULE)
    (tmp_path / "broken_here.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("robots_here", None)
    gymnasium.registry.pop("NamedTestEnv-v3", None)


def test_an_id_is_made_by_gymnasium():
    found = resolve_env("CartPole-v1", {"render_mode": "rgb_array"})
    env = found.factory()
    assert (env.spec.id, env.render_mode) == ("CartPole-v1", "rgb_array")
    assert (found.expression, found.import_line) == ('"CartPole-v1"', "")
    env.close()


def test_a_function_of_the_working_directory_is_found():
    found = resolve_env("robots_here:make_arm")
    assert found.factory().size == 1
    assert found.expression == "make_arm"
    assert found.import_line == "from robots_here import make_arm"


@pytest.mark.parametrize(
    "name", ["fleet_here.ships", "fleet_here:ships", "fleet_here:boats"]
)
def test_where_a_module_is_named_its_functions_are_told(tmp_path, name):
    (tmp_path / "fleet_here").mkdir()
    opening = "from fleet_here import boats\n"
    (tmp_path / "fleet_here" / "__init__.py").write_text(opening)
    for module in ("ships", "boats"):
        path = tmp_path / "fleet_here" / f"{module}.py"
        path.write_text("def env(): pass\nparallel_env = env\n")
    dotted = name.replace(":", ".")
    told = f"{dotted} is a module: write {dotted}:parallel_env or {dotted}:env"
    try:
        with pytest.raises(OptionError, match=told):
            resolve_env(name)
    finally:
        for known in [one for one in sys.modules if one.startswith("fleet_here")]:
            del sys.modules[known]


def test_a_class_takes_its_arguments():
    env = resolve_env("robots_here:Arm", {"size": 7}).factory()
    assert (env.size, env.depth) == (7, 3)


def test_an_id_that_a_module_registers_is_found():
    found = resolve_env("robots_here:NamedTestEnv-v3")
    assert found.expression == '"robots_here:NamedTestEnv-v3"'
    assert found.factory().spec.id == "NamedTestEnv-v3"


@pytest.mark.parametrize(
    ("text", "kwargs", "told"),
    [
        ("CartPol-v1", {}, ["'CartPol-v1'", "near names: CartPole-v1", "module:fun"]),
        (
            "no_such_module_x:make",
            {},
            ["env='no_such_module_x:make': no module", "Python's path"],
        ),
        ("robot_here:make_arm", {}, ["no module 'robot_here'", "near names: robots_h"]),
        ("robots_here:make_amr", {}, ["'make_amr'", "near names: make_arm"]),
        ("robots_here:NamedTestEnvv-v3", {}, ["near names: NamedTestEnv-v3"]),
        (
            "robots_here:Arm",
            {},
            ["missing a required argument: 'size'", 'env_kwargs={"size": ...}'],
        ),
        (
            "robots_here:Arm",
            {"length": 1},
            ["unexpected keyword argument 'length'", "has the arguments (size, depth"],
        ),
        (
            "robots_here:by_position",
            {"size": 1},
            ["'size' parameter is positional only", "passed by name"],
        ),
        ("robots_here.py:Arm", {}, ["not module:function", "without .py"]),
        ("./parts/arm.py:Arm", {}, ["not module:function", "with dots"]),
        ("../arm:Arm", {}, ["not module:function", "as in `import`"]),
        ("robots_here:number", {}, ["number of module 'robots_here' is 3"]),
        (":make", {}, ["':make' is not module:function"]),
        ("robots_here:", {}, ["'robots_here:' is not module:function"]),
    ],
)
def test_what_cannot_be_found_says_what_was_looked_for(text, kwargs, told):
    with pytest.raises(OptionError) as caught:
        resolve_env(text, kwargs)
    for part in told:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("syntax", "told"),
    [
        ("command", """--kwargs '{"depth": 1, "size": "..."}'"""),
        ("yaml", "env_kwargs: {depth: ..., size: ...}"),
        ("python", 'env_kwargs={"depth": ..., "size": ...}'),
    ],
)
def test_arguments_are_asked_for_in_the_syntax_of_the_user(syntax, told):
    with pytest.raises(OptionError) as caught:
        resolve_env("robots_here:Arm", {"depth": 1}, syntax=syntax)
    assert str(caught.value).endswith(told)


class Still:
    """A policy that does nothing."""

    def act(self, step, carry, rng):
        return corral.Decision(np.zeros(len(step), np.int64))


@pytest.mark.parametrize(
    "name", ["make_plain", "Plain", "Box.Plain", "NamedTestEnv-v3"]
)
def test_programs_name_environments_as_command_lines_do(name):
    options = {"env_kwargs": {"size": 3}, "backend": "serial"}
    for make in (corral.make, corral.Pool, corral.make_async):
        envs = make(f"robots_here:{name}", 2, **options)
        assert getattr(envs, "pool", envs).get_attr("size") == (3, 3)
        envs.close()
    found = corral.evaluate(Still(), f"robots_here:{name}", episodes=2, **options)
    assert found.returns.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("name", ["make_plain", "NamedTestEnv-v3"])
def test_workers_find_what_a_program_names(name):
    options = {"env_kwargs": {"size": 3}, "backend": "process", "workers": 1}
    envs = corral.make(f"robots_here:{name}", 2, **options)
    assert envs.get_attr("size") == (3, 3)
    envs.close()


def test_a_program_names_the_batched_form_by_its_function():
    options = {"batched": True, "env_kwargs": {"size": 4}, "autoreset": "next_step"}
    with corral.Pool("robots_here:make_batch", 3, backend="serial", **options) as pool:
        pool.reset(seed=0)
        assert pool.get_attr("size") == (4, 4, 4)


def test_the_doctor_of_a_program_is_given_a_name_too():
    report = corral.doctor.check("robots_here:Plain", only=["pickling"])
    assert "from robots_here import Plain" in str(report.recommendation)


def test_both_meanings_of_a_name_are_told_where_it_has_neither():
    with pytest.raises(OptionError) as caught:
        corral.make("robots_here:make_plian", 2)
    told = "it has no function or class 'make_plian' and registers no environment"
    assert told in str(caught.value)
    assert "near names: make_plain" in str(caught.value)


def test_only_an_id_gives_the_vector_env_a_spec():
    envs = corral.make("robots_here:NamedTestEnv-v3", 1, backend="serial")
    assert envs.spec.id == "NamedTestEnv-v3"
    envs.close()
    envs = corral.make("robots_here:cart", 1, backend="serial")
    assert envs.pool.spec.id == "CartPole-v1"
    assert envs.spec is None  # made with the function's arguments, not with the id's
    envs.close()


def test_a_module_that_lacks_a_package_of_its_own_says_which():
    said = "module 'broken_here' raised an error when imported: ModuleNotFoundError: .*"
    with pytest.raises(OptionError, match=f"{said}'no_such_package_anywhere'"):
        resolve_env("broken_here:make")


def test_pettingzoo_envs_are_told_by_their_class():
    base = type("ParallelEnv", (), {"__module__": "pettingzoo.utils.env"})
    assert is_pettingzoo(type("Mine", (base,), {})())
    assert not is_pettingzoo(gymnasium.Env())


def test_a_game_that_a_package_does_not_have_is_told_with_near_names():
    pytest.importorskip("pettingzoo.classic", reason="PettingZoo is not installed")
    with pytest.raises(OptionError, match="no function or class 'conect_four_v3'") as e:
        resolve_env("pettingzoo.classic:conect_four_v3")
    assert "near names: connect_four_v3" in str(e.value)
