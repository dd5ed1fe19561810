"""Which packages may be asked for, and how they are fetched."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.requirements import add_time_zones, install_packages


def test_one_spelling() -> None:
    """However names are written, the same packages are the same requirements, in one order and once."""
    assert normal_requirements(["Rich >= 14, <15", "a_B.c", "a-b-c", "x[ y , z ]==1.0"]) == (
        "a-b-c",
        "rich>=14,<15",
        "x[y,z]==1.0",
    )
    assert normal_requirements([]) == ()


@pytest.mark.parametrize(
    "text",
    ["", " ", "-r file.txt", "--index" + "-url=x", "./directory", "/directory", "a @ file:///a", "git+ssh://a", "a;python_version>'3'",
     "a b", "a==", "a>=1,", "a[", "a\nb", "é", "a==1 --hash=x"],
)  # fmt: skip
def test_refused(text: str) -> None:
    """Options, paths, links, markers and rubbish are refused, with the text that is wrong."""
    with pytest.raises(ConfigurationError, match="not a package for the sandbox") as caught:
        normal_requirements(["fine", text])
    assert repr(text) in str(caught.value)


@pytest.mark.usefixtures("offline")
def test_install(tmp_path: Path) -> None:
    """A package comes with what it needs, and the exact versions are told."""
    found = install_packages(["sample_tools"], tmp_path / "target", work=tmp_path)
    assert found == {"sample-needed": "1.0", "sample-tools": "1.0"}
    assert (tmp_path / "target" / "sample_tools" / "data" / "words.txt").is_file()
    assert not list((tmp_path / "target").rglob("*.pyc"))


def test_nothing_to_install(tmp_path: Path) -> None:
    """Without a package nothing is started."""
    assert install_packages([], tmp_path / "target", work=tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.usefixtures("offline")
def test_needs_native_code(tmp_path: Path) -> None:
    """A package that needs one with native code is refused, and the culprit is named."""
    with pytest.raises(ConfigurationError, match=r"'sample_native' \(needed by another\) cannot go into the sandbox"):
        install_packages(["sample_asks"], tmp_path / "target", work=tmp_path)


@pytest.mark.full
@pytest.mark.usefixtures("offline")
def test_native_code_in_a_pure_wheel(tmp_path: Path) -> None:
    """A wheel that calls itself pure and is not is refused, too."""
    with pytest.raises(
        ConfigurationError, match=r"'sample_liar' cannot go into the sandbox: it has native code \(fast\.so"
    ):
        install_packages(["sample_liar"], tmp_path / "target", work=tmp_path)


@pytest.mark.usefixtures("offline")
def test_own_settings_of_pip_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the user's pip do not send files elsewhere, or let other packages in."""
    for name, value in {
        "TARGET": str(tmp_path / "elsewhere"),
        "USER": "1",
        "PLATFORM": "manylinux_2_28_x86_64",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    install_packages(["sample_needed"], tmp_path / "target", work=tmp_path)
    assert (tmp_path / "target" / "sample_needed.py").is_file()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("offline")
def test_pip_fails(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When pip fails for another reason, its own words are passed on."""
    own = tmp_path / "wheels"
    own.mkdir()
    (own / "sample_torn-1.0-py3-none-any.whl").write_bytes(b"not a zip file")
    monkeypatch.setenv("PIP_FIND_LINKS", str(own))
    with pytest.raises(ConfigurationError, match="cannot fetch sample_torn for the sandbox; pip said: ") as caught:
        install_packages(["sample_torn"], tmp_path / "target", work=tmp_path)
    assert "sample_torn" in caught.value.details["output"]


def test_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip the error says how to get it."""
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigurationError, match="-m ensurepip"):
        install_packages(["rich"], tmp_path / "target", work=tmp_path)


def test_time_zones(tmp_path: Path) -> None:
    """The time zones of the installed package are copied, once; others that are there stay."""
    assert add_time_zones(tmp_path) == {"tzdata": version("tzdata")}
    paris = tmp_path / "tzdata" / "zoneinfo" / "Europe" / "Paris"
    assert paris.read_bytes().startswith(b"TZif")
    paris.write_bytes(b"mine")
    add_time_zones(tmp_path)
    assert paris.read_bytes() == b"mine"


def test_without_time_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error names the extra that has it."""
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MissingExtraError, match=r"toolexec\[sandbox-build\]"):
        add_time_zones(tmp_path)
