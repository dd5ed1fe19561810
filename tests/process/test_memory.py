"""What memory the kernel says is available, with control groups of both versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolexec.process.memory import available_memory

MIB = 1 << 20


def host(tmp_path: Path, group: str, files: Mapping[str, object], available_mib: int = 1000) -> int | None:
    """Return what is available on a host with one control group."""
    proc, mounted = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {available_mib * 1024} kB\n")
    (proc / "self/cgroup").write_text(group)
    for name, value in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(f"{value}\n")
    return available_memory(proc, mounted)


def test_without_bounds_it_is_that_of_the_host(tmp_path: Path) -> None:
    assert host(tmp_path, "0::/a\n", {"a/memory.max": "max", "a/memory.current": 5}) == 1000 * MIB


def test_a_group_above_leaves_less(tmp_path: Path) -> None:
    """Files in the page cache that the group does not use count as available."""
    files = {
        "a/memory.max": 500 * MIB,
        "a/memory.current": 400 * MIB,
        "a/memory.stat": f"anon 1\ninactive_file {50 * MIB}",
        "a/b/memory.max": "max",
        "a/b/memory.current": 1,
    }
    assert host(tmp_path, "0::/a/b\n", files) == 150 * MIB


def test_groups_of_version_1(tmp_path: Path) -> None:
    files = {"memory/x/memory.limit_in_bytes": 300 * MIB, "memory/x/memory.usage_in_bytes": 100 * MIB}
    assert host(tmp_path, "9:cpu,cpuacct:/y\n8:memory:/x\n", files) == 200 * MIB


def test_a_group_over_its_bound_leaves_nothing(tmp_path: Path) -> None:
    assert host(tmp_path, "0::/a\n", {"a/memory.max": 5, "a/memory.current": 6}) == 0


def test_where_the_kernel_says_nothing(tmp_path: Path) -> None:
    assert available_memory(tmp_path, tmp_path) is None
