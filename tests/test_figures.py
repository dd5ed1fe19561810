"""The report of figures: it is printed, and nothing fails by what it says."""

from __future__ import annotations

import pytest
from tests import figures


def test_the_report_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Show every package, the public names and the engines."""
    figures.main(["--quick"])
    lines = capsys.readouterr().out.splitlines()
    for beginning in (
        "runtime ",
        "packages/grpc ",
        "all ",
        "names of the front door ",
        "classes of errors ",
        "gvisor ",
    ):
        assert [line for line in lines if line.startswith(beginning)], beginning
