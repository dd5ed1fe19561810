"""Names of the standard library that a Python program uses and has not imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

from toolexec.code.repair.bare_names import catalogue_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools

_LONGEST_LINE: Final = 200
_NO_NAME: Final = re.compile(r"NameError: name '(\w+)' is not defined")
_MODULES: Final[Mapping[str, str]] = {
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "dataclasses": "asdict dataclass field replace",
    "datetime": "date datetime timedelta timezone",
    "decimal": "Decimal ROUND_HALF_UP",
    "enum": "Enum",
    "fractions": "Fraction",
    "functools": "cache lru_cache partial reduce",
    "io": "BytesIO StringIO",
    "itertools": "accumulate chain combinations count groupby islice permutations product",
    "math": "ceil floor inf isclose sqrt",
    "operator": "attrgetter itemgetter",
    "pathlib": "Path",
    "statistics": "fmean mean median mode pstdev stdev",
    "typing": "Any Dict List Optional Tuple Union",
    "uuid": "uuid4",
    "zoneinfo": "ZoneInfo",
}
HOME: Final = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Name → the module that programs import it from."""


def about_missing_imports(failure: Failure, tools: Tools | None) -> str:
    """Return the import to write for a name that is not defined; "" where it is none of the standard library, or may be
    a tool."""
    found = _NO_NAME.match(failure.message) if failure.language == "python" else None
    module = HOME.get(found[1], "") if found is not None else ""
    if found is not None and not module and found[1] in sys.stdlib_module_names and f"{found[1]}." in failure.code:
        line = next((each for each in failure.code.splitlines() if each.strip()), "")
        is_first = failure.code.count(line) == 1 and len(line) < _LONGEST_LINE
        about = f"`{found[1]}` is not imported"
        return f"{about}: {instead(line, f'import {found[1]}{chr(10)}{line}')}" if is_first else about
    if found is None or not module or (tools is not None and found[1] in catalogue_of(tools.index).tools):
        return ""
    name = found[1]
    about = f"`{name}` is in `{module}`"
    if imported := re.search(rf"^[ \t]*(from {module} import [\w, ]*\w)[ \t]*$", failure.code, re.MULTILINE):
        return f"{about}: {instead(imported[1], f'{imported[1]}, {name}')}"
    if re.search(rf"^[ \t]*import {module}\b", failure.code, re.MULTILINE):
        return f"{about}: {instead(name, f'{module}.{name}')}"
    line = next((each for each in failure.code.splitlines() if each.strip()), "")
    is_first = failure.code.count(line) == 1 and len(line) < _LONGEST_LINE
    return f"{about}: {instead(line, f'from {module} import {name}{chr(10)}{line}')}" if is_first else about
