"""Go on with runs of workflows in a process of its own: states come in as JSON, results go out as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.workflow.running import finish, program_of

from toolexec.workflow.machine import restore


def main() -> None:
    for line in sys.stdin:
        task: dict[str, Any] = json.loads(line)
        program = program_of(task["source"])
        found = [finish(restore(program, saved["state"]), saved["counts"]).summary() for saved in task["saved"]]
        print(json.dumps(found))


if __name__ == "__main__":
    main()
