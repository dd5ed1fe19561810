"""Former paths of modules."""

from __future__ import annotations

import importlib

import pytest

from toolexec.runtime.moved import MOVED


@pytest.mark.parametrize("former", MOVED)
def test_a_former_path_gives_the_same_names_and_warns(former: str) -> None:
    """Importing from it works for one release."""
    now = importlib.import_module(f"toolexec.runtime.{MOVED[former]}")
    module = importlib.import_module(f"toolexec.runtime.{former}")
    if not hasattr(now, "__all__"):  # a package that has nothing but modules
        assert f"{former}." in "\n".join(MOVED)
        return
    name = now.__all__[0]
    with pytest.warns(DeprecationWarning, match=f"toolexec.runtime.{MOVED[former]} now"):
        assert getattr(module, name) is getattr(now, name)


def test_what_was_never_there_is_not_found() -> None:
    """A former package has nothing but the modules that moved."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("toolexec.runtime.backend.nothing")
