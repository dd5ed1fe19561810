"""Write the graph of a workflow as SVG: nodes in layers from top to bottom, those of one layer side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from toolexec.workflow.graph import Graph, GraphEdge, GraphNode

_CHARACTER: Final = 7.3
_PADDING: Final = 14.0
_HEIGHT: Final = 34.0
_TALL: Final = 50.0
_GAP: Final = 28.0
_LAYER: Final = 92.0
_MARGIN: Final = 24.0
_BACK: Final = 26.0
_STYLE: Final = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;text-anchor:middle;fill:#1d1d1f}"
    ".note{font-size:11px;fill:#5f6368}.label{font-size:11px;fill:#5f6368}"
    ".node{fill:#fff;stroke:#5f6368;stroke-width:1.4}.choice,.loop{fill:#eef3fb}.start,.end{fill:#f1f3f4}"
    ".fail,.failed{stroke:#b3261e;stroke-width:2.2}.ok{stroke:#2a7f3f;stroke-width:2.2}"
    ".edge{fill:none;stroke:#5f6368;stroke-width:1.3}.back{stroke-dasharray:4 3}"
)
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#5f6368"/></marker></defs>'
)


@dataclass(slots=True)
class _Box:
    """Where a node is: the middle of its upper edge, and its size."""

    x: float
    y: float
    width: float
    height: float


def to_svg(graph: Graph) -> str:
    """Return the graph as one SVG document without scripts, links or fonts of its own; all text is escaped."""
    boxes = _placed(graph)
    backs = [edge for edge in graph.edges if edge.is_back]
    left = min((box.x - box.width / 2 for box in boxes.values()), default=0.0) - _MARGIN
    right = max((box.x + box.width / 2 for box in boxes.values()), default=0.0) + _MARGIN
    right += _BACK * min(len(backs), 6) + (_MARGIN if backs else 0)
    bottom = max((box.y + box.height for box in boxes.values()), default=0.0) + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {right - left:.0f} {bottom:.0f}"'
        f' width="{right - left:.0f}" height="{bottom:.0f}" role="img">'
    )
    parts = [head, f"<style>{_STYLE}</style>", _ARROW]
    outer = right - _MARGIN
    parts += [
        _edge(edge, boxes, outer - _BACK * (backs.index(edge) % 6 if edge.is_back else 0)) for edge in graph.edges
    ]
    parts += [_node(node, boxes[node.id]) for node in graph.nodes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _placed(graph: Graph) -> dict[str, _Box]:
    """Put each node one layer below the last one that leads to it, near the middle of all that do."""
    before: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        if not edge.is_back:
            before[edge.target].append(edge.source)
    depths: dict[str, int] = {}
    layers: list[list[GraphNode]] = []
    for node in graph.nodes:  # nodes come in the order of the source, so what leads to one is there already
        depth = depths[node.id] = max((depths[each] + 1 for each in before[node.id] if each in depths), default=0)
        while len(layers) <= depth:
            layers.append([])
        layers[depth].append(node)
    boxes: dict[str, _Box] = {}
    for depth, layer in enumerate(layers):
        _place_layer(layer, depth, before, boxes)
    return boxes


def _place_layer(layer: list[GraphNode], depth: int, before: Mapping[str, list[str]], boxes: dict[str, _Box]) -> None:
    wanted: dict[str, float] = {}
    for node in layer:
        above = [boxes[each].x for each in before[node.id] if each in boxes]
        wanted[node.id] = sum(above) / len(above) if above else 0.0
    ordered = sorted(layer, key=lambda node: wanted[node.id])
    widths = [max(len(node.label), len(node.note), 4) * _CHARACTER + 2 * _PADDING for node in ordered]
    total = sum(widths) + _GAP * (len(ordered) - 1)
    x = sum(wanted.values()) / len(ordered) - total / 2
    for node, width in zip(ordered, widths, strict=True):
        boxes[node.id] = _Box(x + width / 2, _MARGIN + depth * _LAYER, width, _TALL if node.note else _HEIGHT)
        x += width + _GAP


def _node(node: GraphNode, box: _Box) -> str:
    left, top, round_by = box.x - box.width / 2, box.y, 17 if node.kind in ("start", "end", "fail") else 4
    classes = " ".join(filter(None, ("node", node.kind, node.state)))
    middle = box.y + (20 if node.note else box.height / 2 + 4)
    if node.kind in ("choice", "loop"):
        cut, right, half = 10, box.x + box.width / 2, box.y + box.height / 2
        points = (
            f"{left:.1f},{half:.1f} {left + cut:.1f},{top:.1f} {right - cut:.1f},{top:.1f} {right:.1f},{half:.1f} "
            f"{right - cut:.1f},{top + box.height:.1f} {left + cut:.1f},{top + box.height:.1f}"
        )
        outline = f'<polygon class="{classes}" points="{points}"/>'
    else:
        outline = (
            f'<rect class="{classes}" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
            f' rx="{round_by}"/>'
        )
    where = f"line {node.at.line}: " if node.at.line else ""
    note = f'<text class="note" x="{box.x:.1f}" y="{box.y + 38:.1f}">{escape(node.note)}</text>' if node.note else ""
    return (
        f"<g><title>{escape(where + node.label)}</title>{outline}"
        f'<text x="{box.x:.1f}" y="{middle:.1f}">{escape(node.label)}</text>{note}</g>'
    )


def _edge(edge: GraphEdge, boxes: Mapping[str, _Box], outer: float) -> str:
    one, other = boxes[edge.source], boxes[edge.target]
    if edge.is_back:
        x1, y1 = one.x + one.width / 2, one.y + one.height / 2
        x2, y2 = other.x + other.width / 2, other.y + other.height / 2
        path = f"M{x1:.1f} {y1:.1f}C{outer:.1f} {y1:.1f} {outer:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        middle = (0.75 * outer + 0.125 * (x1 + x2), (y1 + y2) / 2)
    else:
        x1, y1, x2, y2 = one.x, one.y + one.height, other.x, other.y
        bend = (y2 - y1) / 2
        path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
        middle = (0.6 * x1 + 0.4 * x2, y1 + 0.4 * (y2 - y1))
    label = (
        f'<text class="label" x="{middle[0]:.1f}" y="{middle[1]:.1f}">{escape(edge.label)}</text>' if edge.label else ""
    )
    name = "edge back" if edge.is_back else "edge"
    return f'<path class="{name}" d="{path}" marker-end="url(#arrow)"/>{label}'
