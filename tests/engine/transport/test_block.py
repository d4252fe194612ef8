"""A block is memory that leaves nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from running import open_descriptors

from corral.engine.layout.fields import Planner
from corral.engine.transport.block import Block

Start = Callable[..., "subprocess.Popen[str]"]

ATTACH = """
import sys
from corral.engine.transport.block import Block

block = Block.attach(int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.parametrize("shared", [True, False])
def test_new_block_is_zeroed_and_writable(shared: bool) -> None:
    block = Block.create(10_000, shared)
    numbers = np.frombuffer(block.memory, np.uint8)
    assert len(numbers) == block.size == 10_000
    assert not numbers.any()
    numbers[-1] = 3
    assert block.memory[-1] == 3


def test_what_a_worker_writes_is_seen_here(start: Start) -> None:
    block = Block.create(64, shared=True)
    assert block.descriptor is not None
    block.memory[0] = 1
    script = ATTACH + "assert block.memory[0] == 1; block.memory[63] = 2; block.close()"
    worker = start(script, block.descriptor, 64, pass_fds=[block.descriptor])
    assert worker.wait() == 0
    assert block.memory[63] == 2
    block.close()


def test_nobody_can_make_a_shared_block_smaller_or_larger() -> None:
    block = Block.create(8192, shared=True)
    assert block.descriptor is not None
    with pytest.raises(PermissionError):
        os.ftruncate(block.descriptor, 0)
    os.ftruncate(block.descriptor, 16384)  # as an env's constructor might
    grown = block.extended(12288, touched=0)
    for size in (0, 12288, 32768):
        with pytest.raises(PermissionError):
            os.ftruncate(block.descriptor, size)
    grown.memory[12287] = 7
    assert grown.memory[12287] == 7
    grown.close()
    block.close()


def test_a_block_sealed_for_readers_cannot_be_mapped_for_writing() -> None:
    block = Block.create(64, shared=True)
    assert block.descriptor is not None
    block.seal(read_only=True)
    block.memory[5] = 5  # by those who could before
    with pytest.raises(PermissionError):
        Block.attach(os.dup(block.descriptor), 64)
    with pytest.raises(PermissionError):
        os.pwrite(block.descriptor, b"x", 0)
    reader = Block.attach(os.dup(block.descriptor), 64, writable=False)
    assert reader.memory[5] == 5
    reader.close()
    block.close()


def test_read_only_attachment_cannot_be_written() -> None:
    block = Block.create(64, shared=True)
    assert block.descriptor is not None
    reader = Block.attach(os.dup(block.descriptor), 64, writable=False)
    block.memory[5] = 5
    assert reader.memory[5] == 5
    with pytest.raises(TypeError, match="read-only"):
        reader.memory[5] = 6
    reader.close()
    block.close()


def test_killed_processes_leave_nothing_in_dev_shm(start: Start) -> None:
    before = os.listdir("/dev/shm")
    owner = start("""
        import os, signal
        from corral.engine.transport.block import Block

        block = Block.create(1 << 20, shared=True)
        block.memory[:3] = b"abc"
        print(os.listdir("/dev/shm"), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert owner.stdout is not None
    assert owner.stdout.readline().strip() == str(before)
    assert owner.wait() == -9
    assert os.listdir("/dev/shm") == before


@pytest.mark.parametrize("shared", [True, False])
def test_close_twice_gives_every_descriptor_back(shared: bool) -> None:
    before = open_descriptors()
    block = Block.create(64, shared)
    block.close()
    block.close()
    assert block.descriptor is None
    assert open_descriptors() == before


@pytest.mark.parametrize("shared", [True, False])
def test_close_leaves_live_views_intact(shared: bool) -> None:
    before = open_descriptors()
    block = Block.create(64, shared)
    view = np.frombuffer(block.memory, np.int64)
    field = Planner().add("half", np.int64, (4,)).view(block.memory)
    view[:] = 7
    block.close()
    assert view.sum() == 56 and field.sum() == 28
    del view, field
    assert open_descriptors() == before


@pytest.mark.parametrize("shared", [True, False])
def test_empty_block_is_one_page(shared: bool) -> None:
    block = Block.create(0, shared)
    assert block.size == len(block.memory) >= 4096
    block.close()


@pytest.mark.parametrize("shared", [True, False])
def test_refused_memory_says_how_much_was_wanted(shared: bool) -> None:
    before = open_descriptors()
    block = f"block of {2**60} bytes of .* memory"
    refusals = {
        None: f"{block} needs .* GiB, and .* left of",
        1: f"cannot get a {block}",
    }
    for touched, text in refusals.items():
        with pytest.raises(OSError, match=text) as caught:
            Block.create(2**60, shared, touched)
        assert caught.value.errno == errno.ENOMEM
    assert open_descriptors() == before


def test_block_can_be_extended_without_losing_what_is_in_it() -> None:
    before = open_descriptors()
    block = Block.create(4096, shared=True)
    block.memory[:4] = b"neigh"[:4]
    more = block.extended(1 << 20, touched=4096)
    more.memory[4:5] = b"h"
    assert bytes(block.memory[:5]) == b"neigh" and more.size == 1 << 20
    with pytest.raises(OSError, match=f"block of {2**60} bytes of shared memory needs"):
        block.extended(2**60, touched=2**60)
    more.close()
    block.close()
    assert open_descriptors() == before


def test_shared_block_is_its_owners_alone() -> None:
    block = Block.create(4096, shared=True)
    assert block.descriptor is not None
    assert os.fstat(block.descriptor).st_mode & 0o077 == 0
    block.close()
