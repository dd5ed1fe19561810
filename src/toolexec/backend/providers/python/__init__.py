"""Tools of Python modules: functions, `@tool` functions, an `Exec`, and the tools of other frameworks as they are."""
