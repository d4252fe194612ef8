"""The infos of one batch, in the form that the caller wants.

They come in two halves, the columns of the block and the remainders from the mailbox,
and are joined only on request: `to_vector` makes the dict of arrays and masks that
Gymnasium's vector envs return, `of` and `to_list` the dicts that the envs returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.readout import Column, ColumnRead, Mask, to_dicts


class Infos:
    """The infos of one batch; they own their memory.

    >>> infos = Infos([], {1: {"name": "ant"}})
    >>> infos.of(0), infos.of(1)
    ({}, {'name': 'ant'})
    >>> infos.to_list(2)
    [{}, {'name': 'ant'}]
    >>> infos.to_vector(2)
    {'name': array([None, 'ant'], dtype=object), '_name': array([False,  True])}

    Args:
        columns: what `Columns.read` returned for the batch.
        remainders: what came by mailbox, by position in the batch.
    """

    __slots__ = ("_columns", "_remainders")

    def __init__(
        self, columns: Sequence[ColumnRead], remainders: Mapping[int, dict[Any, Any]]
    ) -> None:
        self._columns = columns
        self._remainders = remainders

    def __bool__(self) -> bool:
        return bool(self._columns or self._remainders)

    def of(self, position: int) -> dict[Any, Any]:
        """One env's info, as it returned it."""
        info = _info_at(self._columns, position)
        _join(info, self._remainders.get(position, {}))
        return info

    def to_list(self, count: int) -> list[dict[Any, Any]]:
        """All infos of a batch of `count`, each as its env returned it."""
        whole: dict[str, NDArray[Any] | list[Any]] = {}
        plain, parts, gaps = bytearray(), [], []
        for column, values, mask in self._columns:
            absent = mask.tobytes().count(0)
            key, *deeper = column.path
            # Dicts are made in one go, so a few gaps are cheaper to cut out afterwards:
            # of many slots, some have just been reset and have smaller infos.
            if deeper or key in whole or 2 * absent > count:
                parts.append((column.path, _each(column, values), mask.tolist()))
                continue
            whole[key] = _each(column, values) if column.type is np.ndarray else values
            plain.append(column.plain)
            if absent:
                gaps.append((key, mask))
        infos = to_dicts(tuple(whole), tuple(whole.values()), bytes(plain), count)
        for key, mask in gaps:
            for position in np.flatnonzero(~mask).tolist():
                del infos[position][key]
        for path, each, there in parts:
            for position in compress(range(count), there):
                _put(infos[position], path, each[position])
        for position, remainder in self._remainders.items():
            _join(infos[position], remainder)
        return infos

    def to_vector(self, count: int) -> dict[Any, Any]:
        """All infos of a batch of `count` as Gymnasium's dict of arrays and masks.

        It equals what `VectorEnv._add_info` builds from the infos in the order of the
        batch: an entry's first value decides on the array, later ones are cast into
        it. Where such a cast fails Gymnasium raises; here the array becomes one of
        objects. The arrays are those of this object, not copies.
        """
        vector: dict[Any, Any] = {}
        if not self._remainders and self._all_placed(vector):
            return vector
        contested = self._contested()
        vector, apart = {}, []
        for read in self._columns:
            column, values, mask = read
            if column.path[0] in contested:
                apart.append(read)
            elif len(column.path) == 1:
                vector[column.path[0]], vector[f"_{column.path[0]}"] = values, mask
            else:
                _place(vector, column.path, values, mask)
        masks = (np.flatnonzero(mask).tolist() for _, _, mask in apart)
        for position in sorted(set(self._remainders).union(*masks)):
            info = _info_at(apart, position)
            _join(info, self._remainders.get(position, {}))
            add_info(vector, info, position, count)
        return vector

    def _all_placed(self, vector: dict[Any, Any]) -> bool:
        """Place the columns, if none of them is part of a dict or meets another."""
        for column, values, mask in self._columns:
            key = column.path[0]
            if len(column.path) > 1 or key in vector:
                return False
            vector[key], vector[f"_{key}"] = values, mask
        return True

    def _contested(self) -> set[str]:
        """Top-level keys whose arrays depend on more than one column each."""
        others = {str(key) for info in self._remainders.values() for key in info}
        contested = {key.removeprefix("_") for key in others} | others
        paths = [column.path for column, _, _ in self._columns]
        leaves = set(paths)
        repeated = len(leaves) < len(paths)
        for path in paths:
            above = {path[:length] for length in range(1, len(path))}
            if above & leaves or (repeated and paths.count(path) > 1):
                contested.add(path[0])
        return contested


# Of a batch whose envs returned none; always this one object.
NO_INFOS = Infos([], {})


def _info_at(columns: Sequence[ColumnRead], position: int) -> dict[Any, Any]:
    """What these columns hold of one env's info."""
    info: dict[Any, Any] = {}
    for column, values, mask in columns:
        if mask[position]:
            _put(info, column.path, _value_at(column, values, position))
    return info


def _put(info: dict[Any, Any], path: tuple[str, ...], value: Any) -> None:
    """Set an entry at its path, in dicts made on the way."""
    for key in path[:-1]:
        info = info.setdefault(key, {})
    info[path[-1]] = value


def _value_at(column: Column, values: NDArray[Any], position: int) -> Any:
    """One value: three times as quick as `_each` of one position."""
    if column.type is np.ndarray:
        return np.array(values[position], dtype=column.dtype)
    return values.item(position) if column.plain else values[position]


def _each(column: Column, values: NDArray[Any]) -> list[Any]:
    """The values as the envs returned them, arrays copied."""
    if column.type is np.ndarray:
        return [np.array(value, dtype=column.dtype) for value in values]
    return values.tolist() if column.plain else list(values)


def _join(info: dict[Any, Any], remainder: dict[Any, Any]) -> None:
    """Add a remainder to the rest of the same env's info."""
    for key, value in remainder.items():
        if key in info:
            _join(info[key], value)
        else:
            info[key] = value


def _place(
    vector: dict[Any, Any], path: tuple[str, ...], values: NDArray[Any], mask: Mask
) -> None:
    """Put a column at its path; a dict is present wherever something in it is."""
    for key in path[:-1]:
        vector.setdefault(f"_{key}", np.zeros_like(mask))
        vector[f"_{key}"] |= mask
        vector = vector.setdefault(key, {})
    vector[path[-1]], vector[f"_{path[-1]}"] = values, mask


def add_info(
    vector: dict[Any, Any], info: dict[Any, Any], position: int, count: int
) -> None:
    """Add one env's info to a dict of arrays, by Gymnasium's rules."""
    for key, value in info.items():
        held = vector.get(key)
        mask = vector.get(f"_{key}")
        if key == "final_obs":
            held = _objects(count) if held is None else held
            held[position] = value
        elif isinstance(value, dict) and (held is None or isinstance(held, dict)):
            held = {} if held is None else held
            add_info(held, value, position, count)
        elif not (isinstance(value, dict) and not value):
            held = _array_for(value, count) if held is None else held
            held = _assign(held, mask, position, value)
        if mask is None:
            mask = np.zeros(count, np.bool_)
        # Not always a mask: an env may have an entry of that name.
        mask = _assign(mask, None, position, True)
        vector[key], vector[f"_{key}"] = held, mask


def _array_for(value: Any, count: int) -> NDArray[Any]:
    """The array that an entry's first value asks for."""
    kind = type(value)
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return np.zeros(count, dtype=kind)
    if isinstance(value, np.ndarray):
        return np.zeros((count, *value.shape), dtype=value.dtype)
    return _objects(count)


def _assign(held: Any, mask: Any, position: int, value: Any) -> Any:
    """Store a value, in an array of objects if the one at hand cannot take it."""
    # A number array would take a dict for a list of field names.
    if not (isinstance(value, dict) and held.dtype != object):
        try:
            held[position] = value
            return held
        # RuntimeError: a date for which an array of short strings has no room.
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
    objects = _objects(len(held))
    if isinstance(mask, np.ndarray) and mask.shape == objects.shape:
        for earlier, there in enumerate(mask.tolist()):
            # An entry of that name can hold anything, arrays too.
            if isinstance(there, (bool, int, float)) and there == 1:
                objects[earlier] = held[earlier]
    objects[position] = value
    return objects


def _objects(count: int) -> NDArray[Any]:
    return np.full(count, None, dtype=object)
