"""The whole benchmark: one heat per number of envs, whatever is found kept."""

from __future__ import annotations

import os
from collections.abc import Sequence

from corral.engine.executors import usable_cores
from corral.errors import FaultError, OptionError
from corral.tools.bench.candidates import check_backends, peers, ways_of
from corral.tools.bench.comparison import Heat, Watcher
from corral.tools.bench.messages import Built
from corral.tools.bench.recommend import recommend
from corral.tools.bench.results import Group, Report, Settings
from corral.tools.bench.simulated_policy import iterations_for
from corral.train.run import machine

IMPATIENT = 2.0
"""Seconds for lanes to close when the caller has pressed Ctrl-C."""


def run(settings: Settings, watcher: Watcher) -> Report:
    """Measure everything that was asked for.

    Ctrl-C ends it early, with what is known by then. Raises if the env cannot be
    found or built at all.
    """
    if os.name != "posix":
        raise OptionError(
            "every candidate is measured in a process of its own, started in a way "
            f"that Linux and macOS have and this system ({os.name}) has not"
        )
    check_backends(settings.backends or ())
    there, _ = peers(settings.against)
    policy_iterations = iterations_for(settings.policy_ms * 1e-3)
    heats = [
        Heat(
            settings,
            num_envs,
            cores=usable_cores(),
            peers=there,
            policy_iterations=policy_iterations,
            watcher=watcher,
        )
        for num_envs in settings.num_envs
    ]
    watcher.expect(sum(heat.expected_turns() for heat in heats))
    return _run_heats(settings, heats)


def _run_heats(settings: Settings, heats: Sequence[Heat]) -> Report:
    groups: list[Group] = []
    built: Built | None = None
    interrupted = False
    for heat in heats:
        try:
            interrupted = _run_heat(heat)
        except FaultError:
            if not groups:
                raise
        built = built or heat.built
        group = heat.group()
        groups += [group] if group is not None else []
        if interrupted or heat.hopeless:
            break
    return _report(settings, groups, built, interrupted)


def _run_heat(heat: Heat) -> bool:
    """Run it and end its lanes; returns whether the caller wants no more."""
    try:
        heat.run()
    except KeyboardInterrupt:
        _close(heat, IMPATIENT)
        return True
    except BaseException:
        _close(heat)
        raise
    return _close(heat)


def _close(heat: Heat, patience: float = 10.0) -> bool:
    """End its lanes; Ctrl-C meanwhile, which it returns, ends them at once.

    What was measured is not lost by it.
    """
    try:
        heat.close(patience)
    except KeyboardInterrupt:
        heat.close(0.0)
        return True
    return False


def _report(
    settings: Settings, groups: list[Group], built: Built | None, interrupted: bool
) -> Report:
    there, missing = peers(settings.against)
    agents = built.agents if built else ""
    left_out = [peer for peer in there if not ways_of(peer, agents)]
    recommendation = None
    if built is not None:
        recommendation = recommend(
            groups,
            built.expression,
            built.import_line,
            settings.kwargs,
            "make_multi" if agents else "make",
        )
    return Report(
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
