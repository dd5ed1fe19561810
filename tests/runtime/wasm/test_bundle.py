"""Packages in memory behave as installed ones do."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolexec.runtime.wasm.bundle import Bundle, Deferred, Refusals

FILES = {
    "shelf/__init__.py": b"from shelf.books import TITLE\n",
    "shelf/books.py": b"TITLE = 'Middlemarch'\n",
    "shelf/broken.py": b"raise RuntimeError('torn')\n",
    "shelf/__main__.py": b"raise SystemExit\n",
    "shelf/tests/__init__.py": b"raise SystemExit\n",
    "shelf/data/list.txt": "één\n".encode(),
    "shelf/data/more/deep.bin": b"\0\1",
    "loft/attic/box.py": b"INSIDE = 3\n",
    "single.py": b"VALUE = 1\n",
    "not-a-module.py": b"",
    "Shelf_Books-1.2.dist-info/METADATA": b"Metadata-Version: 2.1\nName: Shelf-Books\nVersion: 1.2\n",
    "single-3.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: single\nVersion: 3.0\n",
}


@pytest.fixture
def bundle() -> Iterator[Bundle]:
    """A bundle that is being imported from."""
    made = Bundle(FILES)
    before = set(sys.modules)
    sys.meta_path.insert(0, made)
    yield made
    sys.meta_path.remove(made)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"shelf", "loft", "single"}:
            del sys.modules[name]


def test_import(bundle: Bundle) -> None:
    """A package, its modules and a single module are imported; what is not there is not."""
    assert importlib.import_module("shelf").TITLE == "Middlemarch"
    assert importlib.import_module("single").VALUE == 1
    assert importlib.import_module("shelf.books").__file__ == "/packages/shelf/books.py"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("shelf.magazines")


def test_namespace_package(bundle: Bundle) -> None:
    """A directory without `__init__.py` is a package, if there is code in it."""
    assert importlib.import_module("loft.attic.box").INSIDE == 3
    assert bundle.find_spec("shelf.data") is None


def test_modules(bundle: Bundle) -> None:
    """All modules are listed, parents first, without programs, tests and what has no name."""
    assert bundle.modules() == [
        "loft",
        "loft.attic",
        "loft.attic.box",
        "shelf",
        "shelf.books",
        "shelf.broken",
        "single",
    ]


def test_preload(bundle: Bundle) -> None:
    """Preloading imports everything and tells what failed."""
    assert bundle.preload() == {"shelf.broken": "RuntimeError: torn"}
    assert {"shelf", "shelf.books", "single", "loft.attic.box"} <= set(sys.modules)


def test_resources(bundle: Bundle) -> None:
    """Data files are read, listed and joined as with any package."""
    root = importlib.resources.files("shelf")
    assert sorted(entry.name for entry in root.iterdir()) == [
        "__init__.py", "__main__.py", "books.py", "broken.py", "data", "tests",
    ]  # fmt: skip
    data = root / "data"
    assert (data.is_dir(), data.is_file()) == (True, False)
    text = data.joinpath("list.txt")
    assert (text.is_dir(), text.is_file(), text.name) == (False, True, "list.txt")
    assert text.read_text("utf-8") == "één\n"
    assert data.joinpath("more", "deep.bin").read_bytes() == b"\0\1"
    with text.open("rb") as file:
        assert file.read() == "één\n".encode()
    with text.open(encoding="utf-8") as file:
        assert file.read() == "één\n"
    with importlib.resources.as_file(text) as path:
        assert path.read_text("utf-8") == "één\n"


@pytest.mark.parametrize(
    "read",
    [
        lambda: pkgutil.get_data("shelf", "data/none.txt"),
        lambda: (importlib.resources.files("shelf") / "none.txt").read_bytes(),
        lambda: (importlib.resources.files("shelf") / "none.txt").open(),
    ],
)
def test_missing_data(bundle: Bundle, read: Callable[[], object]) -> None:
    """A data file that is not there is a FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        read()


def test_data(bundle: Bundle) -> None:
    """`pkgutil.get_data` finds data files by their path in the package."""
    assert pkgutil.get_data("shelf", "data/more/deep.bin") == b"\0\1"


def test_source(bundle: Bundle) -> None:
    """The source of a module can be read, as tracebacks do."""
    import inspect

    module = importlib.import_module("shelf.books")
    assert inspect.getsource(module) == "TITLE = 'Middlemarch'\n"


def test_metadata(bundle: Bundle) -> None:
    """Versions of packages are found by any spelling of their names, and listed."""
    assert importlib.metadata.version("shelf.books") == "1.2"
    assert importlib.metadata.version("SINGLE") == "3.0"
    assert {"Shelf-Books", "single"} <= {item.name for item in importlib.metadata.distributions()}
    package = importlib.metadata.distribution("single")
    assert package.read_text("entry_points.txt") is None
    assert str(package.locate_file("single.py")) == "/packages/single.py"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("no-such-shelf")


def test_read(tmp_path: Path) -> None:
    """A directory is read with all its files, but for compiled ones; no directory is an empty bundle."""
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a" / "b.py").write_bytes(b"1")
    (tmp_path / "a" / "__pycache__" / "b.pyc").write_bytes(b"2")
    assert Bundle.read(tmp_path).files == {"a/b.py": b"1"}
    assert Bundle.read(tmp_path / "none").files == {}


class TestDeferred:
    """Modules that are kept as code until they are imported."""

    @pytest.fixture
    def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deferred]:
        """A package that was kept, and then deleted."""
        (tmp_path / "cellar" / "rack").mkdir(parents=True)
        for name, text in {
            "__init__": "OPEN = True\n",
            "wine": "from . import rack\nfrom .rack import red\nNAME = 'Rioja'\n",
            "__main__": "",
            "locked": "",
            "rack/__init__": "",
            "rack/red": "def fail():\n    raise ValueError('corked')\n",
        }.items():
            (tmp_path / "cellar" / f"{name}.py").write_text(text)
        made = Deferred()
        made.keep("cellar", [str(tmp_path)], without={"cellar.locked"})
        made.keep("sys")
        made.keep("no_such_module")
        shutil.rmtree(tmp_path / "cellar")
        monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
        yield made
        for name in [name for name in sys.modules if name.partition(".")[0] == "cellar"]:
            del sys.modules[name]

    def test_import(self, kept: Deferred, tmp_path: Path) -> None:
        """Kept modules are what they would have been."""
        package = importlib.import_module("cellar")
        assert (package.OPEN, package.__path__) == (True, [str(tmp_path / "cellar")])
        assert "cellar.wine" not in sys.modules
        wine = importlib.import_module("cellar.wine")
        assert (wine.NAME, wine.__file__) == ("Rioja", str(tmp_path / "cellar" / "wine.py"))
        with pytest.raises(ValueError, match="corked") as caught:
            wine.red.fail()
        assert Path(caught.traceback[-1].path) == tmp_path / "cellar" / "rack" / "red.py"
        for name in ("cellar.__main__", "cellar.locked", "cellar.none", "no_such_module"):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)

    def test_attributes_of_their_package(self, kept: Deferred) -> None:
        """A package leads to its modules, as if they were loaded; it keeps its own `__getattr__`."""
        package = importlib.import_module("cellar")
        assert package.rack.red.__name__ == "cellar.rack.red"
        with pytest.raises(AttributeError, match="module 'cellar' has no attribute 'cork'"):
            _ = package.cork
        package.__getattr__ = own = lambda name: name
        kept.offer(package)
        assert package.__getattr__ is own

    def test_code_and_source(self, kept: Deferred) -> None:
        """The code is at hand, and no source."""
        assert kept.get_code("cellar.wine") is not None
        assert kept.get_source("cellar.wine") is None
        assert kept.get_code("cellar.none") is None
        assert (kept.is_package("cellar.rack"), kept.is_package("cellar.wine")) == (True, False)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused module says why; others are not affected."""
    monkeypatch.setattr(sys, "meta_path", [Refusals({"shelf_x": "it is full"}), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="no module 'shelf_x' in the sandbox: it is full") as caught:
        importlib.import_module("shelf_x")
    assert caught.value.name == "shelf_x"
    with pytest.raises(ModuleNotFoundError, match="No module named 'shelf_y'"):
        importlib.import_module("shelf_y")
