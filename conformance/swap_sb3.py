"""A pytest plugin that puts Corral's vector envs where Stable-Baselines3's were.

Loaded with `-p conformance.swap_sb3`, before any test module is imported. Whatever
module of Stable-Baselines3 holds one of the two classes gets ours, so that
`make_vec_env` and the algorithms use them too.
"""

from __future__ import annotations

import sys

import stable_baselines3
from stable_baselines3.common import vec_env

from corral import dropin


def put(name: str, theirs: type, ours: type) -> None:
    package = stable_baselines3.__name__
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != package:
            continue
        if getattr(module, name, None) is theirs:
            setattr(module, name, ours)


for name in ("DummyVecEnv", "SubprocVecEnv"):
    put(name, getattr(vec_env, name), getattr(dropin, name))
