"""Which layout to use, in one sentence and one line of code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.tools.bench.candidates import BACKEND_WORDS
from corral.tools.bench.results import (
    CandidateResult,
    LayoutRecommendation,
    SizeResults,
)

NEARLY_FASTEST = 0.95
"""Of the fastest: a simpler layout, or fewer envs, is as good from here on."""
SIMPLEST_FIRST = ("serial", "thread", "process")
LOOP_WINS = (
    " One env in a for loop is faster: its steps take less time than a batch costs, "
    "which more envs would share."
)


def best_of(group: SizeResults) -> CandidateResult | None:
    """The simplest of our layouts that is nearly as fast as the fastest."""
    rows = [row for row in group.rows if row.ours and row.state == "measured"]
    if not rows:
        return None
    enough = NEARLY_FASTEST * max(_gain(row) for row in rows)
    good = [row for row in rows if _gain(row) >= enough]
    return min(good, key=_effort)


def recommend(
    groups: Sequence[SizeResults],
    expression: str,
    import_line: str,
    kwargs: dict[str, Any],
    make: str = "make",
) -> LayoutRecommendation | None:
    """The best layout of the fewest envs that give nearly the highest rate.

    Args:
        groups: what was measured.
        expression: how a program names the env.
        import_line: what it imports first, if anything.
        kwargs: the env's.
        make: which of our functions makes many of them.
    """
    bests = [(group, best) for group in groups if (best := best_of(group)) is not None]
    if not bests:
        return None
    worths = _worths(bests)
    enough = NEARLY_FASTEST * max(worths)
    good = [pair for pair, worth in zip(bests, worths, strict=True) if worth >= enough]
    group, best = min(good, key=lambda pair: pair[0].num_envs)
    return LayoutRecommendation(
        group.num_envs,
        best.candidate.kind,
        best.candidate.workers or 1,
        sentence(group, best),
        code(group.num_envs, best, expression, import_line, kwargs, make),
    )


def sentence(group: SizeResults, best: CandidateResult) -> str:
    """What to use and what it gives."""
    envs = "one env" if group.num_envs == 1 else f"{group.num_envs} envs"
    facts = [f"{_speed(best):,.0f} steps/s"]
    if best.over_loop is not None:
        facts.append(f"{best.over_loop:.2f} × a for loop")
    if best.efficiency is not None:
        facts.append(f"{best.efficiency:.0%} of the limit")
    peer = _fastest_peer(group)
    if peer is not None:
        facts.append(f"{_speed(best) / _speed(peer):.1f} × {peer.candidate.title}")
    slower = best.over_loop is not None and best.over_loop < NEARLY_FASTEST
    return f"Use {envs} {place(best)}: {', '.join(facts)}.{LOOP_WINS if slower else ''}"


def place(row: CandidateResult) -> str:
    """Where its envs run, in words."""
    backend, workers = row.candidate.kind, row.candidate.workers or 1
    if backend == "serial":
        return "in the caller (serial)"
    words = BACKEND_WORDS[backend] if workers > 1 else backend
    return f"in {workers} {words}"


def code(
    num_envs: int,
    best: CandidateResult,
    expression: str,
    import_line: str,
    kwargs: dict[str, Any],
    make: str = "make",
) -> str:
    """The line to write; it leaves out what `auto` chooses by itself."""
    arguments = [expression, f"num_envs={num_envs}"]
    if kwargs:
        arguments.append(f"env_kwargs={kwargs!r}")
    if not best.auto:
        arguments.append(f'backend="{best.candidate.kind}"')
        if best.candidate.kind != "serial":
            arguments.append(f"workers={best.candidate.workers}")
    line = f"envs = corral.{make}({', '.join(arguments)})"
    if best.auto:
        line += f'  # "auto" chooses {best.candidate.kind}'
    return f"{import_line}\n{line}" if import_line else line


def _fastest_peer(group: SizeResults) -> CandidateResult | None:
    peers = [
        row
        for row in group.rows
        if row.candidate.library not in ("loop", "corral") and row.state == "measured"
    ]
    return max(peers, key=_speed, default=None)


def _speed(row: CandidateResult) -> float:
    return row.steps_per_second or 0.0


def _gain(row: CandidateResult) -> float:
    """Within a group: over the loop of the same rounds, if there was one."""
    return _speed(row) if row.over_loop is None else row.over_loop


def _worths(pairs: Sequence[tuple[SizeResults, CandidateResult]]) -> list[float]:
    """Across groups: rates in bare steps, since the machine may have changed.

    Where a loop failed, nobody knows what a bare step took: then plain rates.
    """
    worths = [_in_bare_steps(group, row) for group, row in pairs]
    known = [worth for worth in worths if worth is not None]
    if len(known) < len(pairs):
        return [_speed(row) for _, row in pairs]
    return known


def _in_bare_steps(group: SizeResults, row: CandidateResult) -> float | None:
    if row.efficiency is None or group.limit is None or group.step is None:
        return None
    return row.efficiency * group.limit * group.step


def _effort(row: CandidateResult) -> tuple[int, int]:
    return SIMPLEST_FIRST.index(row.candidate.kind), row.candidate.workers or 1
