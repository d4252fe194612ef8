"""All agents of an env seen as one: every observation, every action, one reward."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

import corral
from corral.engine.adapters.flattened_agents import JointAction
from corral.engine.adapters.team import team_of
from corral.errors import OptionError, SpaceMismatch, SpacesDiffer
from tests.api.matching_env import Matching
from tests.api.multi_envs import Crowd, SmallerCrowd

AGENTS = ("eye_0", "eye_1", "eye_2")


class Spaced(Matching):
    """Its agents have these spaces, and see this."""

    def __init__(self, actions, observations, seen=None):
        super().__init__()
        self.possible_agents = list(actions)
        self.actions, self.observations, self.seen = actions, observations, seen

    def observation_space(self, agent):
        return self.observations[agent]

    def action_space(self, agent):
        return self.actions[agent]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict(self.seen), {}


def joint_action(actions):
    seen = dict.fromkeys(actions, spaces.Discrete(2))
    return JointAction(team_of(Spaced(actions, seen), turns=False, state=False))


def first_seen(observations, seen):
    actions = dict.fromkeys(observations, spaces.Discrete(2))
    return corral.FlattenedAgents(Spaced(actions, observations, seen)).reset()[0]


def test_what_all_see_is_one_vector_with_zeros_for_who_is_not_there():
    flattened, alone = corral.FlattenedAgents(SmallerCrowd()), SmallerCrowd()
    obs, info = flattened.reset(seed=3)
    seen, _ = alone.reset(seed=3)
    for step in range(30):
        expected = [seen.get(agent, np.zeros((2, 3))).ravel() for agent in AGENTS]
        assert np.array_equal(obs, np.concatenate(expected))
        assert flattened.observation_space.contains(obs)
        assert info["alive"].tolist() == [agent in alone.agents for agent in AGENTS]
        if not alone.agents:
            return
        action = np.array([step % 4, (step + 1) % 4, (step + 2) % 4])
        given = dict(zip(AGENTS, action.tolist(), strict=True))
        there = {agent: given[agent] for agent in alone.agents}
        obs, reward, terminated, truncated, info = flattened.step(action)
        seen, rewards, over, cut, _ = alone.step(there)
        assert reward == pytest.approx(sum(rewards.values()))
        expected_rewards = [rewards.get(agent, 0.0) for agent in AGENTS]
        assert info["agent_rewards"].tolist() == pytest.approx(expected_rewards)
        assert (terminated or truncated) == (not alone.agents)
        more_to_come = any(cut[agent] and not over[agent] for agent in cut)
        assert truncated == (not alone.agents and more_to_come)
    pytest.fail("the episode did not end")


def test_all_actions_reach_the_env():
    flattened = corral.FlattenedAgents(Matching())
    assert flattened.action_space == spaces.MultiDiscrete([3, 3])
    flattened.reset(seed=0)
    shown = flattened.env.shown
    right = [shown["a"], shown["b"]]
    assert flattened.step(np.array(right))[1] == 2.0
    shown = flattened.env.shown
    assert flattened.step(np.array([shown["a"], (shown["b"] + 1) % 3]))[1] == 1.0


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("sum", 2.0), ("mean", 1.0), (lambda rewards: 5 * rewards["b"], 5.0)],
)
def test_rewards_become_one_as_was_asked_for(reward, expected):
    flattened = corral.FlattenedAgents(Matching(), reward=reward)
    flattened.reset(seed=1)
    action = np.array([flattened.env.shown["a"], flattened.env.shown["b"]])
    assert flattened.step(action)[1] == expected


def test_a_reward_may_be_an_array_of_one():
    class Paying(Matching):
        def step(self, actions):
            obs, rewards, *rest = super().step(actions)
            return obs, {agent: np.ones(1) for agent in rewards}, *rest

    flattened = corral.FlattenedAgents(Paying())
    flattened.reset(seed=0)
    _, reward, *_ = flattened.step([0, 0])
    assert reward == 2.0


def test_an_unknown_reward_is_refused():
    with pytest.raises(OptionError, match="reward is 'max'; choose one of sum, mean"):
        corral.FlattenedAgents(Matching(), reward="max")


def test_the_mean_is_over_those_who_were_there():
    flattened = corral.FlattenedAgents(Matching(), reward="mean")
    flattened.reset(seed=1)
    for step in range(10):
        there = flattened.env.agents
        action = [flattened.env.shown.get(agent, 0) for agent in ("a", "b")]
        assert flattened.step(np.array(action))[1] == 1.0, (step, there)


def test_choices_and_numbers_side_by_side_are_refused_with_the_reason():
    with pytest.raises(OptionError, match=r"'eye_0' sets.*'hand_0' numbers"):
        corral.FlattenedAgents(Crowd())


def test_parts_of_a_joint_action_are_each_agents_own():
    joint = joint_action(
        {
            "one": spaces.Discrete(3, start=5),
            "many": spaces.MultiDiscrete([2, 4]),
            "bits": spaces.MultiBinary(2),
        }
    )
    assert joint.space == spaces.MultiDiscrete([3, 2, 4, 2, 2])
    action = np.array([2, 1, 3, 0, 1])
    assert joint.of(action, "one") == 7
    assert joint.of(action, "many").tolist() == [1, 3]
    assert joint.of(action, "bits").tolist() == [0, 1]
    assert [joint.choices(agent) for agent in ("one", "many", "bits")] == [3, 6, 4]


def test_numbers_go_side_by_side_in_their_own_shapes_and_dtypes():
    joint = joint_action(
        {
            "square": spaces.Box(-1, 1, (2, 2), np.float32),
            "pair": spaces.Box(0, 2, (2,), np.float64),
        }
    )
    assert joint.space.shape == (6,)
    assert joint.space.high.tolist() == [1, 1, 1, 1, 2, 2]
    action = np.arange(6.0)
    assert joint.of(action, "square").tolist() == [[0, 1], [2, 3]]
    assert joint.of(action, "square").dtype == np.float32
    assert joint.of(action, "pair").dtype == np.float64


@pytest.mark.parametrize(
    "space", [spaces.Dict({"a": spaces.Discrete(2)}), spaces.Box(0, 9, (1,), np.int64)]
)
def test_actions_of_other_kinds_are_refused_by_name(space):
    with pytest.raises(OptionError, match="agent 'odd' has the action space"):
        joint_action({"odd": space})


def test_observations_of_no_fixed_size_are_refused_by_name():
    with pytest.raises(OptionError, match="agent 'odd' has the observation space"):
        first_seen({"odd": spaces.Sequence(spaces.Discrete(2))}, {})


def test_unlike_agents_keep_their_places():
    grid_world = pytest.importorskip("corral.zoo.grid_world", reason="no PettingZoo")
    flattened = corral.FlattenedAgents(grid_world.parallel_env())
    assert flattened.observation_space.shape == (27 + 27 + 55,)
    assert flattened.action_space == spaces.MultiDiscrete([5, 5, 8])
    obs, _ = flattened.reset(seed=2)
    alone = grid_world.parallel_env()
    seen, _ = alone.reset(seed=2)
    for agent in alone.possible_agents:
        expected = flatten(alone.observation_space(agent), seen[agent])
        assert np.array_equal(flattened.agent_view(obs, agent), expected)


def test_turns_are_given_up_where_the_env_allows_it():
    grid_world = pytest.importorskip("corral.zoo.grid_world", reason="no PettingZoo")
    at_once = corral.FlattenedAgents(grid_world.parallel_env())
    by_turns = corral.FlattenedAgents(grid_world.env())
    assert np.array_equal(at_once.reset(seed=5)[0], by_turns.reset(seed=5)[0])
    action = np.array([0, 1, 5])
    assert np.array_equal(at_once.step(action)[0], by_turns.step(action)[0])


def test_a_step_of_agents_in_turn_is_the_turn_of_one():
    tictactoe = pytest.importorskip(
        "pettingzoo.classic.tictactoe_v3", reason="no games"
    )
    env = corral.FlattenedAgents(tictactoe.env())
    obs, _ = env.reset(seed=0)
    assert env.action_space == spaces.MultiDiscrete([9, 9])
    assert obs[-2:].tolist() == [1.0, 0.0]  # whose turn it is
    for turn, cell in enumerate((0, 3, 1, 4, 2)):
        masks = env.action_masks().reshape(2, 9)
        assert masks[turn % 2].sum() == 9 - turn and masks[1 - turn % 2].all()
        action = [8, 8]  # of the agent that waits: ignored
        action[turn % 2] = cell
        assert obs[-2:].argmax() == turn % 2
        obs, reward, terminated, truncated, info = env.step(np.array(action))
    assert terminated and not truncated and reward == 0.0
    assert info["agent_rewards"].tolist() == [1.0, -1.0]


def test_what_has_no_agents_is_refused():
    with pytest.raises(OptionError, match="neither PettingZoo's ParallelEnv nor"):
        corral.FlattenedAgents(object())


def test_masks_stand_end_to_end_and_allow_all_to_who_is_not_there():
    flattened = corral.FlattenedAgents(SmallerCrowd())
    _, info = flattened.reset(seed=3)
    masks = flattened.action_masks().reshape(3, 4)
    alive = info["alive"]
    assert 0 < alive.sum() < 3
    assert (masks[alive] == (np.arange(4) % 3 != 0)).all()
    assert masks[~alive].all()


@pytest.mark.parametrize(
    "seen, told",
    [
        ({"a": np.zeros(1), "b": np.zeros(3)}, r"obs\['a'\] is .*\(1,\); its space"),
        ({"a": {"deep": 1}, "b": np.zeros(3)}, r"obs\['a'\] is a dict; its space"),
    ],
)
def test_what_does_not_fit_is_told_with_the_agents_name(seen, told):
    box = spaces.Box(0, 1, (3,))
    with pytest.raises(SpaceMismatch, match=told):
        first_seen({"a": box, "b": box}, seen)


@pytest.mark.parametrize(
    "odd, told",
    [
        ("untold", "the infos are NoneType"),
        ("unpaid", r"env.step\(\) returned \(dict, NoneType"),
        ("shrugs", "agent 'eye_.' got the reward None"),
    ],
)
def test_what_an_env_should_not_return_is_told(odd, told):
    flattened = corral.FlattenedAgents(SmallerCrowd(odd=odd))
    flattened.reset(seed=3)
    flattened.step(flattened.action_space.sample())
    with pytest.raises(SpaceMismatch, match=told):
        flattened.step(flattened.action_space.sample())


class Forgetful(Matching):
    """Something is wrong with what it says of its agents, in a reset or a step."""

    def __init__(self, wrong, at):
        super().__init__()
        self.wrong, self.at = wrong, at

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        if self.at == "reset":
            self.wrong(self, observations, {})
        return observations, infos

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        if self.at == "step":
            self.wrong(self, observations, rewards)
        return observations, rewards, *rest


WRONG = [
    ("reset", lambda env, seen, paid: env.agents.clear(), "left no agents"),
    ("reset", lambda env, seen, paid: seen.pop("b"), "no observation for agent 'b'"),
    ("reset", lambda env, seen, paid: env.agents.append("c"), "agent 'c' is not one"),
    ("step", lambda env, seen, paid: seen.pop("a"), "no observation for agent 'a'"),
    ("step", lambda env, seen, paid: env.agents.remove("b"), "'b' is gone from env.ag"),
    ("step", lambda env, seen, paid: paid.update(c=1.0), "agent 'c' is not one of pos"),
    ("step", lambda env, seen, paid: env.agents.append("c"), "agent 'c' is not one of"),
]


def test_what_is_seen_in_another_shape_is_told_with_the_agents_name():
    def turned(env, seen, paid):
        seen["b"] = np.zeros((3, 1))

    flattened = corral.FlattenedAgents(Forgetful(turned, "step"))
    flattened.reset(seed=0)
    with pytest.raises(SpaceMismatch, match=r"obs\['b'\] .*its space says"):
        flattened.step(np.zeros(2, int))


@pytest.mark.parametrize("at, wrong, told", WRONG)
def test_agents_that_do_not_add_up_are_told_as_with_a_team(at, wrong, told):
    flattened = corral.FlattenedAgents(Forgetful(wrong, at))
    with pytest.raises((SpaceMismatch, SpacesDiffer), match=told):
        flattened.reset(seed=0)
        flattened.step(np.zeros(2, int))
    team = corral.make_multi(lambda: Forgetful(wrong, at), 1, backend="serial")
    with pytest.raises((SpaceMismatch, SpacesDiffer), match=f"slot 0.*{told}"):
        team.reset(seed=0)
        team.step({agent: np.zeros(1, int) for agent in "ab"})
    team.close()


def test_who_is_told_none_is_told_nothing():
    flattened = corral.FlattenedAgents(SmallerCrowd())
    flattened.env.told = lambda agent: None
    _, info = flattened.reset(seed=3)
    assert set(info) == {"agent_rewards", "alive"}
    assert flattened.action_masks().all()


def test_a_mask_of_another_size_is_refused_with_the_agents_name():
    flattened = corral.FlattenedAgents(SmallerCrowd())
    flattened.env.told = lambda agent: {"action_mask": np.ones(3)}
    with pytest.raises(SpaceMismatch, match=r"agent 'eye_.' has an action mask"):
        flattened.reset(seed=3)


def test_attributes_of_the_env_are_reached_through_it():
    flattened = corral.FlattenedAgents(SmallerCrowd())
    assert flattened.level == 0
    assert flattened.get_wrapper_attr("level") == 0
    assert flattened.set_wrapper_attr("level", 3, force=False)
    assert flattened.env.level == flattened.level == 3
    assert not flattened.set_wrapper_attr("nothing_of_that_name", 3, force=False)
    with pytest.raises(AttributeError):
        _ = flattened.nothing_of_that_name


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_pools_of_flattened_envs_are_exact(backend):
    with corral.Pool(
        SmallerCrowd, 2, wrappers=[corral.FlattenedAgents], backend=backend, seed=0
    ) as pool:
        step = pool.reset()
        alone = [corral.FlattenedAgents(SmallerCrowd()) for _ in range(2)]
        first = [
            env.reset(seed=int(seed))[0]
            for env, seed in zip(alone, step.seed, strict=True)
        ]
        assert np.array_equal(step.obs, np.stack(first))
        action = np.array([[0, 1, 2], [3, 2, 1]])
        step = pool.step(action)
        outcomes = [env.step(one) for env, one in zip(alone, action, strict=True)]
        assert np.array_equal(step.obs, np.stack([one[0] for one in outcomes]))
        assert step.reward.tolist() == [one[1] for one in outcomes]


# Learners -----------------------------------------------------------------------------


@pytest.fixture
def one_thread():
    """Nets as small as these wait for more threads, and are not helped by them."""
    torch = pytest.importorskip("torch", reason="what learns needs it")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_our_ppo_learns_all_agents_as_one():
    from corral.learners.ppo import PPO, PPOConfig

    with corral.Pool(
        Matching, 8, wrappers=[corral.FlattenedAgents], backend="serial", seed=0
    ) as pool:
        config = PPOConfig(n_steps=20, batch_size=64, n_epochs=4, lr=1e-2, gamma=0.5)
        ppo = PPO(pool.spec.observation_space, pool.spec.action_space, config, seed=0)
        collector = corral.Collector(pool, ppo.policy)
        for _ in range(14):
            rollout = collector.collect(config.n_steps)
            ppo.update(rollout)
    # Two agents for five steps, one for five more: 1.5 at best.
    assert rollout.reward.mean() > 1.1


@pytest.mark.usefixtures("one_thread")
def test_stable_baselines3_learns_all_agents_as_one():
    pytest.importorskip("stable_baselines3", reason="the learner of this test")
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    envs = VecMonitor(
        corral.make_sb3(
            Matching, 8, wrappers=[corral.FlattenedAgents], backend="serial", seed=0
        )
    )
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=20,
        batch_size=40,
        n_epochs=4,
        learning_rate=1e-2,
        gamma=0.5,
        seed=0,
        device="cpu",
    )
    model.learn(20 * 8 * 14)
    assert np.mean([one["r"] for one in list(model.ep_info_buffer)[-16:]]) > 11
    envs.close()


@pytest.mark.parametrize("within", [None, {"x": None}])
def test_nothing_is_not_taken_for_a_number(within):
    space = spaces.Box(0, 1, (1,), np.float32)
    if within is not None:
        space = spaces.Dict({"x": space})
    with pytest.raises(SpaceMismatch, match=r"obs\['a'\].* is None; its space"):
        first_seen({"a": space}, {"a": within})


class Lingering(Matching):
    """One is cut short, and goes on being listed as that; the other gets there."""

    def step(self, actions):
        self.time += 1
        obs = {agent: np.ones(3, np.float32) for agent in self.possible_agents}
        terminated = {"a": self.time == 4, "b": False}
        truncated = {"a": False, "b": self.time >= 2}
        self.agents = [] if self.time == 4 else ["a", "b"]
        return obs, {"a": 1.0, "b": 0.0}, terminated, truncated, {}


def test_who_left_before_neither_sees_nor_decides_how_it_ends():
    flattened = corral.FlattenedAgents(Lingering())
    flattened.reset(seed=0)
    ends, seen = [], []
    for _ in range(4):
        obs, _, terminated, truncated, info = flattened.step(np.array([0, 0]))
        ends.append((terminated, truncated))
        seen.append(obs.reshape(2, 3).any(axis=1).tolist())
    assert ends == [(False, False)] * 3 + [(True, False)]
    assert seen == [[True, True]] * 2 + [[True, False]] * 2
    assert info["alive"].tolist() == [False, False]
