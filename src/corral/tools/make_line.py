"""The line of code that doctor and bench recommend."""

from __future__ import annotations

from typing import Any


def make_line(
    call: str,
    env: str,
    import_line: str,
    num_envs: int,
    options: dict[str, Any],
    remark: str = "",
) -> str:
    """What a program writes to make the envs.

    Args:
        call: which of our functions.
        env: how a program names the env.
        import_line: what it imports first, if anything.
        num_envs: how many.
        options: further keyword arguments; empty dicts are left out.
        remark: a comment behind the line.
    """
    given = {name: value for name, value in options.items() if value != {}}
    arguments = [env, f"num_envs={num_envs}"]
    for name, value in given.items():
        text = f'"{value}"' if isinstance(value, str) else repr(value)
        arguments.append(f"{name}={text}")
    line = f"envs = corral.{call}({', '.join(arguments)})"
    line += f"  # {remark}" if remark else ""
    return f"{import_line}\n{line}" if import_line else line
