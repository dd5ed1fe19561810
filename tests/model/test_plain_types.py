"""The schemas of plain types are those that pydantic writes, and need no pydantic."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any, Optional, get_args

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model import declare
from toolexec.model.json_value import to_json
from toolexec.model.plain_types import plain_schema

SCALARS: list[Any] = [str, int, float, bool, Any, object, list, dict]
DEFAULTS: list[Any] = [None, True, False, 0, 1, 2.0, 2.5, float("inf"), "", "a", (1,), [1], {"a": 1}, b"a", {1}]

TYPES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),
        inner.map(lambda each: dict[str, each]),
        inner.map(lambda each: Optional[each]),  # noqa: UP045 - `|` does not take every annotation
    ),
    max_leaves=4,
)


@given(annotation=TYPES)
def test_a_plain_type_has_the_schema_of_pydantic(annotation: Any) -> None:
    """A type of the table, or made of them, has pydantic's schema with the keys in its order, or is left to it."""
    found = plain_schema(annotation)
    if found is not None:
        wanted = pydantic.TypeAdapter(annotation).json_schema()
        assert (found, repr(found)) == (wanted, repr(wanted))


@pytest.mark.parametrize("annotation", [*SCALARS, list[str], dict[str, Any], int | None, list[dict[str, float]]])
def test_usual_types_are_plain(annotation: Any) -> None:
    """The types of most functions need no pydantic."""
    assert plain_schema(annotation) is not None


@pytest.mark.parametrize("annotation", [bytes, tuple[int], dict[int, str], int | str, set[str], None, list["int"], []])
def test_other_types_are_left_to_pydantic(annotation: Any) -> None:
    """Any other annotation has no schema here."""
    assert plain_schema(annotation) is None


@given(annotation=TYPES, default=st.sampled_from(DEFAULTS))
def test_a_default_is_written_as_pydantic_writes_it(annotation: Any, default: Any) -> None:
    """A parameter has pydantic's schema, and the default that pydantic makes of its own, if that has a JSON form."""

    def function(x: Any = default) -> None:
        """Takes x."""

    function.__annotations__["x"] = annotation
    takes_none = annotation in (Any, object) or default is not None or type(None) in get_args(annotation)
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(annotation if takes_none else annotation | None)
    wanted = adapter.json_schema()
    with suppress(Exception):
        wanted["default"] = to_json(adapter.dump_python(default, mode="json", warnings=False, fallback=to_json))
    found = declare(function).tool.input_schema.to_json()["properties"]["x"]
    assert (found, repr(found.get("default"))) == (wanted, repr(wanted.get("default")))


def test_a_program_with_plain_types_imports_no_pydantic() -> None:
    """A function of plain types is added and called without pydantic, blocking or not."""
    program = """
import sys
from toolexec import Exec
def add(a: int, b: float = 1.0, tags: list[str] | None = None, **more: str) -> dict[str, float]:
    return {"sum": a + b}
with Exec().sync as ex:
    ex.add(add, "math:add")
    ex.add(lambda a: a, "math:same")
    print(ex.run_tool("math:add", {"a": 2, "tags": None}).value, ex.run_tool("math:same", {"a": 2}).value)
print(sorted(name for name in sys.modules if name.startswith("pydantic")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{'sum': 3.0} 2\n[]\n"
