"""A fault saved to a file: a report to read, and all that a replay needs.

    report.txt     to read
    fault.json     the same for programs
    fault.pickle   the fault itself, for `corral.replay`
    signature      of fault.pickle, by the user's key

The file is a zip, readable and writable by its owner alone. Unpickling runs code, so
what this user has not signed is not unpickled, unless it is trusted.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import shlex
import sys
import zipfile
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import cloudpickle

from corral.engine.faults import signatures
from corral.engine.faults.report import message_for, shortened
from corral.engine.whole_file import replacing
from corral.errors import EpisodeRecord, Fault, OptionError

VERSION = 1
# Characters of one action in the report; the payload has all of it.
MAX_ACTION_CHARACTERS = 2_000
REPORT, TABLE, PAYLOAD = "report.txt", "fault.json", "fault.pickle"
SIGNATURE = "signature"


def save(fault: Fault, path: str | os.PathLike[str]) -> None:
    """Write the report; a file that is there already is replaced when it is whole."""
    fault = _packed(fault)
    with replacing(Path(path), mode=0o600) as file:
        _write(fault, file)


def _write(fault: Fault, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(REPORT, report_of(fault))
        archive.writestr(TABLE, json.dumps(_table(fault), indent=2) + "\n")
        data = cloudpickle.dumps(fault)
        archive.writestr(PAYLOAD, data)
        try:
            archive.writestr(SIGNATURE, signatures.sign(signatures.FAULT_FILE, data))
        except signatures.KeyUnusable as error:
            archive.comment = f"not signed: {error}".encode()[:1000]


def load(path: str | os.PathLike[str], trust: bool = False) -> Fault:
    """Read a fault that this user has signed, or any with `trust`."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                version = json.loads(archive.read(TABLE))["version"]
                data, signature = archive.read(PAYLOAD), None
                if SIGNATURE in archive.namelist():
                    signature = archive.read(SIGNATURE).decode(errors="replace")
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
            raise OptionError(f"{path} is not a saved fault: {error}") from error
    if version != VERSION:
        raise OptionError(
            f"{path} has format {version}, and this version of Corral reads format "
            f"{VERSION}. You can still read its report: {_unzip(path)}"
        )
    doubted = "" if trust else signatures.doubt(signatures.FAULT_FILE, data, signature)
    if doubted:
        look = f"Read its report without running it: {_unzip(path)}"
        runs = "A replay runs code from it"
        raise signatures.refusal(str(path), doubted, runs, look)
    try:
        fault: Fault = pickle.loads(data)
    except Exception as error:
        raise OptionError(
            f"{path} cannot be opened here: {type(error).__name__}: {error}. Were its "
            "actions, task or options made by a module that this program cannot import?"
        ) from error
    return _completed(fault)


def _completed(fault: Fault) -> Fault:
    """The fault with defaults in fields that are newer than its file."""
    for part in (fault, getattr(fault, "episode", None)):
        for entry in () if part is None else fields(part):
            if not hasattr(part, entry.name):
                # Frozen, but no other code has it yet.
                object.__setattr__(part, entry.name, entry.default)
    return fault


def _unzip(path: str | os.PathLike[str]) -> str:
    return shlex.join(["unzip", "-p", os.fspath(path), REPORT])


# What is written ----------------------------------------------------------------------


def report_of(fault: Fault) -> str:
    """All that is known, to be read."""
    episode = fault.episode
    notes, actions = (episode.notes, episode.actions) if episode else ((), ())
    shown = (shortened(repr(action), MAX_ACTION_CHARACTERS) for action in actions)
    sections = {
        "Actions of the episode": "\n".join(
            f"{step:6}  {action}" for step, action in enumerate(shown, 1)
        ),
        "Traceback": fault.traceback,
        "Stack": fault.stack,
        "Output": fault.output,
    }
    parts = [f"{title}:\n{text.rstrip()}" for title, text in sections.items() if text]
    noted = [f"Note: {note}." for note in notes]
    said = message_for(fault, error="")
    return "\n\n".join([said, *noted, *parts]) + "\n"


def _table(fault: Fault) -> dict[str, Any]:
    left_out = ("episode", "exception")
    names = [entry.name for entry in fields(fault) if entry.name not in left_out]
    return {
        "version": VERSION,
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "argv": _plain(list(getattr(sys, "argv", []))),
        "replayable": fault.episode is not None and not fault.episode.missing,
        **{name: _plain(getattr(fault, name)) for name in names},
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return shortened(repr(value))


def _packed(fault: Fault) -> Fault:
    """The fault with all that can be pickled, and the reason why the rest is gone."""
    # Its own class may be found in the worker alone; type, text and traceback stay.
    fault = replace(fault, exception=None)
    if fault.episode is not None:
        fault = replace(fault, episode=_packed_episode(fault.episode))
    try:
        cloudpickle.dumps(fault)
    except Exception as error:
        return _fault_as_text(fault, f"{type(error).__name__}: {error}")
    return fault


def _packed_episode(episode: EpisodeRecord) -> EpisodeRecord:
    kit = episode.kit.packed()
    return replace(
        episode,
        kit=kit,
        missing=episode.missing or kit.missing,
        beside=_packed_beside(episode.beside, episode.kit, kit),
    )


def _packed_beside(beside: EpisodeRecord | None, kit: Any, packed: Any) -> Any:
    """The neighbours, one beside the other; without those that cannot be pickled."""
    if beside is None:
        return None
    others = _packed_beside(beside.beside, kit, packed)
    kit = beside.kit.packed_like(kit, packed)
    beside = replace(beside, kit=kit, beside=others)
    try:
        cloudpickle.dumps(beside)
    except Exception:  # its task, say
        return others
    return beside


def _fault_as_text(fault: Fault, why: str) -> Fault:
    """The fault in words where it cannot be had in values."""
    episode = fault.episode
    if episode is not None:
        why = f"its actions, task or options cannot be pickled ({why})"
        episode = EpisodeRecord(episode.kit, None, missing=why, notes=episode.notes)
    return replace(
        fault,
        episode=episode,
        task=None if fault.task is None else repr(fault.task),
        options=None if fault.options is None else {"shown": repr(fault.options)},
        last_actions=tuple(repr(action) for action in fault.last_actions),
    )
