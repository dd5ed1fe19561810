"""The picture of a workflow, before and after a run."""

from xml.etree import ElementTree as ET

from toolexec.workflow.graph import CallOutcome, Graph, graph_of, to_mermaid
from toolexec.workflow.graph_svg import to_svg
from toolexec.workflow.nodes import NOWHERE, Position
from toolexec.workflow.parser import parse

SOURCE = """input repo: string
issues := run("github:list_issues", {repo})
if len(issues) == 0 {
  return "none"
}
for issue in issues {
  if issue.number > 3 { break }
  run("slack:send", {text: "${run("files:read", {path: issue.title})}"})
}
both := parallel {
  a: retry 3 { run("files:read", {path: "a"}) }
  b: try { run("files:read", {path: "b"}) } catch { "none" }
}
both
"""


def drawn(source: str = SOURCE) -> Graph:
    return graph_of(parse(source), source)


def arrows(graph: Graph) -> set[tuple[str, str, str]]:
    """Return the edges by the labels of their nodes; those that lead back as `back`, or with their label."""
    labels = {node.id: node.label for node in graph.nodes}
    return {(labels[e.source], e.label or ("back" if e.is_back else ""), labels[e.target]) for e in graph.edges}


def test_calls_choices_and_loops_are_nodes() -> None:
    """Calls inside of others come before them; a loop goes round, and ends by break or when it is done."""
    found = arrows(drawn())
    assert ("start: repo", "", "github:list_issues") in found
    assert ("github:list_issues", "", "len(issues) == 0") in found
    assert ("len(issues) == 0", "yes", "end") in found
    assert ("len(issues) == 0", "no", "for issue in issues") in found
    assert ("files:read", "", "slack:send") in found
    assert ("slack:send", "back", "for issue in issues") in found
    assert ("issue.number > 3", "yes", "parallel") in found
    assert ("for issue in issues", "done", "parallel") in found
    assert ("parallel", "a", "retry 3") in found
    assert ("files:read", "again", "retry 3") in found
    assert ("parallel", "b", "try") in found
    assert ("try", "error", "end") in found


def test_mermaid_text_is_escaped() -> None:
    """Strings of a workflow cannot add nodes or markup to the picture."""
    text = to_mermaid(drawn('if "<b>\\"] --> x" == "" {\n  fail "#1 `x`"\n}\n'))
    assert text.startswith("flowchart TD\n")
    assert "<b>" not in text
    assert "#lt;b#gt;" in text
    assert text.count("-->") == 3


def test_svg_has_every_node() -> None:
    """The picture is well-formed, without scripts, and no two nodes of a layer overlap."""
    graph = drawn()
    root = ET.fromstring(to_svg(graph))
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.partition(": ")[2] if title.startswith("line") else title for title in titles] == [
        node.label for node in graph.nodes
    ]
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    for number, (x, y, width) in enumerate(boxes):
        assert all(y != other[1] or x + width <= other[0] or other[0] + other[2] <= x for other in boxes[number + 1 :])


def test_svg_is_escaped() -> None:
    """Strings of a workflow are text in the picture."""
    root = ET.fromstring(to_svg(drawn('if "<script>" == "&" {\n  fail "x"\n}\n')))
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_calls_of_a_run_are_shown_where_they_are_written() -> None:
    """A node has the number of its calls, their time and the last failure."""
    graph = drawn()
    at = next(node.at for node in graph.nodes if node.label == "github:list_issues")
    graph.add_calls(
        [
            CallOutcome(at, "github:list_issues", 0.25),
            CallOutcome(NOWHERE, "slack:send", 1.5, "tool_timeout"),
            CallOutcome(NOWHERE, "slack:send", 0.5),
            CallOutcome(NOWHERE, "files:read", 0.1),
            CallOutcome(Position(99, 1, 99, 2), "no:such", 0.1),
        ]
    )
    notes = {node.label: (node.note, node.state) for node in graph.nodes if node.calls}
    assert notes == {
        "github:list_issues": ("250 ms", "ok"),
        "slack:send": ("2 calls, 2.0 s, 1 failed: tool_timeout", "ok"),
    }
    assert ":::ok" in to_mermaid(graph)
    assert "250 ms" in to_svg(graph)
