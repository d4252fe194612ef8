"""`corral.make_sb3`; importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from corral.api.gymnasium.errors import translated
from corral.api.sb3 import env_calls as reach
from corral.api.sb3.action_masks import KEY, carrying
from corral.engine.adapters.factories import EnvSource, Wrap
from corral.engine.executors.contract import closed_on_error
from corral.engine.keywords import checked_keywords
from corral.engine.pool import (
    ApiOptions,
    Pool,
    PoolOptions,
    check_wrappers,
    info_choice,
)
from corral.errors import OptionError

if TYPE_CHECKING:
    from corral.api.sb3.env import CorralVecEnv

# Options of a pool that Stable-Baselines3 determines.
FIXED = {
    "autoreset": "Stable-Baselines3 restarts an episode in the step that ends it",
    "copy": "Stable-Baselines3 keeps observations, so it always gets copies",
}


@checked_keywords(onward=Pool, refused=FIXED)
def make_sb3(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    seed: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> CorralVecEnv:
    """Make many environments as one Stable-Baselines3 `VecEnv`.

    Example::

        envs = VecMonitor(corral.make_sb3("Ant-v5", num_envs=64, seed=0))
        PPO("MlpPolicy", envs).learn(1_000_000)

    Args:
        env: an id, "module:function", a factory, Gymnasium's spec of an env, or a list
            with one of those per slot.
        num_envs: number of envs; not needed with a list of factories.
        seed: the first `reset` gives slot i the seed `seed + i`, as with SB3.
        backend: "serial", "thread", "process", or "auto", which measures.
        **options: everything else that `corral.Pool` takes.
    """
    from corral.api.sb3.env import CorralVecEnv

    pool = open_pool(env, num_envs, seed=seed, backend=backend, **options)
    envs = CorralVecEnv(pool)
    if seed is not None:
        envs.seed(seed)
    return envs


def open_pool(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    backend: str,
    wrappers: Sequence[Wrap] = (),
    infos: str | Sequence[str] = "all",
    innermost: Sequence[Wrap] = (reach.patched,),
    own_processes: bool = False,
    syntax: str = "python",
    **options: Any,
) -> Pool:
    """Open a pool with Stable-Baselines3's resets and wrappers."""
    check_wrappers(wrappers)
    # Our wrappers are for one env; a batched env is a whole shard.
    single = not options.get("batched", False)
    around = [*(innermost if single else ()), *wrappers]
    if backend != "serial" and single:
        around.append(carrying)
    with translated(syntax):
        pool = Pool.with_options(
            env,
            num_envs,
            PoolOptions(
                backend=backend,
                wrappers=around,
                infos=infos if isinstance(infos, str) else [*info_choice(infos), KEY],
                **options,
            ),
            ApiOptions(
                bare_resets=True, wants_reset=False, own_processes=own_processes
            ),
        )
        with closed_on_error(pool):
            if single:
                _check_distinct(pool)
    return pool


def _check_distinct(pool: Pool) -> None:
    """Refuse two slots with the same env: each would step the other's episode."""
    slots: dict[Any, int] = {}
    for slot, mark in enumerate(pool.apply(reach.identity)):
        if mark in slots:
            raise OptionError(
                f"slots {slots[mark]} and {slot} have the same environment: a factory "
                "returned an env that existed before. It must make a new env at every "
                "call: `lambda: gymnasium.make(...)`, not `lambda: env`"
            )
        slots[mark] = slot
