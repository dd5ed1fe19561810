"""In a notebook: the README's blocks and the example run in a real kernel, and results are displayed without harm."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests import tiers
from tests.test_docs import blocks, compare

from toolexec import Exec, Step, ToolReply
from toolexec.model.content import image
from toolexec.model.html import lines
from toolexec.workflow.skill import Skill

ROOT = Path(__file__).parent.parent
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
cells = json.load(sys.stdin)
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
"""
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
EVIL = '<script>alert(1)</script><img src=x onerror="alert(1)">\u202e&amp;'


def run_cells(cells: list[str], directory: Path) -> list[list[dict[str, Any]]]:
    """Run cells in one kernel, and return the outputs of each."""
    if find_spec("nbclient") is None or find_spec("ipykernel") is None:
        tiers.missing("there is no kernel for notebooks", "pip install ipykernel nbclient")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(cells),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def printed(outputs: list[dict[str, Any]]) -> str:
    errors = [each["evalue"] for each in outputs if each["output_type"] == "error"]
    assert errors == []
    return "".join(each["text"] for each in outputs if each.get("name") == "stdout")


@pytest.mark.full
def test_the_blocks_of_the_readme_run_in_a_notebook(tmp_path: Path) -> None:
    """Each as it is, one after the other in one kernel, with the output that the README shows; and its `main` is
    awaited there."""
    found = [each for each in blocks(ROOT / "README.md") if each.language == "python" and not each.note]
    assert len(found) >= 7
    outputs = run_cells([*(each.text for each in found), "await main()"], tmp_path)
    for block, each in zip(found, outputs, strict=False):
        compare(block, block.expected or "", printed(each))
    assert printed(outputs[-1]) == "8.0\n" or printed(outputs[-1]) == "8\n"


@pytest.mark.full
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    """Every cell ends without an error; results come as tables, an image, a trace and a graph."""
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text("utf-8"))
    cells = ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]
    assert all(not each.get("outputs") for each in notebook["cells"])
    outputs = run_cells(cells, tmp_path)
    assert "".join(map(printed, outputs)) == "3\n"
    data = [each["data"] for cell in outputs for each in cell if "data" in each]
    shown = ["".join(each["text/html"]) for each in data]
    assert len(shown) == 7
    assert "small cake" in shown[2]
    assert "<table>" in shown[2]
    assert data[3]["image/png"].startswith("iVBOR")
    assert "Begun after" in shown[5]
    assert "data:image/svg+xml;base64," in shown[6]


class _Tags(HTMLParser):
    """Gathers the tags of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def harmless(page: str) -> None:
    """Check that a page has no markup but ours, and that nothing in it hides."""
    for tag, attributes in _Tags(page).tags:
        assert tag in {
            "div",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "pre",
            "code",
            "strong",
            "p",
            "ul",
            "li",
            "img",
        }
        assert set(attributes) <= {"style", "src", "alt"}
        assert tag != "img" or re.match(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,", attributes["src"] or "")
    assert "\u202e" not in page


def test_what_tools_say_is_escaped() -> None:
    """No name, description, value, error or printed line becomes markup, in any of the displays."""

    def evil(text: str = EVIL) -> list[dict[str, str]]:
        return [{text: text, "b": text}]

    def fail() -> None:
        raise ValueError(EVIL)

    evil.__doc__ = EVIL
    with Exec().sync as ex:
        ex.add(evil, "a:evil")
        ex.add(fail, "a:fail")
        pages = [
            ex.run_tool("a:evil")._repr_html_(),
            ex.run_tool("a:fail")._repr_html_(),
            ex.search_tools("script alert")._repr_html_(),
            ex.get_tool_doc("a:evil")._repr_html_(),
            ex.run_chain([Step("a:evil", name="x"), Step("a:fail")])._repr_html_(),
            ex.execute_code(f"print({EVIL!r})\ntools.a.evil()\nreturn {EVIL!r}")._repr_html_(),
            ex.execute_code(f"raise ValueError({EVIL!r})")._repr_html_(),
        ]
    header = EVIL.replace('"', "'").replace("\u202e", "")
    pages.append(Skill.parse(f'+++\nname = "x"\ndescription = "{header}"\n+++\nreturn "{header}"')._repr_html_())
    for page in pages:
        harmless(page)
    assert sum("&lt;script&gt;" in page for page in pages) == len(pages)


def test_a_graph_has_no_markup_of_its_source() -> None:
    """The graph is an image, in which text is escaped."""
    page = Skill.parse(
        '+++\nname = "x"\ndescription = "d"\n+++\nreturn run("a:b", {q: "</svg><script>"})'
    )._repr_html_()
    found = re.search(r"base64,([^\"]+)", page)
    assert found is not None
    assert b"<script" not in base64.b64decode(found[1])


@pytest.mark.parametrize(
    ("data", "kind", "shown"),
    [
        (PNG, "image/png", True),
        (b"GIF89a" + b"x" * 9, "image/gif", True),
        (b"<svg onload='alert(1)'/>", "image/svg+xml", False),
        (b"<html>", "image/png", False),
        (PNG, 'image/png" onerror="alert(1)', False),
    ],
)
def test_only_images_without_scripts_are_shown(data: bytes, kind: str, shown: bool) -> None:
    """By their kind, and by how they begin; the bundle has one image as such."""

    def draw() -> ToolReply:
        return ToolReply(content=[image(data, kind)])

    with Exec().sync as ex:
        ex.add(draw, "a:draw")
        result = ex.run_tool("a:draw")
    bundle = result._repr_mimebundle_()
    harmless(bundle["text/html"])
    assert ("<img" in bundle["text/html"]) is shown
    assert ({*bundle} == {"text/html", kind}) is shown


def test_large_values_are_cut() -> None:
    """A notebook's file does not grow by megabytes for one result."""

    def rows() -> list[dict[str, int]]:
        return [{"n": number} for number in range(5000)]

    def long() -> str:
        return "x" * 500_000

    with Exec().sync as ex:
        ex.add(rows, "a:rows")
        ex.add(long, "a:long")
        assert "… and 4900 more" in ex.run_tool("a:rows")._repr_html_()
        assert len(ex.run_tool("a:long")._repr_html_()) < 25_000


def test_a_page_is_bounded_whatever_a_reply_has() -> None:
    """Images have 10 MB together, and a list a hundred items."""

    def album() -> ToolReply:
        return ToolReply(content=[image(PNG + b"x" * 4_000_000, "image/png")] * 5)

    with Exec().sync as ex:
        ex.add(album, "a:album")
        shown = ex.run_tool("a:album")._repr_html_()
    assert shown.count("<img") == 2
    assert "… and more images" in shown
    assert lines(["x"] * 100).count("<li>") == 100
    assert lines(["x"] * 5000).count("<li>") == 101


async def test_the_blocking_methods_work_while_a_loop_runs() -> None:
    """As in the cell of a notebook, whose kernel has a running loop."""
    with Exec().sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        assert ex.run_tool("math:add", {"a": 5, "b": 3}).value == 8
