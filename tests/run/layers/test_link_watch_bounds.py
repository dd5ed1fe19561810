"""What a watch does not look at, and how little it keeps."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from tests.run.layers.link_approvals import LINK, SESSION, Approvals

from toolexec.errors import ConfigurationError
from toolexec.model.origin import Origin
from toolexec.model.redaction import redactor
from toolexec.run import ToolCall
from toolexec.run.layers.link_watch import LinkWatch


@pytest.fixture(autouse=True)
def no_known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards which secrets a test gave to the redactor."""
    monkeypatch.setattr(redactor, "_known", redactor._known)


class TestWhatDoesNotCount:
    """Values that mean nothing, and those that must stay secret."""

    @pytest.mark.parametrize(
        "value", [True, None, "abc", 99, -500, 1.5, 2**70, "x" * 201, "", {"a": {"b": {"c": {"d": {"e": "job-1"}}}}}]
    )
    async def test_values(self, value: Any) -> None:
        """Short strings, small numbers, floats, booleans, long strings, and what is nested too deeply."""
        approvals = Approvals()
        approvals.gives["begin"] = {"ref": value, "deep": "job-1"}
        await approvals.call("begin")
        await approvals.call("go", handle=value)
        assert approvals.seen() == []

    async def test_what_the_schema_says(self) -> None:
        """Enumerations, defaults and secrets are no links."""
        schema = {
            "type": "object",
            "properties": {
                "mode": {"enum": ["open", "closed"]},
                "modes": {"type": "array", "items": {"enum": ["open"]}},
                "size": {"type": "integer", "default": 500},
                "hidden": {"type": "string", "format": "password"},
                "handle": {"type": "string", "default": "else"},
            },
        }
        approvals = Approvals(go=schema)
        approvals.gives["begin"] = {"a": "open", "b": 500, "c": "quite secret", "job": {"ref": "job-1"}}
        await approvals.call("begin")
        await approvals.call("go", mode="open", modes=["open"], size=500, hidden="quite secret", handle="job-1")
        assert approvals.seen() == [LINK]

    async def test_secrets(self) -> None:
        """Values of sensitive names and known secrets are not even remembered."""
        approvals = Approvals()
        redactor.add("known-secret-77")
        approvals.gives["begin"] = {
            "api_key": "value-1",
            "plain": "known-secret-77",
            "x": {"password": {"deep": "value-2"}},
        }
        await approvals.call("begin")
        assert len(approvals.watch._seen) == 0
        await approvals.call("go", token="value-1", plain="known-secret-77", deep="value-2")
        assert approvals.seen() == []

    async def test_names_that_are_data(self) -> None:
        """A path must not give away what is in a result, so keys that look like data end it."""
        approvals = Approvals()
        approvals.gives["begin"] = {
            "ann@example.com": {"id": "job-1"}, "order-12345": {"id": "job-2"}, "two words": "job-3",
            "x" * 80: "job-4", "fine": "job-5",
        }  # fmt: skip
        await approvals.call("begin")
        await approvals.call("go", a=["job-1", "job-2", "job-3", "job-4"], b="job-5", **{"bob@example.com": "job-5"})
        assert approvals.seen() == [("t:begin", "fine", "t:go", "b", 1, 1)]

    async def test_arguments_that_are_none(self) -> None:
        """The runner refuses them; the watch does not mind."""
        approvals = Approvals()
        for args in (None, {}, ["job-1"], {3: "job-1"}):
            assert approvals.watch.before(ToolCall("t:go", args)) == {}  # type: ignore[arg-type]


class TestBounds:
    """What is kept, how much of it, and for how long."""

    async def test_no_value_is_kept(self) -> None:
        """After the calls their values are nowhere in the watch: only hashes with a key of its own, and names."""
        approvals = Approvals()
        secret = "a-value-that-nobody-keeps-0815"
        approvals.gives["begin"] = {"job": {"ref": secret}}
        await approvals.call("begin")
        await approvals.call("go", handle=secret)
        approvals.gives.clear()
        assert approvals.seen() == [LINK]
        reached, todo = {id(approvals.watch)}, [approvals.watch._seen, approvals.watch.observations]
        for thing in todo:
            for inner in gc.get_referents(thing):
                if id(inner) not in reached and not isinstance(inner, type) and type(inner).__name__ != "module":
                    reached.add(id(inner))
                    todo.append(inner)
                    assert inner != secret
        other = Approvals()
        other.watch.after(ToolCall("t:begin", origin=SESSION), {}, "t:begin", secret)
        assert other.watch._seen.keys().isdisjoint(approvals.watch._seen), "the key is the watch's own"

    async def test_time(self) -> None:
        """Values older than the limit are forgotten, and leave the memory."""
        approvals = Approvals(seconds=60)
        approvals.gives["begin"] = {"job": {"ref": "job-1"}}
        await approvals.call("begin")
        approvals.now = 61
        await approvals.call("go", handle="job-1")
        assert approvals.seen() == []
        approvals.gives["begin"] = {"job": {"ref": "job-9"}}
        await approvals.call("begin")
        await approvals.call("go", handle="job-9")
        approvals.now = 122
        await approvals.call("other", x="again")
        assert len(approvals.watch._seen) == 1
        assert approvals.seen() == [LINK]

    async def test_room(self) -> None:
        """Only the last values are kept, and only the first of each result are looked at."""
        approvals = Approvals(max_values=50, max_leaves=20)
        approvals.gives["begin"] = {"list": [{"ref": f"job-{number}"} for number in range(1000)]}
        await approvals.call("begin")
        assert len(approvals.watch._seen) == 20
        for number in range(10):
            approvals.gives["other"] = [f"else-{number}-{n}" for n in range(20)]
            await approvals.call("other")
        assert len(approvals.watch._seen) == 50
        await approvals.call("go", handle="job-3")
        assert approvals.seen() == []

    @pytest.mark.parametrize(
        "value", [list(range(100, 5000)), {f"k{'a' * (n % 40)}{n}": f"value-{n}" for n in range(5000)}]
    )
    async def test_large_values(self, value: Any) -> None:
        """Thousands of items or keys, as a result and as arguments: a bounded part of them."""
        approvals = Approvals(max_leaves=10**6)
        approvals.gives["begin"] = value
        await approvals.call("begin")
        assert len(approvals.watch._seen) <= 100
        await approvals.call("go", handle=value)
        assert len(approvals.watch._seen) <= 200

    async def test_deep_values(self) -> None:
        """Leaves a value that contains itself or nests without end at some depth."""
        value: dict[str, Any] = {"ref": "job-1"}
        value["again"] = value
        watch = LinkWatch()
        watch.after(ToolCall("t:x"), {}, "t:x", value)
        assert len(watch._seen) == 1

    def test_lone_surrogates(self) -> None:
        """A text that UTF-8 cannot carry is hashed like any other."""
        watch = LinkWatch()
        watch.before(ToolCall("t:go", {"a": "\ud800\ud800\ud800\ud800"}, origin=Origin(session="\ud800")))
        assert len(watch._seen) == 1

    @pytest.mark.parametrize("name", ["seconds", "max_values", "max_leaves"])
    def test_limits_that_make_no_sense(self, name: str) -> None:
        """Refuses invalid limits by name."""
        with pytest.raises(ConfigurationError, match=name):
            LinkWatch(**{name: 0})  # type: ignore[arg-type]
