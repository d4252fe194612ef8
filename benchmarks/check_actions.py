"""What `check_actions=True` costs.

The caller compares each batch of actions with its space's bounds before it is sent.
That comparison is timed here by itself, and set beside what a batch takes.

    python benchmarks/check_actions.py
"""

from __future__ import annotations

import gymnasium
import numpy as np
from stats_cost import batch_time, best

from corral.engine.layout.action_check import ActionCheck
from corral.engine.layout.codec import codec_for

WORK = (("CartPole-v1", 64), ("Ant-v5", 64))


def main() -> None:
    print("| work, serial | µs a batch | check, µs | share |")
    print("|---|---|---|---|")
    for env, slots in WORK:
        batch, cost = batch_time(env, slots), check_cost(env, slots)
        print(
            f"| {env} ×{slots} | {batch * 1e6:.0f} | {cost * 1e6:.1f} | "
            f"{cost / batch:.1%} |"
        )


def check_cost(env: str, slots: int) -> float:
    """Seconds that a batch of actions takes to be checked."""
    made = gymnasium.make(env)
    space = made.action_space
    made.close()
    limits, all_slots = ActionCheck(space), np.arange(slots)
    actions = np.stack([space.sample() for _ in all_slots])
    leaves, mailed = codec_for(space).split(actions, slots)
    return best(lambda: limits.check(leaves, mailed, all_slots), calls=2000)


if __name__ == "__main__":
    main()
