"""Settings that are declared once, as fields of a dataclass with their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from toolexec.errors import ConfigurationError
from toolexec.model.declared import Bytes, Seconds, about, annotation_of, declared, duration, form_of, setting
from toolexec.model.settings import checked


@checked("Door")
@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    name: str = field(metadata=about("What it is called."))
    wait: Seconds = duration(1.0, "How long it stays open.")
    share: float = setting(0.5, "How far.", least=0, most=1)
    room: Bytes = setting(10, "How large.", least=1, file_least=5)
    code: str = setting("", "What opens it.", secret=True)
    seen: int = 0


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"wait": 0}, "Door: wait must be above 0 seconds and below 10000000 seconds, not 0"),
        ({"wait": 1e7}, "not 10000000.0"),
        ({"wait": "long"}, "Door: wait must be a number, not"),
        ({"share": 1.5}, "Door: share must be 0 to 1, not 1.5"),
        ({"share": -1}, "Door: share must be 0 to 1, not -1"),
        ({"room": 0}, "Door: room must be 1 or more, not 0"),
        ({"room": True}, "Door: room must be an integer, not True"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused(values: dict[str, object], problem: str) -> None:
    """The first call refuses it, and those after it, which are faster; the setting is named."""
    for _ in range(5):
        with pytest.raises(ConfigurationError) as caught:
            Door(name="a", **values)  # type: ignore[arg-type]
        assert problem in str(caught.value)
        assert caught.value.details["setting"] == next(iter(values))
        Door(name="a")


def test_bounds_are_allowed_themselves() -> None:
    """Programs may give what files may not."""
    assert Door(name="a", share=1, room=1).room == 1


def test_what_is_declared_can_be_read() -> None:
    """A setting has its help, its bounds and the form that files may write it in."""
    assert [*declared(Door)] == ["name", "wait", "share", "room", "code"]
    assert declared(Door)["room"].file_least == 5
    assert declared(Door)["name"].help == "What it is called."
    form = form_of(annotation_of(Door, "room"))
    assert form is not None
    assert form.name == "size"
    assert form_of(annotation_of(Door, "share")) is None
    assert declared(None) == {}


def test_secret_settings_are_not_shown() -> None:
    """The repr of what has them leaves them out."""
    assert "hush" not in repr(Door(name="a", code="hush"))
