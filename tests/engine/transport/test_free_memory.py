"""What memory can still be had, by the account of the kernel's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.engine.transport.free_memory import FreeMemory, available, check

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {
    "proc/meminfo": f"MemTotal: {16 * GIB >> 10} kB\nMemAvailable: {8 * GIB >> 10} kB\n"
    f"SwapFree: {GIB >> 10} kB\nHugePages_Total: 0\n",
}


def test_machine_without_a_container(tmp_path: Path) -> None:
    root = write(tmp_path, {**MACHINE, "proc/self/cgroup": "0::/\n"})
    assert available(root) == FreeMemory(9 * GIB, "the machine's 16 GiB")


def test_container_whose_files_can_be_dropped(tmp_path: Path) -> None:
    group = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7\n",
        "sys/fs/cgroup/memory.swap.max": "max\n",
        "sys/fs/cgroup/memory.swap.current": "0\n",
    }
    root = write(tmp_path, {**MACHINE, **group})
    assert available(root) == FreeMemory(2 * GIB + 7, "the container's 4.00 GiB")


def test_the_narrowest_of_the_groups_we_are_in_counts(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    groups = {
        "proc/self/cgroup": "12:cpu:/elsewhere\n0::/jobs/mine\n",
        f"{top}/jobs/mine/memory.max": "max\n",
        f"{top}/jobs/mine/memory.current": f"{GIB}\n",
        f"{top}/jobs/memory.max": f"{6 * GIB}\n",
        f"{top}/jobs/memory.current": f"{5 * GIB}\n",
    }
    root = write(tmp_path, {**MACHINE, **groups})
    assert available(root) == FreeMemory(GIB, "the container's 6.00 GiB")


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    groups = {
        "proc/self/cgroup": "4:memory:/docker/of-the-host\n0::/\n",
        f"{folder}/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{folder}/memory.usage_in_bytes": f"{3 * GIB}\n",
        f"{folder}/memory.stat": "cache 9\ntotal_inactive_file 9\n",
    }
    root = write(tmp_path, {**MACHINE, **groups})
    assert available(root) == FreeMemory(0, "the container's 2.00 GiB")
    unlimited = {f"{folder}/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n"}
    assert available(write(tmp_path, unlimited)) == FreeMemory(
        9 * GIB, "the machine's 16 GiB"
    )


def test_nobody_says_anything(tmp_path: Path) -> None:
    assert available(tmp_path) is None


def test_here_a_little_fits_and_everything_does_not() -> None:
    check(100 << 20, "a little")
    with pytest.raises(
        OSError, match=r"it all needs 1048576.00 GiB, and .* are left of"
    ):
        check(1 << 50, "it all")
