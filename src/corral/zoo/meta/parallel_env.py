"""Envs in workers behind pipes' verbs: `remotes[i].send(...)`, `remotes[i].recv()`.

    workers.remotes[i].send(("reset", {"task": task}))    ──►  observation
    workers.remotes[i].send(("step", action))             ──►  obs, reward, done, info

With `tagged`, answers are pairs, as some forks have them: ("obs", observation),
("transition", (obs, reward, done, info)), ("attr", value), ("done", None).

Underneath is a `corral.Pool`: `send` returns at once, all envs run at the same time,
and a worker that raises, dies or hangs makes `recv` raise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.core import NO_TASK
from corral.engine.pool import Pool
from corral.errors import OptionError, OrderError
from corral.rollouts.task_tables import TaskTable


class Remote:
    """One env of a `ParallelEnvManager`."""

    def __init__(self, pool: Pool, slot: int, tagged: bool) -> None:
        self._pool = pool
        self._slot = slot
        self._tagged = tagged
        # Answers that are there already, before those that the env still owes.
        self._answers: list[Any] = []
        self._pending = ""

    def send(self, message: Any) -> None:
        """Send a command and its argument: reset, step, get_attr, seed, close."""
        pair = isinstance(message, (tuple, list)) and len(message) == 2
        if not pair or message[0] not in COMMANDS:
            raise OptionError(
                f"env {self._slot} was sent {message!r:.80}; send a command and its "
                f"argument, e.g. ('reset', task). Commands: {', '.join(COMMANDS)}"
            )
        command, argument = message
        if self._pending:
            raise OrderError(
                f"env {self._slot} was sent {command!r} before the answer to "
                f"{self._pending!r} was received; call recv() in between"
            )
        getattr(self, f"_send_{command}")(argument)

    def recv(self) -> Any:
        """Return the answer to the last command; wait for it."""
        kind, answer = self._answers.pop(0) if self._answers else self._received()
        return (kind, answer) if self._tagged else answer

    def _received(self) -> tuple[str, Any]:
        pending, self._pending = self._pending, ""
        if not pending:
            raise OrderError(f"env {self._slot} was not sent any command")
        step = self._pool.recv(slots=[self._slot])
        observation = step.obs[0]
        if pending == "reset":
            return "obs", observation
        info = step.infos.of(0) if step.infos else {}
        if step.truncated[0] and not step.terminated[0]:
            info = {**info, "TimeLimit.truncated": True}
        reward, done = float(step.reward[0]), bool(step.ended[0])
        return "transition", (observation, reward, done, info)

    def _send_reset(self, argument: Any) -> None:
        task = _keyword(argument, "task")
        tasks = [NO_TASK if task is None else task]
        self._pool.send_reset([self._slot], tasks=tasks)
        self._pending = "reset"

    def _send_step(self, argument: Any) -> None:
        actions = np.asarray(_keyword(argument, "action"))[None]
        self._pool.send(actions, [self._slot], autoreset="off")
        self._pending = "step"

    def _send_get_attr(self, argument: Any) -> None:
        name = _keyword(argument, "attr")
        self._answers.append(("attr", self._pool.get_attr(name, [self._slot])[0]))

    def _send_seed(self, argument: Any) -> None:
        seed = _keyword(argument, "seed")
        self._pool.send_reset([self._slot], seeds=[seed])
        self._pool.recv(slots=[self._slot])
        self._answers.append(("done", None if self._tagged else [seed]))

    def _send_close(self, _: Any = None) -> None:
        self._answers.append(("done", None))


def _keyword(argument: Any, name: str) -> Any:
    """The argument of a command, which may be a dict of keywords."""
    return argument.get(name) if isinstance(argument, dict) else argument


COMMANDS = ("reset", "step", "get_attr", "seed", "close")


class ParallelEnvManager:
    """Trial envs in worker processes; `remotes` has one entry per env.

    Args:
        pool: the envs; it is closed with the manager.
        table: their tasks.
        tagged: answer in pairs; see the module.
    """

    def __init__(
        self, pool: Pool, table: TaskTable | None = None, tagged: bool = False
    ) -> None:
        self.pool = pool
        self.num_workers = self.num_envs = pool.num_envs
        self.remotes = [Remote(pool, slot, tagged) for slot in range(pool.num_envs)]
        self.action_space = pool.spec.action_space
        self.observation_space = pool.spec.observation_space
        self.train_tasks = list(table.train) if table else []
        self.eval_tasks = list(table.evaluation) if table else []
        self.n_tasks = len(self.train_tasks) + len(self.eval_tasks) or None

    def __len__(self) -> int:
        return self.num_workers

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def __enter__(self) -> ParallelEnvManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.close()
