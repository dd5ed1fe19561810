"""The names of changes of the workflow code: what began before them is repeated without them."""

from __future__ import annotations

from typing import Final

RECORDED: Final = "record_run"
WAITS_SHOWN: Final = "waits in the memo"
REFUSED: Final = "refused by the check"
EXCESS: Final = "calls with too many arguments are recorded"
NAMED: Final = "activities are named by steps"
FAILS: Final = "failed runs are failed workflows"
RESTS: Final = "sandboxes say when code rests"
LIMITS: Final = "time limits are for what is between waits"
