"""Sites as Ray actors; the only file that imports ray.

Ray places actors, moves objects and notices dead nodes. It restarts nothing: an actor
that is gone is a `SiteGone`, and what follows is decided in `links`. An actor ends with
its raylet, and its workers end with it, so that a dead node leaves no process behind.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from corral.cluster.engine import Link, Node, SiteGone
from corral.cluster.host import UNLIMITED, SiteHost
from corral.cluster.kill_timer import killed_after
from corral.cluster.pieces import count_for, cut, joined, size_of
from corral.cluster.shipping import Parcel
from corral.engine.executors.assign import usable_cores
from corral.errors import ClusterError, OptionError, requires

with requires("a cluster needs Ray: pip install 'corral[ray]' ({error})"):
    import ray
    from ray import exceptions
    from ray._private import services
    from ray._private.authentication import authentication_token_setup as token_setup
    from ray._private.authentication.authentication_utils import is_token_auth_enabled
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Seconds for a connection, and for the head node's first answer.
CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 6.0
# An actor ends by itself so many seconds after the driver noticed that it is late.
GRACE_SECONDS = 0.2
# How often an actor looks for its raylet, where the system cannot tell it.
WATCH_SECONDS = 0.2
INSTALL = "Install the same version of corral, and of what it needs, on every node"

# The engines of this process that use the connection, if one of them has made it.
_users: set[int] = set()


@dataclass(slots=True)
class _Actor:
    """A site's actor, and how many bytes it answered last, by method."""

    handle: Any
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Call:
    """A call of an actor; its answer is in one piece or in many."""

    actor: _Actor
    method: str
    refs: list[Any]


class RayEngine:
    """Runs sites on a Ray cluster.

    Args:
        address: "auto", "local" or "HOST:PORT".
        working_dir: a folder that every node gets.

    Raises:
        ClusterError: there is no cluster, or it refuses this process.
    """

    def __init__(self, address: str, working_dir: str | None = None) -> None:
        self._working_dir = working_dir
        if working_dir is not None and not os.path.isdir(working_dir):
            raise OptionError(f"working_dir is {working_dir!r}, which is not a folder")
        if not ray.is_initialized():
            _users.clear()
            _connect(address, working_dir)
            _users.add(id(self))
        elif working_dir is not None:
            raise OptionError(
                "working_dir is sent when Ray is connected to, and it was before: give "
                'it to ray.init(runtime_env={"working_dir": ...}) instead'
            )
        else:
            _check_connection(address)
            if _users:  # otherwise the caller has connected, and disconnects
                _users.add(id(self))
        self.address: str = ray.get_runtime_context().gcs_address

    # Nodes ----------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """The nodes that are alive and have CPUs."""
        alive = [one for one in ray.nodes() if one["Alive"]]
        free = ray._private.state.available_resources_per_node()
        hosts = Counter(one["NodeManagerHostname"] for one in alive)
        found = []
        for one in alive:
            key, host = one["NodeID"], one["NodeManagerHostname"]
            name = host if hosts[host] == 1 else f"{host}#{key[:6]}"
            cpus = one["Resources"].get("CPU", 0.0)
            if cpus:
                found.append(Node(key, name, cpus, free.get(key, {}).get("CPU", 0.0)))
        return sorted(found, key=lambda node: node.id)

    # Calls ----------------------------------------------------------------------------

    def put(self, value: Any) -> Any:
        """Put a value into the object store; a node fetches it once."""
        return ray.put(value)

    def start(
        self, name: str, cpus: int, limit: float | None, node: str | None = None
    ) -> Link:
        """Start an actor; do not wait for it."""
        options: dict[str, Any] = {
            "num_cpus": cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        if node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, False)
        actor = ray.remote(SiteActor).options(**options)
        has_files = self._working_dir is not None
        return Link(_Actor(actor.remote(name, cpus, limit, has_files)))

    def call(self, link: Link, method: str, *args: Any) -> _Call:
        """Call a method of an actor; do not wait."""
        actor: _Actor = link.handle
        called = getattr(actor.handle, method)
        if method != "call":
            return _Call(actor, method, [called.remote(*args)])
        named = str(args[0])
        count = count_for(actor.sizes.get(named, 0))
        refs = called.options(num_returns=count).remote(count, *args)
        return _Call(actor, named, refs if count > 1 else [refs])

    def ready(self, calls: Sequence[_Call], timeout: float | None) -> list[_Call]:
        """Wait for the first of these calls; then take all that are ready."""
        first = {call.refs[0]: call for call in calls}  # the others come with it
        done, _ = ray.wait([*first], num_returns=1, timeout=timeout)
        if done and len(first) > 1:
            done, _ = ray.wait([*first], num_returns=len(first), timeout=0)
        return [first[ref] for ref in done]

    def result(self, call: _Call) -> Any:
        """What a call returned."""
        try:
            found = ray.get(call.refs)
        except exceptions.RayTaskError as error:
            raise _users_error(error) from None
        except exceptions.RayError as error:
            raise SiteGone(_reason(error)) from None
        if call.method == "about":
            key, said = found[0]
            return {one.id: one for one in self.nodes()}[key], said
        if not isinstance(found[0], (Parcel, bytes)):  # of `close`
            return found[0]
        packed = joined(found)
        call.actor.sizes[call.method] = size_of(packed)
        return packed

    # The end --------------------------------------------------------------------------

    def end(self, link: Link) -> None:
        """End an actor at once."""
        with suppress(Exception):  # it may be gone
            ray.kill(link.handle.handle, no_restart=True)

    def close(self) -> None:
        """Disconnect, if Corral has connected and nothing else of it uses Ray."""
        if id(self) in _users:
            _users.discard(id(self))
            if not _users:
                with suppress(Exception):
                    ray.shutdown()


class SiteActor:
    """The host of a site, in a process of Ray's.

    Args:
        name: how Ray's log lines name it.
        cpus: of the site.
        limit: seconds for a call.
        has_files: whether the working directory was sent along.
    """

    def __init__(
        self, name: str, cpus: int, limit: float | None, has_files: bool
    ) -> None:
        end_with(os.getppid())
        self._name, self._limit = f"{name}, node {socket.gethostname()}", limit
        self._host = SiteHost(cpus, os.getcwd() if has_files else None)

    def about(self, packages: Sequence[str]) -> tuple[str, dict[str, str]]:
        """The node, and versions of packages there."""
        return ray.get_runtime_context().get_node_id(), self._host.about(packages)

    def call(
        self,
        pieces: int,
        method: str,
        args: Parcel,
        policy: Any = None,
        weights: Any = None,
    ) -> Any:
        """Call a method of the site; returns its answer in so many pieces."""
        # `ray.kill` asks a process to end, which one that was stopped does not answer:
        # Ray uses a signal after 5 s more.
        limit = None if method in UNLIMITED else self._limit
        with killed_after(limit and limit + GRACE_SECONDS):
            return cut(self._host.call(method, args, policy, weights), pieces)

    def dismiss(self) -> None:
        """End the crew of a map."""
        self._host.dismiss()

    def close(self) -> int:
        """Close the site's envs."""
        return self._host.close()

    def __repr__(self) -> str:
        return self._name


def end_with(process: int) -> None:
    """End this process when that one has ended, at once and whatever it is at."""
    if process == 1:  # it is gone already
        os._exit(1)

    def watch() -> None:
        try:
            descriptor = os.pidfd_open(process)
        except (AttributeError, OSError):  # not Linux, or an old one
            while os.getppid() == process:
                threading.Event().wait(WATCH_SECONDS)
        else:
            select.select([descriptor], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="raylet watcher", daemon=True).start()


# Connecting ---------------------------------------------------------------------------


def _connect(address: str, working_dir: str | None) -> None:
    """Connect to a running cluster, or start an embedded one for "local"."""
    sent = {} if working_dir is None else {"runtime_env": {"working_dir": working_dir}}
    if address == "local":
        cpus = usable_cores()
        _init(address="local", num_cpus=cpus, include_dashboard=False, **sent)
    else:
        _init(address=find_cluster(address), **sent)


def _init(**options: Any) -> None:
    try:
        with _own_handler(signal.SIGTERM):
            ray.init(logging_level="warning", log_to_driver=True, **options)
    except exceptions.AuthenticationError as error:
        raise _refused(options["address"], error) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        text = str(error).strip()
        raise ClusterError(
            f"the cluster at {options['address']} refused this process: {text}"
        ) from None


@contextmanager
def _own_handler(number: int) -> Iterator[None]:
    """Ray replaces the handler of the caller's program; put it back."""
    before = signal.getsignal(number)
    yield
    main = threading.current_thread() is threading.main_thread()
    if main and before not in (signal.SIG_DFL, None):
        signal.signal(number, before)


def _check_connection(address: str) -> None:
    """Refuse an address that is not the one to which this process is connected."""
    if address == "auto":
        return
    ours = ray.get_runtime_context().gcs_address
    if address == "local":
        same = bool(ray._private.worker.global_worker.node.head)
    else:
        same = not _places(address).isdisjoint(_places(ours))
    if not same:
        raise OptionError(
            f"address is {address!r}, and this process is connected to {ours}: use "
            'address="auto", or close what is connected first (ray.shutdown())'
        )


def _places(address: str) -> set[tuple[str, int]]:
    """IP addresses and port; none if the name is not known."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port))
    except (OSError, ValueError):
        return set()
    return {(str(one[4][0]), int(port)) for one in found}


def find_cluster(address: str) -> str:
    """The address of a cluster that answers.

    Raises:
        ClusterError: none does, within seconds.
    """
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named.startswith("ray://"):
        raise ClusterError(
            f"address is {named!r}, of a Ray client: the driver receives rollouts, "
            'so run it on a node of the cluster, with address="auto"'
        )
    started = 'start one with `ray start --head`, or try it out with "local"'
    try:
        found: str | None = services.canonicalize_bootstrap_address(address)
    except ConnectionError:
        found = None
    except ValueError as error:
        raise OptionError(f"address is {address!r}: {error}") from None
    if found is None:
        raise ClusterError(f"no Ray cluster is running on this machine; {started}")
    if address == "auto" and not named:
        _use_token()
    host, _, port = found.rpartition(":")
    if not port.isdecimal():
        raise OptionError(f'address is {address!r}; use "auto", "local" or "HOST:PORT"')
    given = "" if address == found else f" (address {address!r})"
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster is at {found}{given}: {error}; {started}"
        ) from None
    _check_answer(found)
    return found


def _use_token() -> None:
    """Use the token of this machine, if there is one and no mode is set.

    `ray.init()` does so too, for a cluster that it finds by itself.
    """
    enable = getattr(token_setup, "maybe_enable_token_auth_if_token_available", None)
    if enable is not None:  # Ray 2.60 on
        enable(warn_if_disabled=False)


def _check_answer(address: str) -> None:
    """Ask the head node, in a thread: Ray itself would ask again for minutes."""
    answer: list[BaseException | None] = []

    def ask() -> None:
        try:
            ray._raylet.GcsClient(address=address)
            answer.append(None)
        except BaseException as error:
            answer.append(error)

    thread = threading.Thread(target=ask, name="ask the cluster", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not answer:
        raise ClusterError(
            f"{address} does not answer as a Ray cluster does within "
            f"{ANSWER_SECONDS:g} s: another program may be at that port, or the "
            "cluster has a token and RAY_AUTH_MODE=token is not set here"
        )
    if answer[0] is not None:
        raise _refused(address, answer[0]) from None


def _refused(address: str, error: BaseException) -> ClusterError:
    said = " ".join(str(error).split()).partition(". ")[0]
    return ClusterError(
        f"the cluster at {address} refused this process: {said}. If it has a token, "
        "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) here to "
        "the token of its nodes"
    )


def health_checks() -> float:
    """Seconds until the cluster notices a dead node, by its settings."""
    config = ray._raylet.Config
    times = config.health_check_failure_threshold()
    return float(config.health_check_period_ms() * times) / 1000.0


def has_token() -> bool:
    """Whether processes need a token to connect."""
    return bool(is_token_auth_enabled())


# Errors -------------------------------------------------------------------------------


def _reason(error: exceptions.RayError) -> str:
    """Why an actor is gone, in a line."""
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return f"its working_dir could not be set up: {_line(error)}"
    if isinstance(error, exceptions.NodeDiedError):
        return "its node was lost"
    text = str(error)
    if "failed to import on the worker" in text:
        said = [line for line in text.splitlines() if "Error: " in line]
        return f"Corral cannot be imported there: {said[-1].strip()}. {INSTALL}"
    if "creation task" in text:
        return f"its process could not start: {_line(error)}"
    if "node" in text and ("dead" in text or "died" in text or "terminated" in text):
        return "its node was lost, or its process was ended"
    return "its process has ended"


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _users_error(error: exceptions.RayTaskError) -> SiteGone:
    """What was raised in an actor, outside all calls of a site."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, ImportError) or "ModuleNotFoundError" in str(error):
        return SiteGone(f"it cannot be imported there: {_line(error)}. {INSTALL}")
    return SiteGone(_line(error))
