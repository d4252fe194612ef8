"""Every setting as YAML, with its type and a sentence; written from the models.

# integer >= 1: number of parallel envs, >= 1 (default: 8)
num_envs: 8
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from corral.learners.registry import LEARNERS, learner_class
from corral.train.recipes.config import RunConfig
from corral.train.recipes.resolve import group_model, resolve
from corral.train.recipes.trials import GROUP, TrialSettings

WIDTH = 88


def every_setting() -> str:
    """All settings with their defaults, and the groups of all learners."""
    lines = ["# Every setting of `corral train`, with its default.", ""]
    default = RunConfig()
    lines += _lines(RunConfig, default.model_dump(mode="json"))
    groups: dict[str, list[str]] = {}
    for name in LEARNERS:
        groups.setdefault(learner_class(name).group, []).append(name)
    for group, names in groups.items():
        kind = learner_class(names[0]).Config
        lines += _group(group, kind, f"for learner: {', '.join(names)}")
    lines += _group(GROUP, TrialSettings, "several episodes of one task as one")
    return "\n".join(lines)


def settings_of(source: str) -> str:
    """All settings of a recipe or a file, as a run would have them."""
    config = resolve(source, {})
    lines = [f"# Every setting of {source}.", ""]
    return "\n".join([*lines, *_lines(type(config), config.model_dump(mode="json"))])


def _group(name: str, kind: type[BaseModel], text: str) -> list[str]:
    """A group that a file may have, commented out."""
    inner = _lines(kind, kind().model_dump(mode="json"))
    return [f"# {name}:  # {text}", *(f"#   {line}".rstrip() for line in inner)]


def _lines(kind: type[BaseModel], values: Mapping[str, Any]) -> list[str]:
    schema = kind.model_json_schema()
    lines: list[str] = []
    for name, field in kind.model_fields.items():
        value, inner = values[name], group_model(field.annotation)
        shown = schema["properties"][name]
        text = " ".join((field.description or "").split())
        if inner is None or value is None:
            said = "group" if inner else type_text(shown, schema.get("$defs", {}))
            lines += textwrap.wrap(
                f"{said}: {text}", WIDTH, initial_indent="# ", subsequent_indent="#   "
            )
            lines += _yaml(name, value)
        if inner is not None and value is None:
            lines += _group(name, inner, "its settings, with their defaults")
        elif inner is not None:
            lines += [f"{name}:  # {text}"]
            lines += [f"  {line}".rstrip() for line in _lines(inner, value)]
        lines.append("")
    return lines


def _yaml(name: str, value: Any) -> list[str]:
    flow = isinstance(value, (list, dict))
    written = yaml.safe_dump(
        value, default_flow_style=flow, width=10**6, sort_keys=False
    )
    return [f"{name}: {written.removesuffix('...' + chr(10)).strip()}"]


# Types --------------------------------------------------------------------------------

LIMITS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
}
NAMES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "null": "null",
    "object": "mapping",
}


def type_text(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """A type as people read it, from its JSON schema."""
    if "$ref" in schema:
        return type_text(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return " | ".join(
            dict.fromkeys(type_text(one, defs) for one in schema["anyOf"])
        )
    if "enum" in schema or "const" in schema:
        choices = schema.get("enum", [schema.get("const")])
        return " | ".join(map(str, choices))
    kind = schema.get("type")
    if kind == "boolean":
        return "true | false"
    if kind == "array":
        inner = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
        return f"list of ({type_text(inner, defs)})"
    if kind == "integer" and "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
        schema = {**schema, "minimum": least}
        del schema["exclusiveMinimum"]
    limits = [
        f"{sign} {schema[key]:g}" for key, sign in LIMITS.items() if key in schema
    ]
    return " ".join([NAMES.get(str(kind), "anything"), *limits])
