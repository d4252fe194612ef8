"""`corral config`: every key of the models, as YAML that can be trained."""

from __future__ import annotations

import pytest
import yaml

from corral.cli.main import main
from corral.learners.registry import LEARNERS, learner_class
from corral.train.recipes import RECIPES
from corral.train.recipes.config import RunConfig
from corral.train.recipes.resolve import kind_of, known_keys, resolve
from corral.train.recipes.setting_list import every_setting, settings_of
from corral.train.recipes.trials import TrialSettings


def uncommented(text):
    """Groups that are commented out, written as if they were not."""
    lines = []
    for line in text.splitlines():
        body = line.removeprefix("#   ").removeprefix("# ")
        key = body.strip().partition(":")[0]
        lines.append(body if key.isidentifier() else "")
    return lines


def models():
    yield "", RunConfig
    yield "trials", TrialSettings
    for name in LEARNERS:
        yield learner_class(name).group, learner_class(name).Config


@pytest.mark.parametrize(("group", "kind"), list(models()))
def test_every_key_of_every_model_is_printed_with_a_sentence(group, kind):
    text = every_setting()
    if group:
        begin = text.index(f"\n# {group}:")
        text = text[begin:].split("\n# ", 2)[1] + text[begin:]
    names = {key.rpartition(".")[2] for key in known_keys(kind)}
    lines = [line.strip() for line in uncommented(text)]
    missing = {
        key for key in names if not any(one.startswith(f"{key}:") for one in lines)
    }
    assert not missing
    assert all(field.description for field in kind.model_fields.values())


def test_it_shows_type_default_and_sentence():
    text = every_setting()
    assert (
        "# integer >= 1: number of parallel envs, >= 1 (default: 8)\nnum_envs: 8\n"
        in text
    )
    assert "# auto | serial | thread | process: where envs run" in text
    assert "#   clip_range: 0.2" in text and "#   tags: []" in text
    assert yaml.safe_load(text)["num_envs"] == 8


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_printed_is_the_recipe(recipe, tmp_path):
    kind = kind_of(recipe)
    text = settings_of(recipe)
    values = yaml.safe_load(text)
    assert list(values) == list(kind.model_fields)
    file = tmp_path / "same.yaml"
    file.write_text(text)
    assert resolve(str(file), {}) == resolve(recipe, {})


def test_a_misspelt_recipe_is_told(capsys):
    assert main(["config", "cartpol"]) == 2
    assert (
        "there is no recipe 'cartpol'; did you mean cartpole?"
        in capsys.readouterr().err
    )
