"""Options: every one has a default, and values that make no sense are refused."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from toolexec import Exec, InMemoryIndex, Options
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryDocStore
from toolexec.errors import ConfigurationError


def test_defaults() -> None:
    """Checks are on, calls have 30 s, code may make 100 calls, and the language is Python."""
    options = Options()
    assert options.validate_input is True
    assert options.validate_output is None
    assert options.default_timeout == 30
    assert options.tool_calls == 100
    assert options.max_timeout is None
    assert options.default_language == "python"
    assert options.security_profile == "standard"
    assert options.enable_code_execution is True


@pytest.mark.parametrize(
    "settings",
    [
        {"default_timeout": 0},
        {"default_timeout": -1},
        {"default_timeout": math.nan},
        {"start_timeout": 0},
        {"start_timeout": math.nan},
        {"max_tool_calls": -1},
        {"security_profile": "paranoid"},
        {"validate_output": "loud"},
        {"validate_output": 5},
    ],
)
def test_values_that_make_no_sense(settings: dict[str, Any]) -> None:
    """Each is refused when the Exec is made, with the name of the option."""
    name = next(iter(settings))
    with pytest.raises(ConfigurationError, match=name):
        Exec(**settings)


@pytest.mark.parametrize("profile", ["dev", "standard", "hardened", "wasm"])
def test_security_profiles(profile: Any) -> None:
    """The four profiles are accepted."""
    assert Options(security_profile=profile).security_profile == profile


@pytest.mark.parametrize(
    ("given", "meaning"),
    [(None, None), (True, "strict"), (False, "off"), ("strict", "strict"), ("warn", "warn"), ("off", "off")],
)
def test_output_validation_in_words_and_switches(given: Any, meaning: str | None) -> None:
    """True is strict, False is off, None leaves it to the kind of tool."""
    assert Options(validate_output=given).output_validation == meaning


def test_unknown_settings() -> None:
    """A misspelt option is refused, and the nearest one is named."""
    with pytest.raises(
        ConfigurationError, match=r"Exec has no setting 'defaulttimeout'; did you mean default_timeout\?"
    ):
        Exec(defaulttimeout=5)  # pyright: ignore[reportCallIssue]


def test_they_cannot_be_changed() -> None:
    """Options are a value; `dataclasses.replace` makes another one."""
    with pytest.raises(FrozenInstanceError):
        Options().default_timeout = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_options_and_keywords() -> None:
    """Keywords change single settings of the given options, which stay as they are."""
    options = Options(default_timeout=5, validate_input=False)
    ex = Exec(options, default_timeout=7)
    assert (ex.options.default_timeout, ex.options.validate_input) == (7, False)
    assert options.default_timeout == 5


def test_parts_of_ones_own() -> None:
    """The given index, docs and backends are the very ones in use."""
    index = InMemoryIndex()
    docs, backends = InMemoryDocStore(index), BackendRegistry()
    ex = Exec(index=index, docs=docs, backends=backends)
    assert ex.index is index
    assert ex.docs is docs
    assert ex.backends is backends
