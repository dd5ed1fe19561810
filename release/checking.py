"""Check the distributions as files: what their metadata says, what is inside them, and what is not."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import BytesParser
from pathlib import Path
from typing import Final

from packaging.metadata import ExceptionGroup as MetadataErrors
from packaging.metadata import Metadata
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename

from release.projects import ROOT, Project, projects, source_url, version

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_LINKS: Final = ("Changelog", "Documentation", "Issues", "Source")
_SKILL: Final = "toolexec/cli/agent_skills/using-toolexec/SKILL.md"
_UNWANTED: Final = re.compile(r"(^|/)(tests?|benchmarks|conftest\.py|__pycache__|\.git(hub)?|\.venv|dist)(/|$)|\.pyc$")
_OURS: Final = {"toolexec/testing"}  # the shared suites for backends, which are public
_CODE: Final = re.compile(r"^( {0,3})(```+|~~~+).*?^\1\2\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|(?:href|src)=[\"']([^\"']+)", re.MULTILINE)


def problems_of(dist: Path, root: Path = ROOT) -> list[str]:
    """Return a line for everything that is wrong with the files of the directory *dist*."""
    found: list[str] = []
    for project in projects(root):
        wheels = [*dist.glob(f"{project.stem}-[0-9]*.whl")]
        archives = [*dist.glob(f"{project.stem}-[0-9]*.tar.gz")]
        if len(wheels) != 1:
            found.append(f"{project.name} has {len(wheels)} wheels, not 1")
        if len(archives) != project.has_sdist:
            found.append(f"{project.name} has {len(archives)} archives of sources, not {int(project.has_sdist)}")
    for path in sorted(dist.iterdir()):
        found += [f"{path.name}: {problem}" for problem in problems_of_file(path, root)]
    return found


def problems_of_file(path: Path, root: Path = ROOT) -> list[str]:
    """Return a line for everything that is wrong with one wheel or one archive of sources."""
    project = next((each for each in projects(root) if re.match(rf"{each.stem}-\d", path.name)), None)
    return [*_problems(path, project, root)] if project is not None else ["it belongs to no distribution"]


def problems_of_page(text: str) -> Iterator[str]:
    """Yield what is wrong with the page of a distribution on an index, where a relative link leads nowhere."""
    for match in _LINK.finditer(_CODE.sub("", text)):
        link = next(filter(None, match.groups()))
        if not link.startswith(("https://", "mailto:")):
            yield f"the page links to {link}, which is not absolute"


def _problems(path: Path, project: Project, root: Path) -> Iterator[str]:
    is_wheel = path.suffix == ".whl"
    contents = _wheel_contents(path) if is_wheel else _sdist_contents(path)
    try:
        name, number = (parse_wheel_filename(path.name) if is_wheel else parse_sdist_filename(path.name))[:2]
    except (InvalidWheelFilename, ValueError) as error:
        yield str(error)
        return
    if (name, str(number)) != (canonicalize_name(project.name), version(root)):
        yield f"it is {name} {number}, not {project.name} {version(root)}"
    head = f"{project.stem}-{version(root)}"
    described = contents.get(f"{head}.dist-info/METADATA" if is_wheel else f"{head}/PKG-INFO")
    if described is None:
        yield "it has no metadata"
        return
    yield from _problems_of_metadata(described, project, root)
    yield from _problems_of_contents(contents, root)
    parts = [f"{project.module}/__init__.py", f"{project.module}/py.typed"]
    if project.name == "toolexec":
        parts.append(_SKILL)
    if is_wheel:
        yield from (
            f"it has no {part}" for part in (*parts, f"{head}.dist-info/licenses/LICENSE") if part not in contents
        )
        yield from _problems_of_record(contents, f"{head}.dist-info/RECORD")
    else:
        wanted = ["LICENSE", "README.md", "pyproject.toml", *(f"src/{part}" for part in parts)]
        yield from (f"it has no {part}" for part in wanted if f"{head}/{part}" not in contents)


def _problems_of_metadata(data: bytes, project: Project, root: Path) -> Iterator[str]:
    try:
        metadata = Metadata.from_email(data, validate=True)
    except MetadataErrors as errors:
        yield from (f"the metadata is not valid: {error}" for error in errors.exceptions)
        return
    urls = metadata.project_urls or {}
    yield from (f"the metadata has no link {name}" for name in _LINKS if not urls.get(name, "").startswith("https://"))
    if urls.get("Source") != source_url(root):
        yield f"its Source is {urls.get('Source')}, not {source_url(root)}"
    classifiers = {*(metadata.classifiers or ())}
    wanted = [f"Programming Language :: Python :: {each}" for each in PYTHONS]
    yield from (f"the classifier {each} is missing" for each in (*wanted, "Typing :: Typed") if each not in classifiers)
    if str(metadata.requires_python) != f">={PYTHONS[0]}":
        yield f"it requires Python {metadata.requires_python}"
    if metadata.license_expression != "MIT" or metadata.license_files != ["LICENSE"]:
        yield "its licence is not MIT, in the file LICENSE"
    if not metadata.summary or not metadata.keywords:
        yield "it has no summary or no keywords"
    for each in metadata.requires_dist or ():
        is_ours = each.name.startswith("toolexec") and not each.name == project.name == "toolexec"
        if is_ours and str(each.specifier) != f"=={version(root)}":
            yield f"it requires {each}, which is not this version"
    if metadata.description_content_type != "text/markdown":
        yield "its page is not Markdown"
    text = BytesParser().parsebytes(data).get_payload()
    page = metadata.description or (text if isinstance(text, str) else "")
    if len(page) < 200:
        yield "it has no page"
    yield from problems_of_page(page)


def _problems_of_contents(contents: Mapping[str, bytes], root: Path) -> Iterator[str]:
    home, temporary = str(Path.home()), tempfile.gettempdir()
    hosts = [str(root), str(ROOT), sys.prefix, *((home,) if len(Path(home).parts) > 2 else ())]
    hosts += [f"{temporary}/{prefix}" for prefix in ("pip-", "build-env-", "toolexec-wheel-", "toolexec-build-")]
    for name, data in contents.items():
        if _UNWANTED.search(name) and not any(f"{ours}/" in name for ours in _OURS):
            yield f"{name} is not for users"
        yield from (f"{name} names {host}, which is of this machine" for host in hosts if host.encode() in data)


def _problems_of_record(contents: Mapping[str, bytes], record: str) -> Iterator[str]:
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(contents.get(record, b"").decode()))}
    for name, data in contents.items():
        said = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        if name != record and rows.get(name) != f"sha256={said}":
            yield f"RECORD does not have {name} as it is"
    yield from (f"RECORD has {name}, which is not there" for name in rows if name not in contents)


def _wheel_contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _sdist_contents(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            data = archive.extractfile(member) if member.isfile() else None
            found[member.name] = data.read() if data is not None else b""
    return found
