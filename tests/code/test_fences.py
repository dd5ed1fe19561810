"""Programs in a Markdown code block."""

from __future__ import annotations

import pytest

from toolexec.code.fences import without_fence


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("```python\n1 + 1\n```", "\n1 + 1"),
        ("```\n1 + 1\n```\n", "\n1 + 1"),
        ("\n\n```py\n1\n2\n```\n\n", "\n\n\n1\n2"),
        ("~~~ javascript\nreturn 1\n~~~", "\nreturn 1"),
        ("````python\nx = '''\n```\n'''\n````", "\nx = '''\n```\n'''"),
        ("```python\r\n1\r\n```\r\n", "\n1\r"),
        ("  ```python\n  1\n  ```", "\n  1"),
        ("```python\n1", "\n1"),
        ("```", ""),
        ("", ""),
        ("1 + 1", "1 + 1"),
        ("x = '''\n```\n'''", "x = '''\n```\n'''"),
        ("```not a fence```\n1\n```", "```not a fence```\n1\n```"),
        ("Here it is:\n```python\n1\n```", "Here it is:\n```python\n1\n```"),
        ("```python\n1\n```\nDone.", "\n1\n```\nDone."),
    ],
)
def test_without_fence(code: str, plain: str) -> None:
    """The fence around the whole goes, everything else stays, and lines keep their numbers."""
    assert without_fence(code) == plain
    assert without_fence(plain) == plain
