"""A context variable has its value in a block only, and a coroutine that is dropped ends without an error."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import pytest

from toolexec.model.bound import Bound

NAME: ContextVar[str] = ContextVar("name", default="")


def test_it_holds_in_the_block() -> None:
    """The earlier value is there again, also after a failure."""
    with Bound(NAME, "outer"):
        with pytest.raises(KeyError), Bound(NAME, "inner") as given:
            assert (given, NAME.get()) == ("inner", "inner")
            raise KeyError
        assert NAME.get() == "outer"
    assert NAME.get() == ""


async def _waiting() -> None:
    with Bound(NAME, "waiting"):
        await _Turn()


class _Turn:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield


def test_a_coroutine_is_closed_elsewhere() -> None:
    """Its end is quiet, and the context that it is closed in keeps its own value."""
    work = _waiting()
    copy_context().run(work.send, None)
    with Bound(NAME, "here"):
        work.close()
        assert NAME.get() == "here"


def test_a_block_that_goes_on_elsewhere_is_a_mistake() -> None:
    """Only what is dropped may end in another context."""
    work = _waiting()
    copy_context().run(work.send, None)
    with pytest.raises(ValueError, match="different Context"):
        work.send(None)
