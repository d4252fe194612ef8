"""A pytest plugin that puts Corral's vector envs where Gymnasium's were.

Loaded with `-p conformance.swap`, before any test module is imported, so that
`from gymnasium.vector import AsyncVectorEnv` in a test finds ours. `gymnasium.make_vec`
looks the classes up in `gymnasium.vector` when it is called, so it finds ours too.
"""

from __future__ import annotations

import gymnasium.vector
import gymnasium.vector.async_vector_env
import gymnasium.vector.sync_vector_env

from corral import dropin


def put(name: str, ours: type, *modules: object) -> None:
    for module in modules:
        assert hasattr(module, name), f"{module} has no {name} to replace"
        setattr(module, name, ours)


put(
    "AsyncVectorEnv",
    dropin.AsyncVectorEnv,
    gymnasium.vector,
    gymnasium.vector.async_vector_env,
)
put(
    "SyncVectorEnv",
    dropin.SyncVectorEnv,
    gymnasium.vector,
    gymnasium.vector.sync_vector_env,
)
