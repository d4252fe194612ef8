"""Every agent of every env as one row, held against loops by hand."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from gymnasium.vector import AutoresetMode

import corral
from corral.engine.adapters.flattened_agents import flat_batch
from corral.errors import OptionError, SpaceMismatch
from tests.api.matching_env import Matching
from tests.api.multi_envs import EYES, FINE, KILL, Crowd, Fragile, SmallerCrowd

ENVS, STEPS = 3, 40


def by_hand(seeds):
    """Rows of one env: what each agent sees, gets and is told, step by step.

    Args:
        seeds: (step, env) -> the seed of the episode that starts there.
    """
    env_rows = []
    for number in range(ENVS):
        env = SmallerCrowd()
        obs, _ = env.reset(seed=seeds(0, number))
        rows = [({a: obs[a] for a in env.agents}, list(env.agents), None)]
        for step in range(STEPS):
            acting = list(env.agents)
            actions = {a: action_of(number, a, step) for a in acting}
            last, reward, terminated, truncated, _ = env.step(actions)
            ends = (acting, last, reward, terminated, truncated)
            if not env.agents:
                last, _ = env.reset(seed=seeds(step + 1, number))
            rows.append(({a: last[a] for a in env.agents}, list(env.agents), ends))
        env_rows.append(rows)
    return env_rows


def action_of(env, agent, step):
    return (env + EYES.index(agent) + step) % 4


def actions_at(step):
    return np.array([action_of(env, a, step) for env in range(ENVS) for a in EYES])


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_rows_equal_loops_by_hand_while_agents_come_and_go(backend, opened):
    envs = opened(
        corral.make_shared_policy(
            SmallerCrowd,
            ENVS,
            backend=backend,
            workers=None if backend == "serial" else 2,
        )
    )
    assert envs.num_envs == ENVS * len(EYES)
    assert envs.single_observation_space == SmallerCrowd().observation_space("eye_0")
    obs, _ = envs.reset(seed=7)
    seen = [(obs, None, envs.valid, envs.started, None)]
    seeds = [envs.shared.last.seed.copy()]
    for step in range(STEPS):
        obs, reward, terminated, truncated, infos = envs.step(actions_at(step))
        finals = infos.get("final_obs")
        outcome = reward, terminated, truncated, finals
        seen.append((obs, outcome, envs.valid, envs.started, None))
        seeds.append(envs.shared.last.seed.copy())
    reference = by_hand(lambda step, env: int(seeds[step][env]))
    assert seeds[0].tolist() == [7, 8, 9]
    for row in range(envs.num_envs):
        env, agent = divmod(row, len(EYES))
        for moment, (shown, there, ends) in zip(seen, reference[env], strict=True):
            check_row(row, EYES[agent], moment, shown, there, ends)


def check_row(row, agent, moment, shown, there, ends):
    obs, outcome, valid, started, _ = moment
    expected = shown.get(agent, np.zeros((2, 3)))
    assert obs.dtype == np.uint8
    assert np.array_equal(obs[row], expected)
    if ends is None:
        return
    acting, last, reward, terminated, truncated = ends
    rewards, terminations, truncations, finals = outcome
    assert valid[row] == (agent in acting)
    assert rewards[row] == (reward[agent] if agent in acting else 0.0)
    assert terminations[row] == (agent in acting and terminated[agent])
    assert truncations[row] == (agent in acting and truncated[agent])
    ended = terminations[row] or truncations[row]
    if ended:
        assert np.array_equal(finals[row], last[agent])
    if agent not in there or ended or agent not in acting:
        assert started[row]


def test_masks_are_those_of_the_env_and_everything_for_who_is_not_there(opened):
    envs = opened(corral.make_shared_policy(SmallerCrowd, 2, backend="serial"))
    envs.reset(seed=3)
    present = envs.shared.last.obs["eye"]["alive"].ravel()
    masks = envs.action_masks
    assert masks.shape == (6, 4)
    assert masks[~present].all()
    assert (masks[present] == (np.arange(4) % 3 != 0)).all()


def test_an_env_restarts_in_the_step_that_ends_its_last_agent(opened):
    envs = opened(corral.make_shared_policy(Fragile, 1, backend="serial"))
    envs.reset(seed=0)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    ends = []
    for _ in range(6):
        obs, _, terminated, truncated, _ = envs.step(np.full(3, FINE))
        ends.append((terminated.tolist(), truncated.tolist(), envs.valid.tolist()))
    assert ends[1] == ([True, False, False], [False] * 3, [True] * 3)
    assert ends[2][2] == [False, True, True]
    assert ends[5] == ([False] * 3, [False, True, True], [False, True, True])
    assert obs[:, 0].tolist() == [10, 10, 10]


@pytest.mark.filterwarnings("ignore")
def test_rows_are_those_of_supersuit_where_nobody_leaves_early(opened):
    supersuit = pytest.importorskip("supersuit", reason="SuperSuit is not installed")
    spread = pytest.importorskip("mpe2.simple_spread_v3", reason="mpe2 is missing")
    theirs = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(spread.parallel_env()), 1, num_cpus=0
    )
    ours = opened(corral.make_shared_policy(spread.parallel_env, 1, backend="serial"))
    assert np.array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    random = np.random.default_rng(0)
    for _ in range(25):
        actions = random.integers(0, 5, 3)
        obs, reward, *_, infos = ours.step(actions)
        expected, payment, over, cut, told = theirs.step(actions)
        np.testing.assert_allclose(reward, payment, rtol=1e-6)
        if not (over.any() or cut.any()):
            assert np.array_equal(obs, expected)
    assert cut.all()
    last = np.stack([one["terminal_observation"] for one in told])
    assert np.array_equal(np.stack(list(infos["final_obs"])), last)


# Agents that differ -------------------------------------------------------------------


def test_agents_with_different_spaces_need_to_be_padded():
    with pytest.raises(OptionError, match=r"one policy does not fit all .*pad=True"):
        corral.make_shared_policy(Crowd, 2, backend="serial")


def test_choices_and_numbers_cannot_be_padded():
    with pytest.raises(OptionError, match="all Discrete or all Box"):
        corral.make_shared_policy(Crowd, 2, backend="serial", pad=True)


def test_padded_rows_are_flat_observations_zeros_and_the_kind(opened):
    pytest.importorskip("pettingzoo", reason="the grid world is a PettingZoo env")
    from corral.zoo import grid_world

    envs = opened(
        corral.make_shared_policy(
            grid_world.parallel_env, 2, backend="serial", pad=True, infos="none"
        )
    )
    alone = [grid_world.parallel_env() for _ in range(2)]
    obs, _ = envs.reset(seed=4)
    assert envs.single_observation_space.shape == (57,)
    assert envs.single_action_space == spaces.Discrete(8)
    for number, env in enumerate(alone):
        seen, _ = env.reset(seed=4 + number)
        for agent, name in enumerate(env.possible_agents):
            row = obs[3 * number + agent]
            flat = flatten(env.observation_space(name), seen[name])
            assert np.array_equal(row[: len(flat)], flat)
            assert not row[len(flat) : 55].any()
            assert row[55:].tolist() == [name != "air_0", name == "air_0"]
    masks = envs.action_masks
    assert masks.sum(axis=1).tolist() == [5, 5, 8, 5, 5, 8]


def test_a_choice_beyond_an_agents_own_is_its_first(opened):
    pytest.importorskip("pettingzoo", reason="the grid world is a PettingZoo env")
    from corral.zoo import grid_world

    one, other = (
        opened(
            corral.make_shared_policy(
                grid_world.parallel_env, 1, backend="serial", pad=True
            )
        )
        for _ in range(2)
    )
    for envs in (one, other):
        envs.reset(seed=1)
    beyond, first = one.step(np.array([7, 6, 7])), other.step(np.array([0, 0, 7]))
    assert np.array_equal(beyond[0], first[0])


def test_batches_are_flattened_as_gymnasium_flattens_one():
    space = spaces.Dict(
        {
            "box": spaces.Box(-1, 1, (2, 2)),
            "choice": spaces.Discrete(3, start=-1),
            "bits": spaces.MultiBinary(2),
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, ()))),
        }
    )
    space.seed(0)
    values = [space.sample() for _ in range(5)]
    batch = {
        "box": np.stack([v["box"] for v in values]),
        "choice": np.array([v["choice"] for v in values]),
        "bits": np.stack([v["bits"] for v in values]),
        "pair": tuple(np.stack([v["pair"][i] for v in values]) for i in range(2)),
    }
    expected = np.stack([flatten(space, value) for value in values])
    assert np.array_equal(flat_batch(space, batch, 5), expected.astype(np.float32))


# Refusals -----------------------------------------------------------------------------


def test_agents_in_turn_have_a_row_each_and_are_told_when_they_act(opened):
    tictactoe = pytest.importorskip(
        "pettingzoo.classic.tictactoe.tictactoe", reason="no games"
    )
    envs = opened(corral.make_shared_policy(tictactoe.env, 2, backend="serial"))
    _, infos = envs.reset(seed=0)
    got = np.zeros(4)
    for turn, cell in enumerate((0, 3, 1, 4, 2)):
        assert infos["acting"].tolist() == [turn % 2 == 0, turn % 2 == 1] * 2
        masks = envs.action_masks
        assert masks[turn % 2].sum() == 9 - turn and masks[1 - turn % 2].all()
        _, rewards, terminated, *_, infos = envs.step(np.full(4, cell))
        got += rewards
    assert got.tolist() == [1.0, -1.0] * 2 and terminated.all()


def test_rows_of_half_an_env_are_refused(opened):
    envs = opened(corral.make_shared_policy(Matching, 2, backend="serial"))
    envs.reset(seed=0)
    with pytest.raises(OptionError, match=r"slots \[1, 2\] are not whole envs"):
        envs.pool.send(np.zeros(2, int), slots=[1, 2])


def test_actions_of_another_number_of_rows_are_refused(opened):
    envs = opened(corral.make_shared_policy(Matching, 2, backend="serial"))
    envs.reset(seed=0)
    with pytest.raises(SpaceMismatch):
        envs.step(np.zeros(3, int))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"autoreset": "next_step"}, "agents of one env share its restarts"),
        ({"api": "torch"}, "choose one of gymnasium, sb3"),
        ({"api": "sb3", "copy": False}, "always gets copies"),
    ],
)
def test_options_without_meaning_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        corral.make_shared_policy(Matching, 2, **options)


# Questions and faults -----------------------------------------------------------------


def test_an_env_answers_for_all_of_its_rows(opened):
    envs = opened(corral.make_shared_policy(SmallerCrowd, 2, backend="thread"))
    envs.reset(seed=0)
    envs.set_attr("level", [1, 1, 1, 2, 2, 2])
    assert envs.get_attr("level") == (1, 1, 1, 2, 2, 2)
    assert len(envs.render()) == 2


def test_rows_of_a_killed_worker_are_cut_short_and_say_why(opened):
    envs = opened(
        corral.make_shared_policy(
            Fragile, 2, backend="process", workers=2, on_fault="restart"
        )
    )
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.full(6, FINE))
    _, reward, terminated, truncated, infos = envs.step(
        np.array([FINE] * 3 + [FINE, KILL, FINE])
    )
    assert truncated.tolist() == [False] * 4 + [True, True]
    assert not terminated.any()
    assert envs.valid.tolist() == [False, True, True, False, False, False]
    assert reward.tolist() == [0, 1, 1, 0, 0, 0]
    assert infos["_fault"].tolist() == [False] * 4 + [True, False]
    envs.step(np.full(6, FINE))
    assert envs.valid.tolist() == [False, True, True, True, True, True]


def test_a_fault_is_told_to_users_of_stable_baselines_too(opened):
    pytest.importorskip("stable_baselines3", reason="it is a VecEnv of theirs")
    options = {"backend": "process", "on_fault": "restart", "api": "sb3"}
    envs = opened(corral.make_shared_policy(Fragile, 1, **options))
    envs.reset()
    *_, dones, infos = envs.step(np.array([FINE, KILL, FINE]))
    assert dones.all()
    assert [("fault" in info) for info in infos] == [True, False, False]


# Learners -----------------------------------------------------------------------------


@pytest.fixture
def one_thread():
    """Nets as small as these wait for more threads, and are not helped by them."""
    torch = pytest.importorskip("torch", reason="what learns needs it")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_collector_marks_filler_and_keeps_agents_episodes_apart():
    envs = corral.make_shared_policy(Matching, 2, backend="serial", seed=0)

    class Named:
        def act(self, step, carry, rng):
            return corral.Decision(np.argmax(step.obs, axis=1))

    with envs.pool as pool:
        rollout = corral.Collector(pool, Named()).collect(20)
    assert rollout.valid[:, 0].all()
    assert rollout.valid[:, 1].tolist() == ([True] * 5 + [False] * 5) * 2
    assert np.array_equal(rollout.reward, rollout.valid.astype(float))
    told = [
        (one.slot, one.return_, one.length, one.terminated) for one in rollout.episodes
    ]
    both = [(0, 10.0, 10, False), (1, 5.0, 5, True)]
    expected = [*both, *[(slot + 2, *rest) for slot, *rest in both]] * 2
    assert sorted(told) == sorted(expected)
    seeds = {one.seed for one in rollout.episodes}
    assert len(seeds) == len(rollout.episodes)


@pytest.mark.parametrize("mode", ["two_groups", "first_ready"])
def test_rollouts_are_the_same_in_every_mode(mode):
    class Naming:
        def act(self, step, carry, rng):
            return corral.Decision(
                (step.obs.argmax(axis=1) + (rng.random()[:, 0] < 0.5)) % 3
            )

    rollouts = []
    for chosen in ("sync", mode):
        envs = corral.make_shared_policy(Matching, 4, backend="thread", seed=0)
        collector = corral.Collector(envs.pool, Naming(), mode=chosen)
        rollouts.append(collector.collect(25))
        envs.close()
    for name in ("obs", "action", "reward", "valid", "started", "terminated"):
        ours, theirs = (getattr(rollout, name) for rollout in rollouts)
        assert np.array_equal(ours, theirs), name


class Remembering:
    """Does what it saw one step before; a row's own memory, whoever else is asked."""

    def initial_carry(self, rows):
        return {"seen": np.zeros((rows, 3), np.float32)}

    def act(self, step, carry, rng):
        action = carry["seen"].argmax(axis=1)
        return corral.Decision(action, {"seen": np.array(step.obs)})


def test_a_policy_of_agents_is_evaluated_in_whole_envs():
    shared = corral.make_shared_policy(Matching, 2, backend="serial")
    envs = corral.make_multi(Matching, 3, backend="serial")
    policy = shared.pool.for_envs(Remembering())
    result = corral.evaluate(policy, envs.pool, episodes=4, seed=0)
    assert result.lengths.tolist() == [10] * 4
    returns = []
    for seed in result.seeds:
        env = Matching()
        obs, _ = env.reset(seed=int(seed))
        last, total = dict.fromkeys(env.agents, 0), 0.0
        while env.agents:
            seen = {agent: int(one.argmax()) for agent, one in obs.items()}
            obs, rewards, *_ = env.step({agent: last[agent] for agent in env.agents})
            last, total = seen, total + sum(rewards.values())
        returns.append(total)
    assert result.returns.tolist() == returns
    with pytest.raises(OptionError, match="which start together"):
        corral.run_episodes(shared.pool, Remembering(), episodes=4, seed=0)
    shared.close()
    envs.close()


@pytest.mark.parametrize("place", [("caller", "two_groups"), ("workers", "sync")])
def test_a_policy_of_agents_sees_the_rows_of_all_envs_wherever_it_acts(place):
    class Numbered:
        def act(self, step, carry, rng):
            return corral.Decision(step.slots % 3, extras={"row": step.slots})

    act_in, mode = place
    shared = corral.make_shared_policy(Matching, 2, backend="serial")
    envs = corral.make_multi(Matching, 3, backend="thread", workers=2)
    policy = shared.pool.for_envs(Numbered())  # which has no method `on`
    rollout = corral.collect(envs.pool, policy, 2, act_in=act_in, mode=mode)
    assert rollout.extras["row"].tolist() == [[[0, 1], [2, 3], [4, 5]]] * 2
    shared.close()
    envs.close()


@pytest.mark.usefixtures("one_thread")
def test_our_ppo_learns_one_policy_for_all_agents():
    from corral.learners.ppo import PPO, PPOConfig

    envs = corral.make_shared_policy(Matching, 8, backend="serial", seed=0)
    with envs.pool as pool:
        config = PPOConfig(n_steps=20, batch_size=64, n_epochs=4, lr=1e-2, gamma=0.5)
        ppo = PPO(pool.spec.observation_space, pool.spec.action_space, config, seed=0)
        collector = corral.Collector(pool, ppo.policy)
        for _ in range(12):
            rollout = collector.collect(config.n_steps)
            ppo.update(rollout)
    assert rollout.reward[rollout.valid].mean() > 0.8


@pytest.mark.usefixtures("one_thread")
def test_stable_baselines3_learns_one_policy_for_all_agents():
    pytest.importorskip("stable_baselines3", reason="the learner of this test")
    from stable_baselines3 import PPO

    envs = corral.make_shared_policy(Matching, 8, api="sb3", backend="serial", seed=0)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=20,
        batch_size=64,
        n_epochs=4,
        learning_rate=1e-2,
        gamma=0.5,
        seed=0,
        device="cpu",
    )
    model.learn(20 * 16 * 12)
    told = list(model.ep_info_buffer)
    # Filler is no episode, and no part of one.
    assert {one["l"] for one in told} == {5, 10}
    assert np.mean([one["r"] / one["l"] for one in told]) > 0.8
    envs.close()


def test_maskable_ppo_finds_the_masks(opened):
    pytest.importorskip("sb3_contrib", reason="the learner with masks")
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

    envs = opened(
        corral.make_shared_policy(SmallerCrowd, 2, api="sb3", backend="serial", seed=3)
    )
    envs.reset()
    assert is_masking_supported(envs)
    assert get_action_masks(envs).shape == (6, 4)
    assert envs.get_attr("level", indices=[0, 3]) == [0, 0]
    assert len(envs.get_images()) == 2
