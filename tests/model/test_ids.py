"""Tool IDs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import InvalidToolIDError
from toolexec.model.ids import MAX_NAME_LENGTH, ToolID, check_segment, clean_segment

segments = st.from_regex(r"[A-Za-z0-9_.\-]{1,12}", fullmatch=True)


class TestParse:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("read", ToolID("read")),
            ("filesystem:read", ToolID("read", "filesystem")),
            ("filesystem:read:1.0.0", ToolID("read", "filesystem", "1.0.0")),
            ("a:b:c", ToolID("b", "a", "c")),
            ("a:b:1.0.0-rc.1+build.5", ToolID("b", "a", "1.0.0-rc.1+build.5")),
            ("x" * 128, ToolID("x" * 128)),
        ],
    )
    def test_parts(self, text: str, expected: ToolID) -> None:
        """One, two or three parts; the version is a part of its own."""
        assert ToolID.parse(text) == expected
        assert str(expected) == text

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "its name is empty"),
            (":", "its namespace is empty"),
            (":name", "its namespace is empty"),
            ("namespace:", "its name is empty"),
            ("a::c", "its name is empty"),
            ("a:b:", "its version is empty"),
            ("a:b:c:d", "write name, namespace:name or namespace:name:version"),
            ("a b", "its name contains ' '"),
            ("bad@name#here", "contains '@' '#'"),
            ("ns/x:tool", "its namespace contains '/'"),
            ("tööl", "contains 'ö'"),
            ("a+b", "contains '+'"),
            ("a\n", r"contains '\n'"),
            ("x" * 129, "its name has 129 characters; 128 is the most"),
        ],
    )
    def test_refuses(self, text: str, problem: str) -> None:
        """The error names the part and what is wrong with it."""
        with pytest.raises(InvalidToolIDError) as caught:
            ToolID.parse(text)
        assert problem in str(caught.value)
        assert caught.value.tool_id == text

    @pytest.mark.parametrize("value", [None, 7, b"a:b", ["a"]])
    def test_refuses_other_types(self, value: Any) -> None:
        """Refuses other types as invalid IDs, without a crash."""
        with pytest.raises(InvalidToolIDError):
            ToolID.parse(value)

    def test_hostile_text_does_not_flood_the_error(self) -> None:
        """A megabyte of nonsense gives a short message."""
        with pytest.raises(InvalidToolIDError) as caught:
            ToolID.parse("!" * 1_000_000)
        assert len(str(caught.value)) < 500
        assert len(caught.value.tool_id or "") == 200

    @given(segments, st.one_of(st.just(""), segments), st.one_of(st.just(""), segments))
    def test_round_trip(self, name: str, namespace: str, version: str) -> None:
        """`parse` reads what `str` writes."""
        tool_id = ToolID(name, namespace, version if namespace else "")
        assert ToolID.parse(str(tool_id)) == tool_id

    @given(st.text(alphabet="ab:.@ \n", max_size=8))
    def test_any_text_parses_or_is_refused(self, text: str) -> None:
        """There is no third outcome, and what parses is written back as it was."""
        try:
            parsed = ToolID.parse(text)
        except InvalidToolIDError:
            return
        assert str(parsed) == text
        assert (":" in text) == bool(parsed.namespace)


class TestSegments:
    def test_check_segment(self) -> None:
        """None means fine; versions may also have a plus."""
        assert check_segment("a-b_c.d") is None
        assert check_segment("1.0+x", version=True) is None
        assert check_segment("1.0+x") is not None
        assert check_segment("") == "is empty"
        assert check_segment("a" * (MAX_NAME_LENGTH + 1)) is not None

    @pytest.mark.parametrize(
        ("foreign", "clean"),
        [
            ("@scope/server", "scope-server"),
            ("my tool!", "my-tool"),
            ("ok", "ok"),
            ("日本", ""),
            ("a" * 300, "a" * 128),
        ],
    )
    def test_clean_segment(self, foreign: str, clean: str) -> None:
        """A foreign name becomes the nearest legal one, or nothing."""
        assert clean_segment(foreign) == clean
