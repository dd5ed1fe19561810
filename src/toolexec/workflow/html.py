"""A workflow as a graph in HTML, for notebooks."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from toolexec.model.html import card, text

if TYPE_CHECKING:
    from toolexec.workflow.graph import Graph
    from toolexec.workflow.skill import Skill

__all__ = ["graph_html", "skill_html"]


def graph_html(graph: Graph) -> str:
    """Return the graph as an image: what is in it can neither run nor change the page."""
    from toolexec.workflow.graph_svg import to_svg

    data = base64.b64encode(to_svg(graph).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" style="max-width:100%" alt="workflow">'


def skill_html(skill: Skill) -> str:
    """Return a skill: its ID, what it does, and its graph."""
    from toolexec.workflow.graph import graph_of

    drawn = graph_of(skill.workflow, skill.source)
    return card(f"<code>{text(skill.id)}</code> {text(skill.header.description)}", graph_html(drawn))
