"""Configs are checked, and what is wrong is told with its key, value and near name."""

from pathlib import Path

import pytest

from corral.errors import OptionError
from corral.train.recipes import RECIPES
from corral.train.recipes.resolve import (
    dump,
    recipe_defaults,
    recipe_module,
    resolve,
    setting,
)
from corral.train.run.parts import device_for


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_resolves_and_says_what_it_is(name):
    config = resolve(name, {})
    assert (config.recipe, config.name) == (name, name)
    assert config.env
    module = recipe_module(name)
    assert module is None or callable(module.build)
    assert recipe_defaults(name).keys() <= type(config).model_fields.keys()
    assert config.checkpoint_every >= 1
    assert config.updates is None or config.checkpoint_every <= config.updates


def test_settings_change_one_thing_and_leave_the_recipes_rest():
    plain, changed = resolve("cartpole", {}), resolve("cartpole", {"ppo.lr": "1e-4"})
    assert changed.ppo.lr == 1e-4
    assert changed.ppo.gamma == plain.ppo.gamma != type(plain.ppo)().gamma
    assert changed.model_copy(update={"ppo": plain.ppo}) == plain


def test_a_file_names_a_recipe_and_changes_it(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("recipe: cartpole\nnum_envs: 3\nppo:\n  lr: 1e-4\n  hidden: [8]\n")
    config = resolve(str(path), {"num_envs": 5})
    assert (config.num_envs, config.ppo.lr, config.ppo.hidden) == (5, 1e-4, (8,))
    assert config.ppo.n_steps == resolve("cartpole", {}).ppo.n_steps


def test_a_file_stands_on_its_own(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("env: my_package.envs:make_arm\ntotal_steps: 5000\n")
    config = resolve(str(path), {})
    assert config.name == "my_package.envs-make_arm"
    assert config.total_steps == 5000


def test_what_is_written_down_resolves_to_the_same(tmp_path: Path):
    config = resolve("pendulum", {"seed": 7, "ppo.clip_range_vf": 0.3})
    path = tmp_path / "config.yaml"
    path.write_text(dump(config))
    assert resolve(str(path), {}) == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ppo.lr=1e-4", ("ppo.lr", "1e-4")),
        ("num_envs = 4", ("num_envs", 4)),
        ("workers=null", ("workers", None)),
        ("env_kwargs={a: 1}", ("env_kwargs", {"a": 1})),
        ("env=module:make", ("env", "module:make")),
        ("name=[unclosed", ("name", "[unclosed")),
    ],
)
def test_settings_are_read_as_yaml(text, expected):
    assert setting(text) == expected


@pytest.mark.parametrize(
    ("source", "settings", "told"),
    [
        ("evil", {}, "there is no recipe 'evil'. There are ant"),
        ("cartpol", {}, "no recipe 'cartpol'; did you mean cartpole?"),
        ("nothing-like-it", {}, f"There are {', '.join(RECIPES)};"),
        ("no/such.yaml", {}, "there is no file no/such.yaml"),
        (
            "cartpole",
            {"num_env": 4},
            "unknown key num_env (with value 4); did you mean ",
        ),
        (
            "cartpole",
            {"ppo.lrr": 1},
            "unknown key ppo.lrr (with value 1); did you mean ppo.lr?",
        ),
        (
            "cartpole",
            {"taac": {"heads": 2}},
            "these are settings of learner: taac, and this run has another one",
        ),
        ("cartpole", {"lr": 1, "ppo.lr": 2}, "lr is given twice: 1 and ppo.lr: 2"),
        (
            "cartpole",
            {"num_envs": "many"},
            "num_envs is 'many': Input should be a valid",
        ),
        ("cartpole", {"num_envs": 0}, "num_envs is 0: Input should be greater"),
        ("cartpole", {"ppo.gamma": 1.5}, "ppo.gamma is 1.5: Input should be less"),
        ("cartpole", {"video": "always"}, "video is 'always': Input should be 'end'"),
        ("cartpole", {"ppo": 3}, "ppo is 3: Input should be"),
        ("cartpole", {"seed.x": 3}, "seed is {'x': 3}"),
        ("cartpole", {"env": ""}, "env is missing"),
        ("cartpole", {"total_steps": 1.5}, "total_steps is 1.5"),
        ("cartpole", {"ppo.lr": float("inf")}, "ppo.lr is inf: Input should be a fin"),
        ("cartpole", {"stop_at": float("nan")}, "stop_at is nan: Input should be a f"),
        ("cartpole", {"ppo.hidden": [8, 0]}, "ppo.hidden.1 is 0: Input should be gre"),
    ],
)
def test_mistakes_are_told(source, settings, told):
    with pytest.raises(OptionError) as caught:
        resolve(source, settings)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: [", "is not YAML"),
        (b"\xff\xfe\xff", "is not YAML"),
        (b"- 1\n- 2\n", "must be `key: value` lines"),
        (b"recipe: cartpol\n", "did you mean cartpole?"),
        (b"recipe: 3\n", "no recipe 3"),
        (b"recipe: [ant]\n", "no recipe ['ant']"),
        (b"", "env is missing"),
        (b"num_envs: 4\nnum_env: 4\nenv: CartPole-v1\n", "unknown key num_env"),
    ],
)
def test_files_with_mistakes_are_told(tmp_path: Path, content, told):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(OptionError) as caught:
        resolve(str(path), {})
    assert told in str(caught.value)


def test_us_spellings_are_accepted():
    settings = {"normalize_obs": True, "ppo.normalize_advantage": False}
    config = resolve("cartpole", {**settings, "env_kwargs": {"normalize_obs": 1}})
    assert config.normalise_obs and not config.ppo.normalise_advantage
    assert config.env_kwargs == {"normalize_obs": 1}


def test_names_of_other_libraries_are_accepted():
    settings = {"n_envs": 3, "total_timesteps": 600, "ppo.learning_rate": 0.5}
    config = resolve("cartpole", settings)
    assert (config.num_envs, config.total_steps, config.ppo.lr) == (3, 600, 0.5)


def test_a_recipe_that_is_set_is_the_one_that_is_taken():
    assert resolve("cartpole", {"recipe": "ant"}) == resolve("ant", {})


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", "cuda:-1"])
def test_a_device_that_is_none_is_told(name):
    with pytest.raises(OptionError, match="choose cpu, cuda, or cuda:1"):
        device_for(name)


@pytest.mark.parametrize("text", ["ppo.lr", "=3", ""])
def test_a_setting_without_key_or_value_is_told(text):
    with pytest.raises(OptionError, match="write key=value"):
        setting(text)


def test_of_a_setting_and_its_other_name_the_last_one_counts(tmp_path):
    path = tmp_path / "both.yaml"
    path.write_text("env: CartPole-v1\nnum_envs: 2\n")
    assert resolve(str(path), {"n_envs": 3}).num_envs == 3
    assert resolve(str(path), {"n_envs": 3, "num_envs": 4}).num_envs == 4
