"""The page of the errors, from their classes."""

from __future__ import annotations

import inspect

from toolexec import errors
from website.doctests import fenced

_HEAD = """\
# Errors

Look up an error by its class or its code. Each carries a stable `code`, and, where they are known, `tool_id`, `op`,
`backend`, `retryable` and `details`.

```python
from toolexec import Exec, ToolExecError

with Exec().sync as ex:
    try:
        ex.run_tool("math:ad")
    except ToolExecError as error:
        print(error.code, error.retryable)
```

[Error handling](../error-handling.md) says which of them are raised, which come as values, and what to do with each;
[the API](api/errors.md) has their constructors.

| Code | Class | Retryable |
|---|---|---|
"""


def classes() -> list[type[errors.ToolExecError]]:
    """Return all classes of errors, each below its parent."""
    found = [getattr(errors, name) for name in errors.__all__]
    kinds = [cls for cls in found if inspect.isclass(cls) and issubclass(cls, errors.ToolExecError)]

    def below(parent: type[errors.ToolExecError]) -> list[type[errors.ToolExecError]]:
        return [parent, *(each for kind in kinds if _parents(kind)[:1] == [parent] for each in below(kind))]

    return below(errors.ToolExecError)


def _parents(cls: type[errors.ToolExecError]) -> list[type[errors.ToolExecError]]:
    """Return the public classes that a class is one of, the nearest first."""
    return [each for each in cls.__mro__[1:] if getattr(errors, each.__name__, None) is each]


def codes_of(cls: type[errors.ToolExecError]) -> tuple[str, ...]:
    """Return the codes of a class that are its own."""
    return (cls.code, *vars(cls).get("further_codes", ()))


def errors_page() -> str:
    """Return the page: a row for each code, and a section for each class."""
    lines = [_HEAD.rstrip()]
    for code, name in sorted((code, cls.__name__) for cls in classes() for code in codes_of(cls)):
        retryable = "yes" if getattr(errors, name).default_retryable else "no"
        lines.append(f"| `{code}` | [`{name}`](#{name.lower()}) | {retryable} |")
    for cls in classes():
        parents = [f"[`{each.__name__}`](#{each.__name__.lower()})" for each in _parents(cls)]
        path = " ← ".join([f"`{cls.__name__}`", *parents])
        codes = ", ".join(f"`{code}`" for code in codes_of(cls))
        word = "Codes" if "," in codes else "Code"
        lines += ["", f"## {cls.__name__}", "", f"{path}. {word}: {codes}.", "", fenced(inspect.getdoc(cls) or "")]
    return "\n".join(lines) + "\n"
