"""Which learners there are, by the name that `learner:` has in a config.

    ppo, sac, taac, td3 Corral's own
    sb3_ppo             Stable-Baselines3's PPO
    my_package:Class    a class of yours that derives from `Learner`

Naming learners imports none of them: `corral list` and `--help` need no torch.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from corral.errors import OptionError

if TYPE_CHECKING:
    from corral.learners.protocol import Learner

# Name -> its class.
LEARNERS = {
    "ppo": "corral.learners.ppo_learner:PPOLearner",
    "sac": "corral.learners.off_policy.learner:SACLearner",
    "sb3_ppo": "corral.learners.sb3_learner:SB3Learner",
    "taac": "corral.learners.taac.learner:TAACLearner",
    "td3": "corral.learners.off_policy.learner:TD3Learner",
}
# Name -> the extras that it needs beside `train`.
EXTRAS = {"sb3_ppo": ("sb3",)}


def learner_class(name: str) -> type[Learner]:
    """Return the class of a learner; raise OptionError if there is none."""
    from corral.engine.adapters.env_names import named_attribute
    from corral.learners.protocol import Learner

    if name not in LEARNERS and ":" not in name:
        near = difflib.get_close_matches(name, LEARNERS, n=1)
        meant = f"; did you mean {near[0]}?" if near else "."
        raise OptionError(
            f"learner is {name!r}{meant} Choose {', '.join(LEARNERS)}, or name a class "
            "of your own as module:Class"
        )
    try:
        found = named_attribute(LEARNERS.get(name, name))
    except OptionError as error:
        raise OptionError(f"learner is {name!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise OptionError(
            f"learner is {name!r}, and {found!r:.80} does not derive from "
            "corral.learners.protocol.Learner"
        )
    return found
