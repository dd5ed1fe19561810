"""ApprovalMemory: what was approved permanently, in a file that no other user can write."""

from __future__ import annotations

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, MCPBinding, Tool
from toolexec.model.origin import Caller
from toolexec.run.approvals import ApprovalMemory, Approved, approved

ONE = Approved(tenant="", caller="ann", tool_id="git:push", digest="d1")
OTHER = Approved(tenant="t", caller="", tool_id="git:pull", digest="d2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "approvals.json"


def test_what_is_added_is_there_later(path: Path) -> None:
    """In this process and the next, in a file for its owner's eyes only."""
    memory = ApprovalMemory(path)
    assert ONE not in memory
    memory.add(ONE)
    memory.add(ONE)
    memory.add(OTHER)
    assert ONE in memory
    assert ApprovalMemory(path).entries() == [ONE, OTHER] or ApprovalMemory(path).entries() == [OTHER, ONE]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}
    for part in asdict(ONE):
        assert replace(ONE, **{part: "other"}) not in memory


def test_two_processes(path: Path) -> None:
    """A process sees changes of another at its next question, and keeps them when it adds its own."""
    here, there = ApprovalMemory(path), ApprovalMemory(path)
    here.add(ONE)
    assert ONE in there
    there.add(OTHER)
    assert {ONE, OTHER} == set(here.entries())
    here.forget("git:push")
    assert ONE not in there


def test_forgetting(path: Path) -> None:
    """By tool and by caller; it says how many there were."""
    memory = ApprovalMemory(path)
    memory.add(ONE)
    memory.add(OTHER)
    assert memory.forget("other:*") == 0
    assert memory.forget("git:*", caller="bob") == 0
    assert memory.forget("git:*", caller="ann") == 1
    assert memory.entries() == [OTHER]
    assert memory.forget() == 1
    path.unlink()
    assert memory.entries() == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"version": 2, "always": []}',
        '{"version": 1, "always": [{"tool_id": "x"}]}',
        '{"version": 1, "always": [7]}',
        '{"version": 1, "always": [{"tenant": "", "caller": "", "tool_id": "x", "digest": 7}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file(path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Refuses a damaged file at the start; later nothing counts as approved."""
    memory = ApprovalMemory(path)
    memory.add(ONE)
    path.write_text(text)
    assert ONE not in memory
    assert "nothing counts as approved" in caplog.text
    with pytest.raises(ConfigurationError, match="repair or delete it"):
        ApprovalMemory(path)


def test_a_file_that_others_can_write(path: Path) -> None:
    """Distrusts a file that others can write."""
    memory = ApprovalMemory(path)
    memory.add(ONE)
    forged = path.with_name("forged")
    forged.write_text(json.dumps({"version": 1, "always": [asdict(ONE)]}))
    forged.chmod(0o666)
    os.replace(forged, path)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        ApprovalMemory(path)
    assert ONE not in memory


def test_a_file_that_cannot_be_replaced(path: Path) -> None:
    """Raises, and leaves no other file behind."""
    memory = ApprovalMemory(path)
    path.mkdir(parents=True)
    with pytest.raises(OSError):
        memory.add(ONE)
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


def test_what_an_approval_is_for() -> None:
    """One caller and one tool, with its definition and its backend."""
    tool = Tool(name="push", namespace="git", input_schema={"type": "object"})
    here, there = LocalBinding("push"), MCPBinding("hub", "push")
    entry = Registered(tool, (here,), here)
    same = Registered(Tool.from_dict(tool.to_dict()), (there, here), here)
    ann = Caller(id="ann", roles=("x",))
    assert approved(entry, ann) == approved(same, Caller(id="ann"))
    others = {
        approved(entry, ann),
        approved(entry, Caller(id="ann", tenant="t")),
        approved(entry, Caller(id="bob")),
        approved(Registered(tool, (there,), there), ann),
        approved(Registered(tool.replace(description="other"), (here,), here), ann),
        approved(Registered(tool.replace(input_schema={"type": "object", "title": "x"}), (here,), here), ann),
    }
    assert len(others) == 6


def test_several_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Approvals that are added or forgotten stay so while others write to the file."""
    path = tmp_path / "approvals.json"
    ready = threading.Barrier(4)

    link = tmp_path / "link.json"
    link.symlink_to(path)

    def write(number: int) -> None:
        memory = ApprovalMemory(link if number % 2 else path)
        ready.wait()
        for each in range(12):
            memory.add(Approved(tenant="", caller="ann", tool_id=f"t{number}:x{each}", digest="d"))
            if each % 2:
                memory.forget(f"t{number}:x{each - 1}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    kept = {f"t{number}:x{each}" for number in range(4) for each in range(1, 12, 2)}
    assert {one.tool_id for one in ApprovalMemory(path).entries()} == kept
