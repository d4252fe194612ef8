"""A pytest plugin that puts Corral's AsyncPettingZooVecEnv where AgileRL's was.

Loaded with `-p conformance.swap_agilerl`, before any test module is imported. Whatever
module of AgileRL holds the class gets ours, so that `make_multi_agent_vect_envs` and
the training functions use it too.
"""

from __future__ import annotations

import sys

import agilerl.training.train_multi_agent_off_policy
import agilerl.training.train_multi_agent_on_policy
import agilerl.utils.utils
from agilerl.vector import pz_async_vec_env

from corral import dropin

NAME = "AsyncPettingZooVecEnv"
theirs, ours = getattr(pz_async_vec_env, NAME), getattr(dropin, NAME)
for module_name, module in list(sys.modules.items()):
    if module_name.partition(".")[0] != agilerl.__name__:
        continue
    if getattr(module, NAME, None) is theirs:
        setattr(module, NAME, ours)
