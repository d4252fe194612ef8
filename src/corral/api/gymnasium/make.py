"""`corral.make`: autoreset modes, observation modes, and the spaces of all slots."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from corral.api.gymnasium.env import CorralVectorEnv
from corral.core import Autoreset, EnvSpec
from corral.engine.adapters.env_names import is_registered
from corral.engine.adapters.factories import EnvSource
from corral.engine.keywords import checked_keywords
from corral.engine.pool import ApiOptions, Pool, PoolOptions, same_spaces
from corral.errors import OptionError, SpacesDiffer

_OURS: dict[AutoresetMode, Autoreset] = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "off",
}
HOLD: Autoreset = "hold"
AUTORESET_MODES: dict[str, AutoresetMode] = {
    **{name: mode for mode, name in _OURS.items()},
    HOLD: AutoresetMode.DISABLED,  # to Gymnasium: the caller resets
}
ObservationMode = str | tuple[Space[Any], Space[Any]]


@checked_keywords(onward=Pool)
def make(
    env: EnvSource,
    num_envs: int | None = None,
    *,
    autoreset: str | AutoresetMode = "next_step",
    copy: bool = True,
    observation_mode: ObservationMode = "same",
    **options: Any,
) -> CorralVectorEnv:
    """Make many environments as one `gymnasium.vector.VectorEnv`.

    Example::

        envs = corral.make("Ant-v5", num_envs=64)
        observations, infos = envs.reset(seed=0)

    Args:
        env: an id, "module:function", a factory, Gymnasium's spec of an env, or a list
            with one of those per slot.
        num_envs: number of envs; not needed with a list of factories.
        autoreset: "next_step", "same_step", "off", "hold", or Gymnasium's own enum.
        copy: False to get views into the block instead of copies.
        observation_mode: as in Gymnasium: "same", "different", or two spaces.
        **options: everything that `corral.Pool` takes. With `seed`, the first `reset()`
            is a `reset(seed=seed)`.
    """
    pool, batched = open_pool(env, num_envs, autoreset, observation_mode, **options)
    seed = options.get("seed")
    envs = CorralVectorEnv(pool, batched, mode_for(autoreset), copy, seed)
    envs.spec = _registered(env, pool.spec.id, options.get("env_kwargs"))
    return envs


def _registered(
    env: EnvSource, made: str | None, kwargs: dict[str, Any] | None
) -> RegisteredSpec | None:
    """The registered spec of the env, with the kwargs it was made with."""
    spec = env if isinstance(env, RegisteredSpec) else None
    if isinstance(env, str):
        name = env.rpartition(":")[2]  # an id, or the function of "module:function"
        spec = gymnasium.registry.get(made or name) if is_registered(name) else None
    if spec is None:
        return None
    # A copy: changes to it must not reach the next `make`.
    return replace(deepcopy(spec), kwargs={**spec.kwargs, **(kwargs or {})})


def mode_for(value: str | AutoresetMode) -> AutoresetMode:
    """Convert Gymnasium's enum, its values, or Corral's names for them."""
    try:
        return AUTORESET_MODES.get(str(value)) or AutoresetMode(value)
    except ValueError:
        raise OptionError(
            f"autoreset is {value!r}; choose one of {', '.join(AUTORESET_MODES)}"
        ) from None


def open_pool(
    env: EnvSource,
    num_envs: int | None,
    autoreset: str | AutoresetMode,
    observation_mode: ObservationMode,
    check: Callable[[EnvSpec], None] | None = None,
    name: str = "make",
    own_processes: bool = False,
    **options: Any,
) -> tuple[Pool, Space[Any]]:
    """Open a pool with Gymnasium's resets, and its batched observation space."""
    _check_observation_mode(observation_mode)
    batched: list[Space[Any]] = []

    def agree(specs: list[EnvSpec]) -> EnvSpec:
        spec, space = _agree(specs, observation_mode, name)
        if check is not None:
            check(spec)
        batched.append(space)
        return spec

    api = ApiOptions(
        bare_resets=True, wants_reset=False, agree=agree, own_processes=own_processes
    )
    mode = HOLD if autoreset == HOLD else _OURS[mode_for(autoreset)]
    asked = PoolOptions(autoreset=mode, **options)
    return Pool.with_options(env, num_envs, asked, api), batched[0]


def _check_observation_mode(mode: ObservationMode) -> None:
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(
                "Expected both elements of observation_mode to be Spaces, "
                f"got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise OptionError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of "
            f"single and batch observation space, actual got {mode}"
        )


def _agree(
    specs: list[EnvSpec], mode: ObservationMode, name: str
) -> tuple[EnvSpec, Space[Any]]:
    """The spec for all slots and the batched observation space."""
    if mode == "same":
        spec = same_spaces(
            specs,
            f"{name}(..., observation_mode='same') however the sub-environments "
            "observation spaces are not equivalent. ",
            ". If this is intentional, use `observation_mode='different'` instead.",
        )
        return spec, batch_space(spec.observation_space, len(specs))
    single = mode[1] if isinstance(mode, tuple) else specs[0].observation_space
    for slot, spec in enumerate(specs):
        if not is_space_dtype_shape_equiv(spec.observation_space, single):
            raise SpacesDiffer(
                f"slot {slot} has an observation space of another shape or dtype: "
                f"{spec.observation_space}, expected {single}"
            )
    spec = same_spaces([replace(spec, observation_space=single) for spec in specs])
    if isinstance(mode, tuple):
        return spec, mode[0]
    return spec, batch_differing_spaces([one.observation_space for one in specs])
