"""The files that are published: what is in them is right, and the same tree makes the same bytes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from release.building import build_sdist, build_wheels, unlike
from release.checking import problems_of_file
from release.projects import projects


def test_the_wheels_are_as_they_should_be(wheels: Path) -> None:
    """Metadata, links, licences, records and contents are right, and none has a file of the tests or of this machine."""
    found = {path.name: problems_of_file(path) for path in wheels.iterdir()}
    assert len(found) == len(projects())
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_a_wheel_of_the_sources_is_that_of_the_tree(tmp_path: Path) -> None:
    """Its bytes are the same, but for the component of the sandbox, which is left out here."""
    project = projects()[0]
    alone = {"TOOLEXEC_SKIP_COMPONENT": "1"}
    archive = build_sdist(project, tmp_path)
    assert problems_of_file(archive) == []
    build_wheels([archive], tmp_path / "one", alone)
    build_wheels([project.directory], tmp_path / "two", alone)
    assert unlike(tmp_path / "one", tmp_path / "two") == []


def test_the_wheel_says_what_its_component_is(wheel: Path) -> None:
    """Its description has the code of this machine, which the wheel of the sandbox has."""
    with zipfile.ZipFile(wheel) as archive:
        described = json.loads(archive.read("toolexec/runtime/wasm/python.json"))
    assert described["size"] > 0
    assert [*described["compiled"]] != []
