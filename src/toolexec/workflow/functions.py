"""The standard library of workflows as one table, which the checker, the machine and the documentation read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.workflow.library.data import DATA
from toolexec.workflow.library.dates import DATES
from toolexec.workflow.library.function import Function
from toolexec.workflow.library.lists import LISTS
from toolexec.workflow.library.numbers import NUMBERS
from toolexec.workflow.library.objects import OBJECTS
from toolexec.workflow.library.text import TEXT

FUNCTIONS: Final[Mapping[str, Function]] = {
    function.name: function
    for library in (TEXT, NUMBERS, LISTS, OBJECTS, DATA, DATES)
    for function in library.functions
}
"""All functions by name, by subject."""
