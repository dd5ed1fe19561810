"""Tools of Python modules: functions, `@tool` functions, an `Exec`, and the tools of other frameworks as they are."""

from __future__ import annotations

from toolexec.backend.providers.python.source import PythonSettings, PythonSource, python_source

__all__ = ["PythonSettings", "PythonSource", "python_source"]
