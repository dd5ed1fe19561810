"""The former names of parts of the suites."""

from __future__ import annotations

from importlib import import_module

import pytest

FORMER = {
    ("backend_suite", "exam_tools"): "suite_tools",
    ("runner_suite", "Exam"): "RunnerTestbed",
    ("runtime_suite", "RuntimeExam"): "RuntimeTestbed",
    ("sandbox_suite", "SandboxExam"): "SandboxTestbed",
    ("sandbox_suite", "open_exam"): "open_testbed",
}


@pytest.mark.parametrize(("home", "former"), FORMER)
def test_a_former_name_warns(home: str, former: str) -> None:
    """A former name warns and gives the object of the new name."""
    module, name = import_module(f"toolexec.testing.{home}"), FORMER[home, former]
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(module, former) is getattr(module, name)


def test_an_unknown_name() -> None:
    """An unknown name is an AttributeError."""
    with pytest.raises(AttributeError, match="nothing"):
        _ = import_module("toolexec.testing.runner_suite").nothing
