"""How the test run is shared between workers: what goes together, what begins first, and what is kept for the next run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.scheduling import LONGEST, Durations, FileScheduling, unit_of


class Node:
    """A worker that only notes which tests it gets."""

    shutting_down = False

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, places: list[int]) -> None:
        """Take tests by their place in the collection."""
        self.given += places

    def shutdown(self) -> None:
        """End after what was given."""
        self.shutting_down = True


def scheduling(path: Path, tests: list[str]) -> tuple[FileScheduling, Any]:
    """Return a scheduler with one worker that has collected *tests*."""
    options = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(option=options, getvalue=lambda name: ["popen"], rootpath=path.parent)  # type: ignore[misc]
    found, node = FileScheduling(cast("Any", config), None, Durations(path)), Node()
    worker = cast("Any", node)
    found.add_node(worker)
    found.add_node_collection(worker, tests)
    found.schedule()
    return found, node


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/model/test_tool.py::test_it[docker-1]", "tests/model/test_tool.py"),
        ("tests/contract/test_containers.py::test_it_holds_hostile_python[docker-5]", "engine docker"),
        ("tests/runtime/containers/test_containers.py::test_a_disk[qemu-as configured]", "engine qemu"),
        ("tests/runtime/containers/test_containers.py::test_other", "tests/runtime/containers/test_containers.py"),
        ("tests/runtime/containers/kubernetes/test_real_backend.py::test_it", "engine kubernetes"),
    ],
)
def test_what_goes_together(nodeid: str, unit: str) -> None:
    """A file is one unit, and so are the tests that need one daemon."""
    assert unit_of(nodeid) == unit


def test_what_is_expected(tmp_path: Path) -> None:
    """Take what was measured; without it the listed ones come first, then those with most tests."""
    durations = Durations(tmp_path / "durations.json")
    assert durations.expected(LONGEST[0], 1) > durations.expected(LONGEST[1], 1) > durations.expected("tests/a.py", 900)
    assert durations.expected("tests/a.py", 9) > durations.expected("tests/b.py", 8)
    durations.add("tests/b.py", 2.0)
    durations.add("tests/b.py", 3.0)
    durations.add("tests/a.py", 1.0)
    durations.add("test_of_a_run_inside_of_a_test.py", 1.0)
    durations.save(unfinished=["tests/a.py"])
    kept = Durations(tmp_path / "durations.json")
    assert kept.expected("tests/b.py", 1) == 5.0
    assert kept.expected("tests/a.py", 9) == durations.expected("tests/a.py", 9)
    kept.add("tests/a.py", 1.0)
    kept.save()
    assert (tmp_path / "durations.json").read_text().count("tests/") == 2
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("content", [None, "", "[1]", '{"a": "b"}'])
def test_a_cache_that_cannot_be_used_is_none(tmp_path: Path, content: str | None) -> None:
    """A run without one, or with a broken one, guesses."""
    path = tmp_path / "durations.json"
    if content is not None:
        path.write_text(content)
    assert Durations(path).expected("tests/a.py", 50) == 1.0


def test_the_longest_begins_first(tmp_path: Path) -> None:
    """A worker gets whole units, the longest first; when all are done, that is kept for the next run."""
    tests = ["tests/a.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/c.py::two"]
    path = tmp_path / "durations.json"
    path.write_text('{"tests/a.py": 1, "tests/b.py": 2, "tests/c.py": 9}')
    found, node = scheduling(path, tests)
    assert node.given[:4] == [3, 4, 1, 2]
    for place in (3, 4, 1, 2):
        found.mark_test_complete(node, place, 0.5)
    assert node.given == [3, 4, 1, 2, 0]
    found.save_durations()  # the last one is not done
    assert Durations(path).expected("tests/a.py", 1) == 1.0
    assert Durations(path).expected("tests/c.py", 1) == 1.0
    found.mark_test_complete(node, 0, 7)
    assert found.tests_finished
    assert not found.has_pending
    found.save_durations()
    assert Durations(path).expected("tests/a.py", 1) == 7.0
