"""The page of the examples: each program, with what it is for."""

from __future__ import annotations

import ast

from website.sources import ROOT, example_anchor

_HEAD = """\
# Examples

Read a whole program for each part, and run it. Each fits on a screen or two, and prints what its docstring says.

```sh
python examples/basic.py
```
"""


def examples_page() -> str:
    """Return the page: a section for each program."""
    lines = [_HEAD]
    for path in sorted(ROOT.glob("examples/*.py")) + sorted(ROOT.glob("packages/*/examples/*.py")):
        text = path.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(text)) or path.stem).split("\n\n")[0]
        name = path.relative_to(ROOT).as_posix()
        lines += [f"## {example_anchor(name)}", "", about, "", f'```python title="{name}"', text.rstrip(), "```", ""]
    return "\n".join(lines)
