"""What runs at the other end of a link: the process that has a site, or a crew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from corral.cluster.shipping import Parcel, importable_with, opened, parcel, versions
from corral.cluster.site import Answer, Site, SiteOrders, SiteSetup, faults_of, placed
from corral.engine.crew import Crew, CrewOptions
from corral.engine.worker.letters import for_travel
from corral.errors import ClusterError, Fault, FaultError

# What starts a site or a crew, and may take as long as its envs need.
UNLIMITED = ("build", "hire")


class SiteHost:
    """Builds a site, or a crew, and calls it.

    Args:
        cpus: of the site.
        working_dir: where modules are that travelled as files.
    """

    def __init__(self, cpus: int, working_dir: str | None = None) -> None:
        self._cpus = cpus
        self._found = importable_with(working_dir)
        self._site: Site | None = None
        self._crew: Crew | None = None
        self._function: Any = None
        self._generation = 0

    def about(self, packages: Sequence[str]) -> dict[str, str]:
        """Versions of packages here, before anything of the user's is opened."""
        return versions(packages)

    def call(
        self, method: str, args: Parcel, policy: Any = None, weights: Any = None
    ) -> Parcel:
        """Call a method of the site; returns a packed Answer, also for an error."""
        try:
            given = self._opened(args)
            if method in (*UNLIMITED, "map"):
                answer = Answer(getattr(self, f"_{method}")(*given), self._generation)
            else:
                answer = self._asked(method, given, policy, weights)
            return parcel(answer, self._found)
        except Exception as error:
            faults = tuple(map(for_travel, faults_of(error, method)))
            try:
                return parcel(Answer(None, self._generation, 0, faults), self._found)
            except Exception:  # something in the error cannot be sent
                plain = tuple(
                    replace(one, exception=None, episode=None) for one in faults
                )
                return parcel(Answer(None, self._generation, 0, plain), self._found)

    def _opened(self, args: Parcel) -> Any:
        try:
            return opened(args)
        except (ImportError, AttributeError) as error:
            raise ClusterError(
                f"what was sent cannot be imported there: {error}. Install its package "
                "on every node, or send its folder along: working_dir="
            ) from error

    def _asked(
        self, method: str, given: tuple[Any, ...], policy: Any, weights: Any
    ) -> Answer:
        assert self._site is not None, "build comes first"
        if given and isinstance(given[0], SiteOrders):
            given = (_completed(given[0], policy, weights), *given[1:])
        return self._site.answer(method, given)

    def _build(self, setup: SiteSetup) -> Any:
        self._generation = setup.generation
        try:
            self._site = Site(setup, self._cpus)
        except FaultError as error:
            error.faults = tuple(placed(one, setup) for one in faults_of(error, ""))
            raise
        return self._site.pool.spec, self._site.pool.layout

    # corral.map -----------------------------------------------------------------------

    def _hire(self, options: CrewOptions, function: Any, generation: int) -> None:
        """Start a crew for the items of one `corral.map`."""
        self._generation, self._function = generation, function
        if options.workers is None and options.backend != "serial":
            options = replace(options, workers=self._cpus)
        if self._crew is not None:
            self._crew.close()
        self._crew = Crew.__new__(Crew)
        self._crew._start(options)

    def _map(self, first: int, items: Sequence[Any]) -> list[Any]:
        """Map items, of which the first has this index in the whole map."""
        assert self._crew is not None, "hire comes first"
        try:
            found = self._crew.map(self._function, items)
        except FaultError as error:
            error.faults = tuple(
                _of_map(one, first) for one in error.faults or (error.fault,)
            )
            raise
        return [_of_map(one, first) for one in found]

    def dismiss(self) -> None:
        """End the crew."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    # The end --------------------------------------------------------------------------

    def close(self) -> int:
        """Close the site and the crew; returns the process."""
        self.dismiss()
        if self._site is not None:
            self._site.close()
        return os.getpid()


def _of_map(value: Any, first: int) -> Any:
    """A result; the index of a Fault's item is that in the whole map."""
    if isinstance(value, Fault) and value.item is not None:
        return replace(value, item=first + value.item)
    return value


def _completed(given: SiteOrders, policy: Any, weights: Any) -> SiteOrders:
    """The orders with their large parts."""
    orders = given.orders
    if policy is not None:
        orders = orders._replace(policy=orders.policy._replace(data=policy))
    if weights is not None and orders.weights is not None:
        orders = orders._replace(weights=orders.weights._replace(arrays=weights))
    return given._replace(orders=orders)
