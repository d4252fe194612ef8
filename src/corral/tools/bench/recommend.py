"""Which layout to use, in one sentence and one line of code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.tools.bench.candidates import EnvsBuilt, workers_text
from corral.tools.bench.results import (
    CandidateResult,
    LayoutRecommendation,
    SizeResults,
)
from corral.tools.make_line import make_line

# Of the fastest: a simpler layout, or fewer envs, is as good from here on.
NEARLY_FASTEST = 0.95
SIMPLEST_FIRST = ("serial", "thread", "process")
LOOP_WINS = (
    " One env in a for loop is faster: a step of this env takes less time than the "
    "fixed cost of a batch, which more envs would share."
)


def best_of(group: SizeResults) -> CandidateResult | None:
    """The simplest of our layouts that is nearly as fast as the fastest."""
    rows = [row for row in group.rows if row.ours and row.state == "measured"]
    if not rows:
        return None
    enough = NEARLY_FASTEST * max(_gain(row) for row in rows)
    return min((row for row in rows if _gain(row) >= enough), key=_effort)


def recommend(
    groups: Sequence[SizeResults], env: EnvsBuilt, kwargs: dict[str, Any]
) -> LayoutRecommendation | None:
    """The best layout of the fewest envs that give nearly the highest rate."""
    bests = [(group, best) for group in groups if (best := best_of(group)) is not None]
    if not bests:
        return None
    worths = _worths(bests)
    enough = NEARLY_FASTEST * max(worths)
    good = [pair for pair, worth in zip(bests, worths, strict=True) if worth >= enough]
    group, best = min(good, key=lambda pair: pair[0].num_envs)
    kind, workers = best.candidate.kind, best.candidate.workers or 1
    options: dict[str, Any] = {"env_kwargs": kwargs}
    if not best.auto:  # else "auto" chooses it by itself
        options["backend"] = kind
        if kind != "serial":
            options["workers"] = workers
    remark = f'"auto" chooses {kind}' if best.auto else ""
    make = "make_multi" if env.agents else "make"
    code = make_line(
        make, env.expression, env.import_line, group.num_envs, options, remark
    )
    text = sentence(group, best)
    return LayoutRecommendation(group.num_envs, kind, workers, text, code)


def sentence(group: SizeResults, best: CandidateResult) -> str:
    """What to use and what it gives."""
    envs = "one env" if group.num_envs == 1 else f"{group.num_envs} envs"
    kind, workers = best.candidate.kind, best.candidate.workers or 1
    serial = kind == "serial"
    place = "the caller (serial)" if serial else workers_text(kind, workers)
    facts = [f"{best.speed:,.0f} steps/s"]
    if best.over_loop is not None:
        facts.append(f"{best.over_loop:.2f} × a for loop")
    if best.efficiency is not None:
        facts.append(f"{best.efficiency:.0%} of the limit")
    others = [row for row in group.rows[1:] if not row.ours]  # all but the loop
    peers = [row for row in others if row.state == "measured"]
    if peers:
        fastest = max(peers, key=lambda row: row.speed)
        facts.append(f"{best.speed / fastest.speed:.1f} × {fastest.candidate.title}")
    slower = best.over_loop is not None and best.over_loop < NEARLY_FASTEST
    return f"Use {envs} in {place}: {', '.join(facts)}.{LOOP_WINS if slower else ''}"


def _gain(row: CandidateResult) -> float:
    """Within a group: over the loop of the same rounds, if there was one."""
    return row.speed if row.over_loop is None else row.over_loop


def _worths(pairs: Sequence[tuple[SizeResults, CandidateResult]]) -> list[float]:
    """Across groups: rates in bare steps, since the machine may have changed.

    Where a loop failed it is not known what a bare step took: then plain rates.
    """
    worths = []
    for group, row in pairs:
        if row.efficiency is None or group.limit is None or group.step_seconds is None:
            return [row.speed for _, row in pairs]
        worths.append(row.efficiency * group.limit * group.step_seconds)
    return worths


def _effort(row: CandidateResult) -> tuple[int, int]:
    return SIMPLEST_FIRST.index(row.candidate.kind), row.candidate.workers or 1
