"""The familiar APIs over a pool: Gymnasium's, SB3's, PettingZoo's, AgileRL's, async."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import corral
import corral.dropin
from tests.guard import envs
from tests.guard.case import MODES, PROCESS, SERIAL, TWO, Case, Played
from tests.guard.digest import Digest
from tests.guard.pools import KINDS, discrete

SLOTS, STEPS = 4, 18


# Gymnasium ----------------------------------------------------------------------------


def vector(envs_: Any, actions: Any, mode: str) -> dict[str, str]:
    """A loop over a Gymnasium vector env; closes it."""
    digest = Digest()
    obs, infos = envs_.reset(seed=21)
    digest.add(obs=obs, infos=infos)
    for step in range(STEPS):
        given = actions(range(envs_.num_envs), step)
        obs, reward, terminated, truncated, infos = envs_.step(given)
        digest.add(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            infos=infos,
            valid=envs_.valid,
            started=envs_.started,
        )
        ended = terminated | truncated
        if mode == "off" and ended.any():
            obs, infos = envs_.reset(options={"reset_mask": ended})
            digest.add(obs=obs, infos=infos, started=envs_.started)
    envs_.close()
    return digest.result()


def made(kind: str, options: dict[str, Any]) -> Played:
    env, actions, own = KINDS[kind]
    return {
        mode: vector(
            corral.make(env, SLOTS, autoreset=mode, **own, **options), actions, mode
        )
        for mode in MODES
    }


def gymnasium_dropin(options: dict[str, Any]) -> Played:
    """The classes that people import, with Gymnasium's own modes."""
    backend = options.pop("backend")
    name = "AsyncVectorEnv" if backend == "process" else "SyncVectorEnv"
    kind = getattr(corral.dropin, name)
    played = {}
    for mode, theirs in zip(MODES, ("SAME_STEP", "NEXT_STEP", "DISABLED"), strict=True):
        chosen = envs.AutoresetMode[theirs]
        made = kind([envs.Walk] * SLOTS, autoreset_mode=chosen, **options)
        played[mode] = vector(made, discrete, mode)
    return played


def asked(options: dict[str, Any]) -> Played:
    """Questions of envs through Gymnasium's API, and its split step."""
    digest = Digest()
    made = corral.make(envs.Walk, SLOTS, **options)
    made.reset(seed=[5, 9, 6, 7])
    made.step(discrete(range(SLOTS), 0))
    digest.add(call=made.call("add", 3), attr=made.get_attr("time"))
    made.set_attr("place", [1, 2, 3, 4])
    digest.add(place=made.get_attr("place"), spaces=str(made.single_action_space))
    digest.add(spaces=str(made.observation_space), mode=str(made.metadata))
    made.close()
    return {"all": digest.result()}


# Stable-Baselines3 --------------------------------------------------------------------


def stable(venv: Any, actions: Any) -> dict[str, str]:
    digest = Digest()
    digest.add(obs=venv.reset(), reset_infos=venv.reset_infos)
    for step in range(STEPS):
        obs, rewards, dones, infos = venv.step(actions(range(venv.num_envs), step))
        digest.add(obs=obs, rewards=rewards, dones=dones, infos=infos)
        digest.add(reset_infos=venv.reset_infos)
    digest.add(attr=venv.get_attr("time"), masks=venv.env_method("action_masks"))
    digest.add(seeds=venv.get_attr("seeds"))
    venv.close()
    return digest.result()


def made_sb3(kind: str, options: dict[str, Any]) -> Played:
    env, actions, _ = KINDS[kind]
    return {"all": stable(corral.make_sb3(env, SLOTS, seed=7, **options), actions)}


def sb3_dropin(options: dict[str, Any]) -> Played:
    backend = options.pop("backend")
    name = "SubprocVecEnv" if backend == "process" else "DummyVecEnv"
    venv = getattr(corral.dropin, name)([envs.Walk] * SLOTS, **options)
    venv.seed(7)
    return {"all": stable(venv, discrete)}


# Several agents -----------------------------------------------------------------------


def agent_action(agent: str, slots: Any, step: int) -> Any:
    choice = discrete(slots, step + len(agent) + int(agent[-1]))
    if agent in envs.EYES:
        return choice
    return np.stack([choice / 2 - 1, choice / 4], axis=1).astype(np.float32)


def team(made: Any, mode: str, grouped: bool = False) -> dict[str, str]:
    digest = Digest()
    obs, infos = made.reset(seed=31)
    digest.add(obs=obs, infos=infos, **about_team(made))
    for step in range(STEPS):
        given = {
            agent: agent_action(agent, range(SLOTS), step)
            for agent in (*envs.EYES, *envs.HANDS)
        }
        if grouped:
            given = {
                name: np.stack([given[agent] for agent in group.agents], axis=1)
                for name, group in made.groups.items()
            }
        obs, rewards, terminated, truncated, infos = made.step(given)
        digest.add(
            obs=obs,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            infos=infos,
            **about_team(made),
        )
        if mode == "off" and made.ended.any():
            obs, infos = made.reset(options={"reset_mask": made.ended.copy()})
            digest.add(obs=obs, infos=infos, **about_team(made))
    made.close()
    return digest.result()


def about_team(made: Any) -> dict[str, Any]:
    names = ("alive", "acting", "action_masks", "final_obs", "ended", "started")
    names = (*names, "valid", "state", "final_infos")
    return {name: getattr(made, name) for name in names}


def multi(env: Any, options: dict[str, Any]) -> Played:
    played = {
        mode: team(
            corral.make_multi(env, SLOTS, autoreset=mode, state=True, **options), mode
        )
        for mode in MODES
    }
    grouped = corral.make_multi(env, SLOTS, by="group", observe="all", **options)
    played["by group"] = team(grouped, "same_step", grouped=True)
    return played


def shared(api: str, options: dict[str, Any]) -> Played:
    """One policy for all agents: a row each."""
    if api == "sb3":
        venv = corral.make_shared_policy(envs.Pair, SLOTS, api="sb3", seed=7, **options)
        digest = Digest()
        digest.add(obs=venv.reset())
        for step in range(STEPS):
            obs, rewards, dones, infos = venv.step(discrete(range(venv.num_envs), step))
            for info in infos:
                info.get("episode", {}).pop("t", None)  # seconds
            digest.add(obs=obs, rewards=rewards, dones=dones, infos=infos)
        venv.close()
        return {"all": digest.result()}
    made = corral.make_shared_policy(envs.Pair, SLOTS, **options)
    return {"all": vector(made, discrete, "same_step")}


def flattened(options: dict[str, Any]) -> Played:
    """All agents as one."""
    wrappers = [corral.FlattenedAgents]
    made = corral.make(envs.Pair, SLOTS, wrappers=wrappers, **options)
    return {"next_step": vector(made, _both, "next_step")}


def _both(slots: Any, step: int) -> Any:
    return np.stack([discrete(slots, step), discrete(slots, step + 1)], axis=1)


def agilerl(options: dict[str, Any]) -> Played:
    del options["backend"]  # always processes
    made = corral.dropin.AsyncPettingZooVecEnv([envs.Crowd] * SLOTS, **options)
    digest = Digest()
    obs, infos = made.reset(seed=31)
    digest.add(obs=obs, infos=infos)
    for step in range(STEPS):
        given = {
            agent: agent_action(agent, range(SLOTS), step)
            for agent in made.possible_agents
        }
        obs, rewards, terminated, truncated, infos = made.step(given)
        digest.add(obs=obs, rewards=rewards, infos=infos)
        digest.add(terminated=terminated, truncated=truncated)
        for name in ("final_obs", "alive", "action_masks", "valid", "started"):
            digest.add(**{name: getattr(made, name)})
    made.close()
    return {"all": digest.result()}


# First ready first --------------------------------------------------------------------


def asynchronous(mode: str, options: dict[str, Any]) -> Played:
    """Batches of two; rows by slot, as the order is the scheduler's."""
    slots, most = 4, 12
    rows: dict[int, Digest] = {slot: Digest() for slot in range(slots)}
    counts = dict.fromkeys(range(slots), 0)
    with corral.make_async(
        envs.Walk, slots, batch_size=2, autoreset=mode, **options
    ) as made:
        made.async_reset(seed=41)
        while min(counts.values()) < most:
            obs, rewards, terminated, truncated, infos = made.recv()
            for place, slot in enumerate(made.slots.tolist()):
                if counts[slot] < most:
                    final = infos.get("final_obs")
                    rows[slot].add(
                        obs=obs[place],
                        reward=rewards[place],
                        flags=(terminated[place], truncated[place]),
                        valid=(made.valid[place], made.started[place]),
                        seed=made.last.seed[place],
                        info=made.last.infos.of(place),
                        final=None if final is None else final[place],
                    )
                counts[slot] += 1
            times = np.array([counts[slot] for slot in made.slots.tolist()])
            made.send((made.slots * 3 + times * 7) % 4)
    return {f"slot {slot}": digest.result() for slot, digest in rows.items()}


SB3 = ("stable_baselines3",)
CASES = {
    **{f"make/{kind}": Case(functools.partial(made, kind), SERIAL) for kind in KINDS},
    "make/walk": Case(functools.partial(made, "walk"), (*TWO, "thread")),
    "make/questions": Case(asked, TWO),
    "dropin/gymnasium": Case(gymnasium_dropin, TWO),
    "make_sb3/walk": Case(functools.partial(made_sb3, "walk"), TWO, SB3),
    "make_sb3/steered": Case(functools.partial(made_sb3, "steered"), SERIAL, SB3),
    "dropin/sb3": Case(sb3_dropin, TWO, SB3),
    "make_multi/parallel": Case(functools.partial(multi, envs.Crowd), TWO),
    "make_multi/in turns": Case(functools.partial(multi, envs.Turns), TWO),
    "make_shared_policy/gymnasium": Case(functools.partial(shared, "gymnasium"), TWO),
    "make_shared_policy/sb3": Case(functools.partial(shared, "sb3"), SERIAL, SB3),
    "FlattenedAgents": Case(flattened, TWO),
    "dropin/agilerl": Case(agilerl, PROCESS, ("agilerl.vector",)),
    **{
        f"make_async/{mode}": Case(functools.partial(asynchronous, mode), executors)
        for mode, executors in (("same_step", TWO), ("next_step", SERIAL))
    },
}
