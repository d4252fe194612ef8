"""Files of pomdp-baselines are configs of runs; keys may be flat or in groups."""

import math

import pytest
import yaml

from corral.errors import OptionError
from corral.train.recipes.resolve import resolve

NESTED = """
seed: 1
cuda: -1
env:
  env_type: meta
  env_name: PointRobotSparse-v0
  max_rollouts_per_task: 2
  num_tasks: 100
  num_train_tasks: 80
  num_eval_tasks: 20
  num_parallel_workers: 6
train:
  num_iters: 500
  num_init_rollouts_pool: 400
  num_rollouts_per_iter: 25
  buffer_size: 4e6
  num_updates_per_iter: 1000
  batch_size: 32
  sampled_seq_len: -1
  sample_weight_baseline: 0.0
eval:
  eval_stochastic: false
  log_interval: 5
  save_interval: -1
  log_tensorboard: true
policy:
  separate: True
  seq_model: gru
  algo_name: sac
  action_embedding_size: 0
  observ_embedding_size: 32
  reward_embedding_size: 8
  rnn_hidden_size: 128
  dqn_layers: [128, 128]
  policy_layers: [128, 128]
  lr: 0.0003
  gamma: 0.9
  tau: 0.005
  sac:
    entropy_alpha: 0.2
    automatic_entropy_tuning: true
    alpha_lr: 0.0003
  td3:
    exploration_noise: 0.1
"""


@pytest.fixture
def config(tmp_path):
    def read(text, **settings):
        path = tmp_path / "theirs.yml"
        path.write_text(text)
        return resolve(str(path), settings)

    return read


def flat(text):
    values = yaml.safe_load(text)
    groups = [values.pop(name) for name in ("env", "train", "eval", "policy")]
    for group in groups:
        values |= {k: v for k, v in group.items() if not isinstance(v, dict)}
    return yaml.safe_dump(values)


@pytest.mark.parametrize("written", [NESTED, flat(NESTED)], ids=["nested", "flat"])
def test_a_whole_file_of_theirs_is_a_config(config, written):
    found = config(written)
    assert found.env == "corral.zoo.meta.point_robot:make"
    assert (found.num_envs, found.seed, found.device) == (6, 1, "cpu")
    assert (found.evaluate_every, found.evaluate_episodes) == (5, 20)
    trials, sac = found.trials, found.sac
    assert (trials.episodes, trials.train_tasks, trials.eval_tasks) == (2, 80, 20)
    assert (sac.architecture, sac.memory, sac.memory_size) == ("memory", "gru", 128)
    assert (sac.episodes, sac.random_episodes, sac.random_steps) == (25, 400, 0)
    assert (sac.updates, sac.replay_size) == (1000, 4_000_000)
    assert (sac.batch_size, sac.sequence_length) == (32, None)
    assert (sac.action_embedding, sac.reward_embedding) == (0, 8)
    assert (sac.hidden, sac.gamma, sac.alpha) == ((128, 128), 0.9, "auto")
    # 400 random trials and 500 x 25 more, of 2 x 60 steps
    assert found.total_steps == (400 + 500 * 25) * 120


def test_settings_under_our_names_win(config):
    found = config(NESTED, num_envs=3, total_steps=500, **{"sac.episodes": 4})
    assert (found.num_envs, found.total_steps, found.sac.episodes) == (3, 500, 4)
    assert found.sac.random_episodes == 400


def test_their_keys_change_our_recipes():
    settings = {"num_rollouts_per_iter": 7, "num_parallel_workers": 3}
    found = resolve("point_robot", settings | {"max_rollouts_per_task": 3})
    assert (found.sac.episodes, found.num_envs, found.trials.episodes) == (7, 3, 3)
    assert found.sac.gamma == 0.95


def test_our_groups_stand_beside_theirs(config):
    text = "sac: {episodes: 4}\n" + NESTED.replace("alpha_lr: 0.0003", "alpha_lr: 0.5")
    found = config(text, **{"sac.gamma": 0.7}).sac
    assert (found.episodes, found.gamma, found.alpha_lr) == (4, 0.7, 0.5)


def test_one_key_of_theirs_chooses_no_learner(config):
    found = config("env: CartPole-v1\nnum_parallel_workers: 3\n")
    assert (found.learner, found.num_envs) == ("ppo", 3)
    found = config("env: Pendulum-v1\nnum_updates_per_iter: 3\n")
    assert (found.learner, found.sac.updates) == ("sac", 3)


def test_td3_and_a_fixed_temperature(config):
    text = NESTED.replace("algo_name: sac", "algo_name: td3")
    assert config(text.replace("noise: 0.1", "noise: 0.3")).td3.exploration_noise == 0.3
    fixed = NESTED.replace("tuning: true", "tuning: false")
    assert config(fixed).sac.alpha == 0.2
    assert config(NESTED.replace("model: gru", "model: mlp")).sac.episodes == 25


def test_the_target_entropy_of_sacd_is_a_share_of_the_largest(config):
    text = NESTED.replace("algo_name: sac", "algo_name: sacd").replace(
        "  sac:", "  sacd:"
    )
    text = text.replace("PointRobotSparse-v0", "CartPole-v1")
    text = text.replace("entropy_alpha: 0.2", "target_entropy: 0.5")
    assert config(text).sac.target_entropy == 0.5 * math.log(2)
    mine = config(text, **{"sac.target_entropy": 0.1})
    assert mine.sac.target_entropy == 0.1


@pytest.mark.parametrize(("cuda", "device"), [(-1, "cpu"), (0, "auto"), (2, "cuda:2")])
def test_the_first_gpu_is_used_where_there_is_one(config, cuda, device):
    assert config(NESTED.replace("cuda: -1", f"cuda: {cuda}")).device == device


def test_env_types_without_tasks_have_no_trials(config):
    text = NESTED.replace("env_type: meta", "env_type: pomdp")
    assert not hasattr(config(text), "trials")
    assert config(text).total_steps == (400 + 500 * 25) * 60


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_iters", "num_itres", r"train.num_itres .*did you mean train.num_iters"),
        ("seq_model: gru", "seq_model: rnn", "seq_model is 'rnn'; choose one of mlp"),
        ("algo_name: sac", "algo_name: sca", "learner is 'sca'; did you mean sac"),
        ("num_tasks: 100", "sticky: 1", r"env.sticky .*go into env_kwargs"),
        ("seed: 1", "trails: 1", "unknown key trails .*did you mean trials"),
        ("seed: 1", "sede: 1", "unknown key sede .*did you mean seed"),
        ("PointRobotSparse-v0", "GymV26Environment-v9", "Environment"),
    ],
)
def test_what_is_wrong_is_told_with_what_was_meant(config, old, new, said):
    with pytest.raises(OptionError, match=said):
        config(NESTED.replace(old, new))


def test_iterations_of_an_env_without_a_limit_cannot_be_counted(config):
    text = NESTED.replace(
        "PointRobotSparse-v0", "corral.zoo.meta.point_robot:PointRobot"
    )
    with pytest.raises(OptionError, match=r"num_iters is 500.*set total_steps instead"):
        config(text)
    assert config(text, total_steps=99).total_steps == 99


def test_other_configs_have_no_trials():
    assert not hasattr(resolve("cartpole", {}), "trials")
    assert resolve("pendulum", {"trials": 3}).trials.episodes == 3
    with pytest.raises(OptionError, match=r"did you mean trials.episodes"):
        resolve("pendulum", {"trials.episode": 3})
    with pytest.raises(OptionError, match=r"trials.episodes is 0: .*greater"):
        resolve("pendulum", {"trials": 0})
