"""The sets of programs that were written blindly, each with the tools that its programs call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.repair import add_tools
from benchmarks.repair_harbour import add_harbour_tools
from benchmarks.repair_ops import add_ops_tools
from benchmarks.repair_projects import add_project_tools
from benchmarks.repair_resort import add_resort_tools
from benchmarks.repair_store import add_store_tools
from benchmarks.repair_support import add_support_tools
from benchmarks.repair_tools import add_office_tools
from benchmarks.repair_town import add_town_tools
from benchmarks.repair_travel import add_travel_tools
from toolexec import Exec

BLIND: Final[Mapping[str, Callable[[Exec], None]]] = {
    "blind": add_tools,
    "blind2": add_tools,
    "blind3": add_office_tools,
    "blind4": add_support_tools,
    "blind5": add_project_tools,
    "blind6": add_travel_tools,
    "blind7": add_town_tools,
    "blind8": add_resort_tools,
    "blind9": add_harbour_tools,
    "blind10": add_ops_tools,
    "blind11": add_harbour_tools,
    "blind12": add_store_tools,
    "blind13": add_store_tools,
}
"""The sets that were written without a look at the repairs, with what adds their tools."""
