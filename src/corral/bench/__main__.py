"""`python -m corral.bench`: a short race of CartPole against Gymnasium."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from corral.bench import cartpole, measure
from corral.errors import MissingExtra


def main() -> int:
    """Race, show the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m corral.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=None, help="turns per candidate")
    arguments = parser.parse_args()
    try:
        from corral.bench import console
    except MissingExtra as error:
        print(error, file=sys.stderr)
        return 1
    rounds = arguments.rounds or cartpole.ROUNDS
    turns = rounds * len(cartpole.SIZES) * len(cartpole.CANDIDATES)
    outcomes = []
    with console.progress(turns) as advance:
        for slots in cartpole.SIZES:
            on_turn = partial(advance, f"×{slots}")
            outcomes.append(cartpole.run(slots, on_turn, rounds))
    console.show(outcomes, measure.machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
