"""A machine that was saved with one processor never goes on with another one: QEMU's are really changed here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.engines.microvm import require_qemu

from toolexec import Exec, Limits
from toolexec.machines import host_facts, other_host
from toolexec_microvms import MicrovmBackend, MicrovmConfig
from toolexec_microvms.snapshots import SnapshotCache

pytestmark = [
    pytest.mark.full,
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="another user's QEMU sees no file of this test"),
]
FLAG = "avx2"
PROGRAM = """\
#!/bin/sh
for each do
    shift
    case "$each" in max,*) each="$each,{flag}=off" ;; esac
    set -- "$@" "$each"
done
exec {qemu} "$@"
"""
"""A QEMU on a machine whose processor lacks a flag."""


async def seen(cache: Path, program: str, facts: Path) -> tuple[bool, Path]:
    """Run a program in a machine that *program* starts, with the saved ones in *cache*: return whether it was restored,
    and the file with what its kernel says of its processor, below *facts*."""
    config = MicrovmConfig(
        vmm="qemu", accelerator="tcg", image=require_qemu(), program=program, limits=Limits(memory_bytes=96 << 20)
    )
    backend = MicrovmBackend(config)
    backend.engine._templates.cache = SnapshotCache(cache)  # type: ignore[attr-defined]
    async with Exec(runtime_backends={"standard": [backend]}) as ex:
        result = (await ex.execute_code("return open('/proc/cpuinfo').read()", timeout=120)).raise_for_error()
    facts.write_text(result.value)
    return result.backend.details["restored"], facts


async def test_a_saved_machine_with_another_processor(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that was saved with a flag is made again by a QEMU without it, though all that the host says of itself is the
    same, and the two differ by the flags that their kernels see."""
    qemu = shutil.which("qemu-system-x86_64") or ""
    other = tmp_path / "qemu"
    other.write_text(PROGRAM.format(qemu=qemu, flag=FLAG))
    other.chmod(0o755)
    cache = tmp_path / "machines"
    restored, first = await seen(cache, qemu, tmp_path / "first")
    assert restored
    assert not caplog.messages
    restored, second = await seen(cache, str(other), tmp_path / "second")
    assert restored
    assert [text for text in caplog.messages if "another processor: feature-words differ" in text]
    flags, fewer = ({*str(host_facts(facts)["flags"]).split()} for facts in (first, second))
    assert FLAG in flags
    assert flags - fewer == {FLAG}
    assert other_host(host_facts(first), host_facts(second)) == f"processor flags that are missing here: {FLAG}"
