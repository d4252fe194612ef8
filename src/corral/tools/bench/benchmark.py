"""The whole benchmark: one comparison per number of envs; partial results are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from corral.engine.executors.assign import usable_cores
from corral.errors import FaultError, OptionError
from corral.tools.bench.candidates import check_backends, peers
from corral.tools.bench.comparison import Comparison
from corral.tools.bench.messages import EnvsBuilt
from corral.tools.bench.recommend import recommend
from corral.tools.bench.results import BenchReport, BenchSettings, SizeResults
from corral.tools.bench.simulated_policy import iterations_for
from corral.train.run import machine

if TYPE_CHECKING:
    from corral.train.sinks.progress import ProgressBar

INTERRUPTED_CLOSE_SECONDS = 2.0
"""Seconds that candidates have to close after Ctrl-C."""


def run(settings: BenchSettings, watcher: ProgressBar) -> BenchReport:
    """Run the whole benchmark.

    Ctrl-C ends it early, with what is known by then. Raises if the env cannot be
    found or built at all.
    """
    if os.name != "posix":
        raise OptionError(
            "corral bench starts a process for each candidate in a way that needs "
            f"Linux or macOS; this system is {os.name}"
        )
    check_backends(settings.backends or ())
    there, _ = peers(settings.against)
    policy_iterations = iterations_for(settings.policy_ms * 1e-3)
    comparisons = [
        Comparison(
            settings,
            num_envs,
            cores=usable_cores(),
            peers=there,
            policy_iterations=policy_iterations,
            watcher=watcher,
        )
        for num_envs in settings.num_envs
    ]
    watcher.expect(sum(comparison.expected_turns() for comparison in comparisons))
    return _run_comparisons(settings, comparisons)


def _run_comparisons(
    settings: BenchSettings, comparisons: Sequence[Comparison]
) -> BenchReport:
    groups: list[SizeResults] = []
    built: EnvsBuilt | None = None
    interrupted = False
    for comparison in comparisons:
        try:
            interrupted = _run_comparison(comparison)
        except FaultError:
            if not groups:
                raise
        built = built or comparison.built
        groups += comparison.groups()
        if interrupted or comparison.hopeless:
            break
    return _report(settings, groups, built, interrupted)


def _run_comparison(comparison: Comparison) -> bool:
    """Run it and close its candidates; returns whether Ctrl-C was pressed."""
    try:
        comparison.run()
    except KeyboardInterrupt:
        _close(comparison, INTERRUPTED_CLOSE_SECONDS)
        return True
    except BaseException:
        _close(comparison)
        raise
    return _close(comparison)


def _close(comparison: Comparison, timeout: float = 10.0) -> bool:
    """Close its candidates; returns whether Ctrl-C was pressed.

    Ctrl-C ends them at once; what was measured is kept.
    """
    try:
        comparison.close(timeout)
    except KeyboardInterrupt:
        comparison.close(0.0)
        return True
    return False


def _report(
    settings: BenchSettings,
    groups: list[SizeResults],
    built: EnvsBuilt | None,
    interrupted: bool,
) -> BenchReport:
    there, missing = peers(settings.against)
    agents = built.agents if built else ""
    left_out = [peer for peer in there if not peer.candidates_for(agents)]
    recommendation = None
    if built is not None:
        recommendation = recommend(
            groups,
            built.expression,
            built.import_line,
            settings.kwargs,
            "make_multi" if agents else "make",
        )
    return BenchReport(
        settings,
        tuple(groups),
        tuple(missing),
        recommendation,
        built.observation_space if built else "",
        built.action_space if built else "",
        machine.facts(),
        machine.versions(peer.name for peer in there if peer not in left_out),
        interrupted,
        agents,
        tuple(peer.name for peer in left_out),
    )
