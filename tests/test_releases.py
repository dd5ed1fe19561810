"""Releases: one version in all files, what is refused, and what the workflows of a tag may do."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from release.__main__ import main, problems_of_tree, table
from release.building import unlike
from release.checking import problems_of, problems_of_page
from release.projects import ROOT, ReleaseError, projects, source_url, version
from release.versions import places, set_version, unequal

WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
DAY = dt.date(2031, 2, 3)
MAJOR = re.compile(r"[\w-]+/[\w/-]+@(v\d+|release/v\d+)")
LATER = re.compile(
    r"\b(not yet (implemented|supported|available)|coming soon|to be implemented|TODO|FIXME)\b", re.IGNORECASE
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that have the version."""
    for path in {ROOT / "CHANGELOG.md", *(place.path for place in places())}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        re.sub(r"^## \[Unreleased\]\n.*?(?=^## \[)", "", changelog.read_text(), flags=re.MULTILINE | re.DOTALL)
    )
    text = changelog.read_text()
    changelog.write_text(text.replace("\n## [", "\n## [Unreleased]\n\n### Added\n\n- Do more.\n\n## [", 1))
    return tmp_path


def test_the_version_is_one() -> None:
    """Every file that has the version has that of version.py, and the tree can be released but for a tag."""
    assert unequal() == []
    assert problems_of_tree() == []


def test_a_version_is_set_everywhere(tree: Path) -> None:
    """All places have it, the changelog has it with the day, what was unreleased is below it, and nothing is left."""
    old = version(tree)
    changed = set_version("98.7.6", DAY, tree)
    assert {path.relative_to(tree).as_posix() for path in changed} >= {
        "CHANGELOG.md",
        "pyproject.toml",
        "packages/grpc/pyproject.toml",
        "server.json",
        "src/toolexec/version.py",
    }
    assert version(tree) == "98.7.6"
    assert unequal(tree) == []
    for path in {*changed} - {tree / "CHANGELOG.md"}:
        assert old not in path.read_text(), path
    assert (
        "## [Unreleased]\n\n## [98.7.6] - 2031-02-03\n\n### Added\n\n- Do more.\n"
        in (tree / "CHANGELOG.md").read_text()
    )
    assert problems_of_tree(tag="v98.7.6", repository=source_url(tree), root=tree) == []


@pytest.mark.parametrize(
    ("new", "reason"), [("1.2", "three numbers"), ("0.0.1", "not later"), ("9.9.9rc1", "three numbers")]
)
def test_a_version_that_is_none_is_refused(tree: Path, new: str, reason: str) -> None:
    """Then no file has changed."""
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    with pytest.raises(ReleaseError, match=reason):
        set_version(new, DAY, tree)
    assert {path: path.read_bytes() for path in before} == before


def test_a_release_without_news_is_refused(tree: Path) -> None:
    """A changelog without entries is refused, and so are files that do not agree."""
    set_version("98.7.6", DAY, tree)
    with pytest.raises(ReleaseError, match="nothing under"):
        set_version("98.7.7", DAY, tree)
    (tree / "src/toolexec/version.py").write_text('__version__ = "98.7.5"\n')
    with pytest.raises(ReleaseError, match=r"has the version 98\.7\.6, not 98\.7\.5"):
        set_version("98.7.8", DAY, tree)


def test_a_tag_must_fit(tree: Path) -> None:
    """The tag of another version, a home that the metadata does not name, and entries that are unreleased are refused."""
    found = "\n".join(problems_of_tree(tag="v5.0.0", repository="https://github.com/other/fork", root=tree))
    assert "the tag is v5.0.0" in found
    assert "https://github.com/other/fork" in found
    assert "entries under [Unreleased]" in found


def test_distributions_that_are_wrong_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file that is missing, of no project, of another version or without metadata has its line; the exit code is 1."""
    for name in ("toolexec-0.0.1-py3-none-any.whl", "other-1.0-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("toolexec/__init__.py", "")
    found = "\n".join(problems_of(tmp_path))
    assert "toolexec-grpc has 0 wheels, not 1" in found
    assert "toolexec has 0 archives of sources, not 1" in found
    assert "other-1.0-py3-none-any.whl: it belongs to no distribution" in found
    assert f"it is toolexec 0.0.1, not toolexec {version()}" in found
    assert "it has no metadata" in found
    assert main(["check", "--dist", str(tmp_path)]) == 1
    assert "toolexec-grpc has 0 wheels" in capsys.readouterr().err


def test_a_table_has_names_sizes_and_digests(tmp_path: Path) -> None:
    """Two wheels of one name and other bytes differ."""
    for directory, data in (("one", b"a"), ("two", b"b")):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "x-1-py3-none-any.whl").write_bytes(data)
    line = "x-1-py3-none-any.whl  1  ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert table(tmp_path / "one") == line
    assert unlike(tmp_path / "one", tmp_path / "one") == []
    assert unlike(tmp_path / "one", tmp_path / "two") == ["x-1-py3-none-any.whl is not the same when it is built again"]


def test_the_pages_of_an_index_have_absolute_links() -> None:
    """The links of each README lead to the files of the tag, which are there, once it is made the page of an index."""
    for project in projects():
        hook = project.settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
        text = (project.directory / "README.md").read_text()
        for each in hook["substitutions"]:
            text = re.sub(each["pattern"], each["replacement"], text)
        assert [*problems_of_page(text)] == [], project.name
        prefix = f"{source_url()}/blob/v$HFPR_VERSION/"
        linked = re.findall(rf"\]\({re.escape(prefix)}([^)#]+)", text)
        assert linked, project.name
        assert [path for path in linked if not (ROOT / path).exists()] == [], project.name


@pytest.mark.parametrize(
    "link", ["[a](docs/a.md)", "[a](#b)", '<img src="a.png">', "[a]: ../a.md", "[a](http://a.test)"]
)
def test_a_relative_link_is_found(link: str) -> None:
    """Code is left alone."""
    assert len([*problems_of_page(f"Text {link}\n" if link[1] != "a" or ": " not in link else link)]) == 1
    assert [*problems_of_page(f"```md\n{link}\n```\n")] == []


def test_the_registry_of_servers_gets_what_is_published() -> None:
    """The name is the one that the README states, as the registry demands; the version and the homes agree."""
    server = json.loads((ROOT / "server.json").read_text())
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text()
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    owner, repository = source_url().removeprefix("https://github.com/").split("/")
    assert server["name"] == f"io.github.{owner}/{repository}"
    assert server["repository"] == {"url": source_url(), "source": "github"}
    assert 0 < len(server["description"]) <= 100
    assert server["version"] == version()
    (package,) = server["packages"]
    assert (package["registryType"], package["identifier"], package["version"]) == ("pypi", "toolexec", version())
    assert package["transport"] == {"type": "stdio"}


def test_all_distributions_have_one_home() -> None:
    """Their metadata have the same links."""
    assert len({json.dumps(project.settings["project"]["urls"], sort_keys=True) for project in projects()}) == 1


def test_nothing_is_announced_that_is_not_there() -> None:
    """No page says of a thing that it is to come."""
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/*.md")]
    said = {path.relative_to(ROOT).as_posix(): found[0] for path in pages if (found := LATER.search(path.read_text()))}
    assert said == {}


def _jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(name, job, body) for name, flow in WORKFLOWS.items() for job, body in flow["jobs"].items()]


def test_workflows_run_what_there_is_here() -> None:
    """CI is `.ci/run`; the targets of make that are called exist; actions are pinned to a major version."""
    assert {*WORKFLOWS} == {"ci.yml", "release.yml"}
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    commands: list[str] = []
    for name, job, body in _jobs():
        assert body["timeout-minutes"] <= 120, (name, job)
        for step in body["steps"]:
            assert "uses" not in step or MAJOR.fullmatch(step["uses"]), step
            commands.append(step.get("run", ""))
    assert "bash .ci/run" in commands
    called = {found for command in commands for found in re.findall(r"\bmake ([a-z-]+)", command)}
    assert {"release-check", "test"} <= called <= targets


def test_workflows_have_few_rights() -> None:
    """Nothing is allowed but what a job names, only those that publish may write, and no secret is read but the token
    of the run: PyPI trusts the workflow itself."""
    assert WORKFLOWS["ci.yml"]["permissions"] == {"contents": "read"}
    assert WORKFLOWS["release.yml"]["permissions"] == {}
    for name, job, body in _jobs():
        text = json.dumps(body)
        assert "secrets." not in text, (name, job)
        assert not re.search(r"github\.(head_ref|event\.)", text), (name, job)
        for step in body["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, (name, job)
    rights = {job: body.get("permissions", {}) for name, job, body in _jobs() if name == "release.yml"}
    assert rights["build"] == {"contents": "read"}
    assert rights["publish"] == {"id-token": "write"}
    assert {job for job, each in rights.items() if each.get("packages") == "write"} == {"image"}
    assert "contents" not in {right for each in rights.values() for right, kind in each.items() if kind == "write"}


def test_a_release_is_built_once() -> None:
    """All that is published is what the first job has checked: no other job builds distributions."""
    jobs = WORKFLOWS["release.yml"]["jobs"]
    builders = [job for job, body in jobs.items() if any("make " in step.get("run", "") for step in body["steps"])]
    assert builders == ["build"]
    needed = {
        job: {*([body["needs"]] if isinstance(body.get("needs"), str) else body.get("needs", []))}
        for job, body in jobs.items()
    }
    assert needed["attest"] == {"build"}
    assert needed["publish"] >= {"attest"}
    assert needed["image"] == {"attest"}
