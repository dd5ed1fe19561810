"""What a person reads of a call that is to be approved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.cli.approval_prompt import question as terminal_question
from toolexec.errors import ApprovalRequiredError
from toolexec.model.approval_text import MAX_SHOWN, approval_details, argument_lines, request_from
from toolexec.model.origin import ApprovalRequest
from toolexec.server.elicitation import question as client_question

PADDING = {f"note{number:02}": "x" * 300 for number in range(20)}


def test_padding_hides_no_argument() -> None:
    """All arguments are shown, those first that have changed, and then the required ones."""
    args = {**PADDING, "q": "DROP TABLE users", "limit": 3}
    request = ApprovalRequest(tool_id="db:run", args=args, reason="r", required=("q",), changed=("limit",))
    lines = argument_lines(request)
    assert lines[:2] == ["limit (changed): 3", 'q (required): "DROP TABLE users"']
    assert len(lines) == 22
    for text in (client_question(request).params.message, terminal_question(request)):
        assert all(line in text for line in lines)


@pytest.mark.parametrize("show", [argument_lines, client_question, terminal_question])
def test_what_cannot_be_shown_whole_is_refused(show: object) -> None:
    """The error names the argument and says what to do."""
    request = ApprovalRequest(tool_id="fs:write", args={"path": "/a", "content": "x" * MAX_SHOWN}, reason="r")
    assert callable(show)
    with pytest.raises(
        ApprovalRequiredError, match=r"The longest is content with 10,\d\d\d: shorten it, or have"
    ) as why:
        show(request)
    assert why.value.details["argument"] == "content"
    long_name = ApprovalRequest(tool_id="fs:write", args={"x" * MAX_SHOWN: 1}, reason="r")
    with pytest.raises(ApprovalRequiredError, match="one with a very long name") as why:
        show(long_name)
    assert len(str(why.value)) < 1000


def test_what_is_redacted_is_named() -> None:
    """A line says where secrets were taken out."""
    args = {"token": "[REDACTED]", "body": {"a": ["x", "Bearer [REDACTED]"]}, "n": 1}
    assert argument_lines(ApprovalRequest(tool_id="a:b", args=args, reason="r")) == [
        'token (redacted): "[REDACTED]"',
        'body (redacted at "/a/1"): {"a":["x","Bearer [REDACTED]"]}',
        "n: 1",
    ]


def test_what_hides_is_shown() -> None:
    """Names and values show control, hidden and reordering characters as escapes, on one line."""
    args = {"a\u202e": "b\u200b\U000e0041\n\x1b[31m", "x: 1\ny": None}
    assert argument_lines(ApprovalRequest(tool_id="a:b", args=args, reason="r")) == [
        r'"a\u202e": "b\u200b\udb40\udc41\n\u001b[31m"',
        r'"x: 1\ny": null',
    ]


@given(st.dictionaries(st.text(), st.text() | st.integers()), st.lists(st.text()))
def test_a_line_for_each_argument(args: dict[str, object], marked: list[str]) -> None:
    """Each argument has one line, whatever is in it, also after its question was kept as JSON."""
    request = ApprovalRequest(tool_id="a:b", args=args, reason="r", required=tuple(marked), changed=tuple(marked))
    lines = argument_lines(request)
    assert len(lines) == len(args)
    assert all("\n" not in line for line in lines)
    assert argument_lines(request_from(approval_details(request))) == lines
