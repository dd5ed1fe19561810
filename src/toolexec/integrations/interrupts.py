"""Ask the user of a LangGraph graph, by an interrupt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from toolexec.errors import ApprovalDeniedError
from toolexec.model.json_value import JSONObject

__all__ = ["interrupt_for"]

_DECISIONS: Final = ("approve", "reject")


def interrupt_for(name: str, args: JSONObject, description: str) -> bool:
    """Interrupt the graph in which a tool is called, in the form of LangChain's human in the loop, and return whether
    its user approved the call once the graph is resumed: with `{"decisions": [{"type": "approve"}]}` or True.

    False where there is no graph, or none that can be resumed. Raises ApprovalDeniedError for any other answer.
    """
    try:  # it comes with LangGraph, and not with this extra
        from langgraph.config import get_config
        from langgraph.types import interrupt
    except ImportError:
        return False
    try:
        settings: Any = get_config().get("configurable", {})
    except RuntimeError:
        return False
    if settings.get("__pregel_checkpointer") is None:
        return False
    request = {"name": name, "args": dict(args), "description": description}
    review = {"action_name": name, "allowed_decisions": [*_DECISIONS]}
    answer: Any = interrupt({"action_requests": [request], "review_configs": [review]})
    if _is_yes(answer):
        return True
    raise ApprovalDeniedError(f"{name} was not approved; call it again only if the user wants it", op="approval")


def _is_yes(answer: object) -> bool:
    if answer is True:
        return True
    decisions: Any = cast("Mapping[str, Any]", answer).get("decisions") if isinstance(answer, Mapping) else None
    only: Any = decisions[0] if isinstance(decisions, list) and len(cast("list[Any]", decisions)) == 1 else None
    return isinstance(only, Mapping) and cast("Mapping[str, Any]", only).get("type") == "approve"
