"""The sites of a cluster as the driver sees them: started, called, lost, started again.

call ──► answer                       generation and version are compared
     ──► SiteGone, or too late ──►    Fault(kind="node")
                                      "raise": the error · "restart": a new site
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, perf_counter, sleep
from typing import Any

from corral.cluster.engine import NO_PARTS, Engine, Link, Parts, SiteGone
from corral.cluster.room import wait_for_cpus
from corral.cluster.shipping import check_versions, opened, parcel, versions
from corral.cluster.site import Answer
from corral.engine.faults.report import one_error_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.worker.serialization import Found
from corral.errors import ClusterError, CorralError, Fault, NodeLost, OrderError
from corral.rollouts.episode_run import Episode

# Seconds for a host to start on a node with free CPUs.
START_SECONDS = 60.0
# Seconds for a site to close its envs by itself.
CLOSE_SECONDS = 5.0
KEPT_FAULTS = 100


@dataclass(slots=True)
class LinkOptions:
    """How the sites of a cluster are started, and what follows if one is lost.

    Attributes:
        packages: Whose versions are compared.
        timeout: Seconds for a call; None for no limit.
    """

    cpus: int
    packages: tuple[str, ...]
    found: Found
    timeout: float | None
    restarts: bool
    budget: RestartBudget


@dataclass(slots=True)
class SiteLink:
    """One site.

    Attributes:
        generation: How many hosts it had before this one.
        sent: By publisher: edition and version that the site has.
        calls, busy_seconds: How many calls were answered, and how long they took.
    """

    number: int
    link: Link
    generation: int = 0
    sent: dict[int, tuple[int, int]] | None = None
    calls: int = 0
    busy_seconds: float = 0.0

    @property
    def node(self) -> str:
        """The name of its node."""
        return "an unknown node" if self.link.node is None else self.link.node.name


# What builds the site of a host: (number, generation) -> method and arguments.
Builder = Callable[[int, int], tuple[str, tuple[Any, ...]]]


class Links:
    """The links to all sites.

    Args:
        engine: runs them.
        options: for all of them.
        build: the call that builds a site.
    """

    def __init__(self, engine: Engine, options: LinkOptions, build: Builder) -> None:
        self.engine, self.options, self.build = engine, options, build
        self.sites: list[SiteLink] = []
        self.count = 0
        self.waiting_seconds = 0.0
        self.faults: deque[Fault] = deque(maxlen=KEPT_FAULTS)
        self.on_restart: Callable[[Fault], None] | None = None
        # By site: the call that is not answered, and when it began.
        self._pending: dict[int, tuple[Any, float, str]] = {}
        # By lost site: its next host, which starts while others are waited for.
        self._hosts: dict[int, Link] = {}

    # Starting -------------------------------------------------------------------------

    def start(self, count: int) -> list[Any]:
        """Start this many sites; returns what building them returned."""
        self.sites = [SiteLink(n, self._host(n)) for n in range(count)]
        return self._built(range(count))

    def _host(self, number: int, node: str | None = None) -> Link:
        cpus, limit = self.options.cpus, self.options.timeout
        return self.engine.start(f"site {number}", cpus, limit, node)

    def compare(self, link: Link) -> None:
        """Compare the versions of a host that has no site."""
        self.sites = [SiteLink(0, link)]
        self._compare([0])

    def _built(self, numbers: Sequence[int]) -> list[Any]:
        """Compare versions, then build; raises what went wrong there."""
        sites = self.sites
        self._compare(numbers)
        for n in numbers:
            sites[n].sent = {}
            method, args = self.build(n, sites[n].generation)
            self.send(n, method, args)
        return [answer.value for answer in self.answers(numbers)]

    def _compare(self, numbers: Sequence[int]) -> None:
        engine, sites = self.engine, self.sites
        packages = self.options.packages
        asked = {n: engine.call(sites[n].link, "about", packages) for n in numbers}
        found = self._first_answers(asked)
        ours = versions(packages)
        check_versions(ours, {sites[n].node: said for n, said in found.items()})

    def _first_answers(self, asked: dict[int, Any]) -> dict[int, Any]:
        """Where the hosts are, and their versions."""
        engine, waiting, found = self.engine, dict(asked), {}
        deadline = monotonic() + START_SECONDS
        while waiting:
            ready = engine.ready([*waiting.values()], max(0.0, deadline - monotonic()))
            if not ready:
                raise ClusterError(
                    f"site {min(waiting)} did not start within {START_SECONDS:g} s: no "
                    f"node has {self.options.cpus} free CPUs, or it cannot start "
                    "Python. See: ray status"
                )
            for number in [n for n, call in waiting.items() if call in ready]:
                try:
                    node, said = engine.result(waiting.pop(number))
                except SiteGone as gone:
                    if self.sites[number].generation:  # on a node that is being lost
                        fault = self._lost(number, "start", str(gone))
                        raise one_error_for([fault]) from None
                    raise ClusterError(
                        f"site {number} could not start: {gone}"
                    ) from None
                self.sites[number].link.node, found[number] = node, said
        return found

    def answers(self, numbers: Sequence[int]) -> list[Answer]:
        """Answers to calls that no site may fail at."""
        found = self.gather(numbers, limited=False)
        lost = [one for one in found.values() if isinstance(one, Fault)]
        if lost:
            raise one_error_for(lost)
        ordered = (found[number] for number in numbers)
        return [one for one in ordered if isinstance(one, Answer)]

    # Calling --------------------------------------------------------------------------

    def send(
        self, number: int, method: str, args: tuple[Any, ...], parts: Parts = NO_PARTS
    ) -> None:
        """Call a method of a site; do not wait."""
        if number in self._pending:
            raise OrderError(f"site {number} has a call that is not answered")
        packed = parcel(args, self.options.found)
        call = self.engine.call(self.sites[number].link, "call", method, packed, *parts)
        self._pending[number] = call, perf_counter(), method

    def gather(
        self, numbers: Sequence[int], limited: bool = True, first: bool = False
    ) -> dict[int, Answer | Fault]:
        """Wait for sites; a Fault for each that was lost or is too late.

        Args:
            numbers: of the sites.
            limited: whether the time limit of calls counts.
            first: wait for the first of them only.

        Raises:
            FaultError: an env or a policy failed at a site.
        """
        found: dict[int, Answer | Fault] = {}
        limit = self.options.timeout if limited else None
        while waiting := [n for n in numbers if n in self._pending]:
            left = None
            if limit is not None:
                oldest = min(self._pending[n][1] for n in waiting)
                left = max(0.0, oldest + limit - perf_counter())
            calls = {n: self._pending[n][0] for n in waiting}
            began = perf_counter()
            ready = self.engine.ready([*calls.values()], left)
            self.waiting_seconds += perf_counter() - began
            late = [] if ready else waiting
            for number in [n for n in waiting if calls[n] in ready]:
                found[number] = self._answer(number)
            for number in late:
                if perf_counter() - self._pending[number][1] >= (limit or 0.0):
                    found[number] = self._late(number, limit or 0.0)
            if first and found:
                break
        failed = [
            one for one in found.values() if isinstance(one, Answer) and one.faults
        ]
        if failed:
            raise self._failure(failed, found)
        return found

    def _answer(self, number: int) -> Answer | Fault:
        site, (call, began, method) = self.sites[number], self._pending.pop(number)
        try:
            owned = method in ("run_episodes", "map")
            answer: Answer = opened(self.engine.result(call), owned)
        except SiteGone as gone:
            return self._lost(number, method, str(gone))
        if answer.generation != site.generation:
            raise OrderError(
                f"site {number} answered as generation {answer.generation}; expected "
                f"{site.generation}"
            )
        site.calls += 1
        site.busy_seconds += perf_counter() - began
        answer.faults = tuple(self._placed(one, site) for one in answer.faults)
        for fault in answer.restarted:
            self._note(fault)
        return answer

    def _late(self, number: int, limit: float) -> Fault:
        method = self._pending.pop(number)[2]
        self.engine.end(self.sites[number].link)
        text = f"{method} took longer than fragment_timeout, {limit:g} s, and was ended"
        return self._lost(number, method, text)

    def _lost(self, number: int, method: str, text: str) -> Fault:
        site = self.sites[number]
        spent = self.options.budget.count(number)
        if self.options.restarts and number not in self._hosts:
            self._hosts[number] = self._host(number)
        return Fault(
            *("node", method),
            site=number,
            node=site.node,
            error_text=text,
            restarts=spent,
        )

    @staticmethod
    def _placed(fault: Fault, site: SiteLink) -> Fault:
        return replace(fault, node=site.node, site=site.number)

    def _failure(
        self, failed: Sequence[Answer], found: dict[int, Answer | Fault]
    ) -> CorralError:
        """The error of the first site that failed; with the episodes of all."""
        error = one_error_for([fault for one in failed for fault in one.faults])
        done: dict[int, Any] = {}
        for one in found.values():
            value = one.value if isinstance(one, Answer) else ()
            some = value.values() if isinstance(value, dict) else value
            if isinstance(value, (dict, tuple)):
                done |= {each.item: each for each in some if isinstance(each, Episode)}
        error.episodes = tuple(done[number] for number in sorted(done))
        return error

    def call_now(self, number: int, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of one site, and wait."""
        self.send(number, method, args)
        return self.answers([number])[0].value

    def dismiss(self) -> None:
        """End the crews of a map; never raises."""
        self.drain()
        with suppress(Exception):  # a site may be gone
            for site in self.sites:
                self.engine.call(site.link, "dismiss")

    # Losing ---------------------------------------------------------------------------

    def restart(self, fault: Fault) -> None:
        """Start a lost site again; raises if that is not asked for, or not allowed.

        One that is lost while it starts is started once more.
        """
        while True:
            number = fault.site
            assert number is not None, "a site was lost"
            budget, restarts = self.options.budget, self.options.restarts
            delay = budget.spend(number, monotonic()) if restarts else None
            if delay is None:
                self._end_spare(number)
                raise one_error_for([replace(fault, gave_up=restarts)])
            sleep(delay)
            self._note(fault)
            try:
                self.move(number)
                return
            except NodeLost as error:
                fault = error.fault

    def relocate(self, number: int, node: str) -> None:
        """Move a site to a node; one that is lost on the way is started anywhere."""
        try:
            self.move(number, node)
        except NodeLost as error:
            self.restart(error.fault)

    def move(self, number: int, node: str | None = None) -> None:
        """Start a site anew, on another node if named; its slots begin again."""
        old = self.sites[number]
        self.engine.end(old.link)
        if node is not None:
            self._end_spare(number)
        host = self._hosts.pop(number, None) or self._host(number, node)
        fresh = SiteLink(number, host, old.generation + 1)
        fresh.calls, fresh.busy_seconds = old.calls, old.busy_seconds
        self.sites[number] = fresh
        self._built([number])

    def _end_spare(self, number: int) -> None:
        """End the next host of a lost site, which nothing will use."""
        if number in self._hosts:
            self.engine.end(self._hosts.pop(number))

    def _note(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.count += 1
        if self.on_restart is not None:
            self.on_restart(fault)

    # The end --------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for calls that Ctrl-C has left at work, and drop their answers."""
        with suppress(CorralError):
            self.gather([*self._pending])

    def close(self) -> None:
        """Let sites close their envs, then end them; never raises."""
        idle = [site for site in self.sites if site.number not in self._pending]
        with suppress(Exception):  # it may be gone
            calls = [self.engine.call(site.link, "close") for site in idle]
            deadline = monotonic() + CLOSE_SECONDS
            while calls and monotonic() < deadline:
                done = self.engine.ready(calls, max(0.0, deadline - monotonic()))
                calls = [call for call in calls if call not in done]
        with suppress(Exception):  # Ray may be disconnected
            expected = self._free_without()
        for number in [*self._hosts]:
            self._end_spare(number)
        for site in self.sites:
            self.engine.end(site.link)
        with suppress(Exception):
            wait_for_cpus(self.engine, expected)
        self.sites, self._pending = [], {}

    def _free_without(self) -> dict[str, float]:
        """Free CPUs of the nodes when the sites have given theirs back."""
        free = {node.id: node.free for node in self.engine.nodes()}
        for site in self.sites:
            if site.link.node is not None and site.link.node.id in free:
                free[site.link.node.id] += self.options.cpus
        return free
