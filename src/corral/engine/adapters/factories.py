"""One factory per slot, from what the user gives as an environment."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, TypeGuard, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from corral.core import Factory
from corral.engine.adapters.env_names import (
    make_registered,
    make_registered_batch,
    makers_in,
    resolve_env,
)
from corral.engine.keywords import check_count
from corral.errors import OptionError

Wrap = Callable[[Any], Any]
# An id, "module:function", Gymnasium's spec of an env, or a factory.
Maker = str | RegisteredSpec | Factory
# One maker for all slots, or a list with one for each slot.
EnvSource = Maker | Sequence[Maker]


@dataclass(frozen=True, slots=True)
class OuterFactory:
    """Makes an env of what another factory makes."""

    make: Factory

    @property
    def __wrapped__(self) -> Factory:
        """What `inspect.signature` describes: whether the env takes a render_mode."""
        return self.make


def wrapped(factory: Factory, wrappers: Sequence[Wrap]) -> Any:
    """Build an env and put wrappers around it, the first one innermost."""
    return functools.reduce(lambda env, wrap: wrap(env), wrappers, factory())


def factories_for(
    env: EnvSource,
    num_envs: int | None,
    env_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] = (),
    batched: bool = False,
) -> list[Factory]:
    """One factory per slot, checked without building anything.

    With `batched`, all slots have one factory, of whole shards.
    """
    if batched and not (isinstance(env, (str, RegisteredSpec)) or callable(env)):
        raise OptionError(
            f"batched=True takes one factory for all slots, or an id, not {env!r:.80}; "
            "each worker calls it once, with num_envs"
        )
    makers = _makers(env, num_envs)
    # One factory per distinct maker: the same object is pickled once.
    made = {id(one): _factory(one, dict(env_kwargs or {}), batched) for one in makers}
    if wrappers:
        around = wrapped_batch if batched else wrapped
        made = {
            key: functools.partial(around, factory, tuple(wrappers))
            for key, factory in made.items()
        }
    return [made[id(one)] for one in makers]


def _factory(maker: Maker, kwargs: dict[str, Any], batched: bool) -> Factory:
    if isinstance(maker, str):
        given = ("num_envs", "slots") if batched else ()
        found = resolve_env(maker, kwargs, given=given)
        if found.import_line or not batched:
            return found.factory
    if isinstance(maker, (str, RegisteredSpec)):
        if not batched:
            return functools.partial(make_registered, maker, kwargs)
        maker = functools.partial(make_registered_batch, maker)
    return functools.partial(maker, **kwargs) if kwargs else maker


def wrapped_batch(
    factory: Callable[..., Any], wrappers: Sequence[Wrap], slots: range, num_envs: int
) -> Any:
    """Build a batched env and put wrappers around it, the first one innermost."""
    return wrapped(lambda: called_for(factory, slots), wrappers)


def called_for(factory: Callable[..., Any], slots: range) -> Any:
    """Call the factory of a batched env; with its slots too, if it takes them."""
    known: dict[str, Any] = {"slots": slots} if takes(factory, "slots") else {}
    return factory(num_envs=len(slots), **known)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of C
        return False


def _makers(env: EnvSource, num_envs: int | None) -> list[Maker]:
    """The maker of each slot's env."""
    if is_list(env):
        for position, one in enumerate(env):
            check_factory(one, f"item {position} of the list")
        if not env or (num_envs is not None and num_envs != len(env)):
            raise OptionError(
                f"num_envs is {num_envs!r} and the list has {len(env)} factories; give "
                "one factory per slot, at least one"
            )
        return list(env)
    check_factory(env)
    count = 1 if num_envs is None else num_envs
    check_count("num_envs", count)
    return [cast(Maker, env)] * int(count)


def is_list(env: EnvSource) -> TypeGuard[Sequence[Maker]]:
    """Whether it is a list with one maker for each slot."""
    return isinstance(env, Sequence) and not isinstance(env, str)


def one_per_slot(env_fns: Iterable[Maker]) -> list[Maker]:
    """The list of factories that the classes of other libraries take."""
    if isinstance(env_fns, str) or callable(env_fns):
        raise OptionError(
            f"env_fns is {env_fns!r:.80}; pass a list with one function for each "
            "environment, such as [make_env] * 8, or use corral.make(..., num_envs=8)"
        )
    return list(env_fns)


# Mistakes in the place of a factory ---------------------------------------------------


def check_factory(thing: Any, place: str = "env") -> None:
    """Refuse what cannot be a factory, and say what to pass instead.

    Args:
        thing: the value in the place of a factory.
        place: how the error names that place.
    """
    if isinstance(thing, (str, RegisteredSpec)):
        return
    mistake = _mistake(thing)
    if mistake:
        raise OptionError(f"{place} is {mistake}")


def _mistake(thing: Any) -> str:
    """What it is and what to pass; "" if it may be a factory."""
    if isinstance(thing, ModuleType):
        return f"the module {thing.__name__}; {_function_of(thing)}"
    if inspect.isclass(thing):
        # A class with a `__new__` of its own may make an object of another class.
        makes = hasattr(thing, "reset") or hasattr(thing, "step")
        if makes or isinstance(thing.__new__, FunctionType):
            return ""
        return (
            f"the class {thing.__name__}, which has no reset and no step; pass a class "
            "derived from gymnasium.Env, or a function that makes an environment"
        )
    # Stable-Baselines3's VecEnv too, without importing it.
    vec_env = hasattr(thing, "num_envs") and callable(getattr(thing, "step_wait", None))
    if isinstance(thing, gymnasium.vector.VectorEnv) or vec_env:
        return (
            f"{type(thing).__name__}, which is several environments already; pass a "
            "factory of one of them, and num_envs"
        )
    if isinstance(thing, gymnasium.Env) or has_agents(thing):
        return (
            f"an environment, {thing}; pass its id, its class "
            "or a function that makes it, which is called once per slot"
        )
    if isinstance(thing, Iterator):
        return f"{type(thing).__name__}, which can be read once; pass a list"
    if callable(thing):
        return ""
    return (
        f'{thing!r:.80}; pass an id such as "CartPole-v1", "module:function", a '
        "function or class that makes an environment, or a list of those"
    )


def has_agents(env: Any) -> bool:
    """Whether it follows one of PettingZoo's two APIs."""
    methods = (getattr(env, name, None) for name in ("step", "observation_space"))
    return not isinstance(env, gymnasium.Env) and all(map(callable, methods))


def _function_of(module: ModuleType) -> str:
    """Which function of a module makes environments."""
    short = module.__name__.rpartition(".")[2]
    choice = " or ".join(f"{short}.{one}" for one in makers_in(module))
    if not choice:
        return "pass a function or class of it that makes an environment"
    return (
        f"pass its function {choice} to corral.make_multi (several agents) or "
        "corral.make_shared_policy (one policy for all agents)"
    )
