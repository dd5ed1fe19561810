"""Suggested chains: they run, they know of no hidden tool, and they get better with what calls have shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.discovery.docs import DocEntry, InMemoryDocStore
from toolexec.discovery.examples import ToolExample
from toolexec.errors import BackendUnavailableError, ConfigurationError, InvalidToolIDError, ToolNotFoundError
from toolexec.exec import links
from toolexec.exec.chains_ahead import ChainSuggestion
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers.link_watch import LinkWatch
from toolexec.run.policy import Policy, Rule

TEXT, COUNT = {"type": "string"}, {"type": "integer"}
READ = ToolAnnotations(read_only=True)


def obj(**properties: Any) -> dict[str, Any]:
    """A schema of an object, all of its properties required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def many(items: Any) -> dict[str, Any]:
    """A schema of a list."""
    return {"type": "array", "items": items}


class Tracker:
    """A tracker of issues with real handlers, and what they were called with."""

    def __init__(self, **settings: Any) -> None:
        self.ex = Exec(**settings)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.closed: list[int] = []
        issues = [{"number": 107, "title": "it breaks"}, {"number": 109, "title": "it leaks"}]
        repos = [{"name": "engine", "owner": {"login": "ann"}}]
        self.add("list_repos", obj(), many(obj(name=TEXT, owner=obj(login=TEXT))), READ, lambda _: repos)
        self.add("list_issues", obj(owner=TEXT, repo=TEXT), many(obj(number=COUNT, title=TEXT)), READ, lambda _: issues)
        self.add("close_issue", obj(owner=TEXT, repo=TEXT, issue_number=COUNT), obj(closed=COUNT), None, self.close)
        self.add(
            "rename_issue",
            obj(owner=TEXT, repo=TEXT, issue_number=COUNT, title=TEXT),
            obj(title=TEXT),
            None,
            lambda args: {"title": args["title"]},
        )

    def add(self, name: str, takes: Any, gives: Any, hints: ToolAnnotations | None, handle: Any) -> None:
        """Add a tool that notes its calls."""

        def handler(args: dict[str, Any]) -> Any:
            self.calls.append((name, args))
            return handle(args)

        tool = Tool(name=name, namespace="hub", input_schema=takes, output_schema=gives, annotations=hints)
        self.ex.add(tool, handler=handler)

    def close(self, args: dict[str, Any]) -> dict[str, int]:
        """Close an issue."""
        self.closed.append(args["issue_number"])
        return {"closed": args["issue_number"]}


@pytest.fixture
def tracker() -> Tracker:
    """A tracker."""
    return Tracker()


class TestRunning:
    """What is suggested can be run."""

    async def test_from_nothing_to_the_goal(self, tracker: Tracker) -> None:
        """Three calls, of which each gets what it needs from those before."""
        suggestion = await tracker.ex.suggest_chain("hub:close_issue")
        assert suggestion.missing == ()
        assert [step.tool_id for step in suggestion.steps] == ["hub:list_repos", "hub:list_issues", "hub:close_issue"]
        assert tracker.calls == []
        result = await tracker.ex.run_chain(suggestion.steps)
        assert result.raise_for_error().value == {"closed": 107}
        assert tracker.calls[1:] == [
            ("list_issues", {"owner": "ann", "repo": "engine"}),
            ("close_issue", {"owner": "ann", "repo": "engine", "issue_number": 107}),
        ]

    async def test_as_data(self, tracker: Tracker) -> None:
        """The steps of `to_dict` can be run as they are, after a journey as JSON."""
        data = json.loads(json.dumps((await tracker.ex.suggest_chain("hub:close_issue")).to_dict()))
        assert (await tracker.ex.run_chain(data["steps"])).value == {"closed": 107}
        assert data["goal"] == "hub:close_issue"
        assert data["needsConfirmation"] == ["hub:close_issue"]
        assert 0 < data["confidence"] <= 1
        assert "missing" not in data
        assert len(data["reasons"]) == 3

    async def test_with_what_is_known(self, tracker: Tracker) -> None:
        """Given values save the calls that would find them."""
        suggestion = await tracker.ex.suggest_chain("hub:close_issue", {"owner": "bob", "repo": "wheels"})
        assert [step.tool_id for step in suggestion.steps] == ["hub:list_issues", "hub:close_issue"]
        assert (await tracker.ex.run_chain(suggestion.steps)).value == {"closed": 107}
        assert tracker.calls[0] == ("list_issues", {"owner": "bob", "repo": "wheels"})

    async def test_with_what_is_missing(self, tracker: Tracker) -> None:
        """Once it is there, in all places, the chain runs; the suggestion itself stays as it was."""
        suggestion = await tracker.ex.suggest_chain("hub:rename_issue", depth=1)
        complete = suggestion.with_args(title="new name")
        assert [missing.name for missing in suggestion.missing] == ["title"]
        assert complete.missing == ()
        shallow = await tracker.ex.suggest_chain("hub:rename_issue", depth=0)
        assert [missing.name for missing in shallow.missing] == ["owner", "repo", "issue_number", "title"]
        value = {"$ref": "steps.0"}
        filled = shallow.with_args({"title": "x", "owner": value}, repo="engine")
        assert filled.steps[0].args == {"owner": {"$literal": value}, "repo": "engine", "title": "x"}
        assert [missing.name for missing in filled.missing] == ["issue_number"]
        assert shallow.steps[0].args == {}
        assert (await tracker.ex.run_chain(complete.steps)).value == {"title": "new name"}
        assert "missing" in shallow.to_dict()

    async def test_a_value_for_two_steps(self, tracker: Tracker) -> None:
        """A shared value is asked for once and put into both calls."""
        tracker.ex.index.unregister("hub:list_repos")
        suggestion = await tracker.ex.suggest_chain("hub:close_issue")
        assert [missing.name for missing in suggestion.missing] == ["owner", "repo"]
        result = await tracker.ex.run_chain(suggestion.with_args(owner="ann", repo="engine").steps)
        assert result.value == {"closed": 107}
        assert tracker.calls[0] == ("list_issues", {"owner": "ann", "repo": "engine"})

    def test_names_that_are_not_missing(self) -> None:
        """Refuses such names, and suggests the nearest ones."""
        suggestion = ChainSuggestion(goal="t:x", steps=())
        with pytest.raises(ConfigurationError, match="missing are: none"):
            suggestion.with_args(title="x")

    async def test_names_that_are_misspelt(self, tracker: Tracker) -> None:
        """The nearest one is named."""
        suggestion = await tracker.ex.suggest_chain("hub:rename_issue")
        with pytest.raises(ConfigurationError, match="did you mean title"):
            suggestion.with_args(titel="x")

    async def test_an_integer_where_text_is_asked_for(self, tracker: Tracker) -> None:
        """Converts the integer to a string on the way."""
        tracker.add("get_issue", obj(issue_number=TEXT, repo=TEXT, owner=TEXT), None, None, lambda args: args)
        suggestion = await tracker.ex.suggest_chain("hub:get_issue", {"owner": "ann", "repo": "engine"})
        assert (await tracker.ex.run_chain(suggestion.steps)).value["issue_number"] == "107"

    async def test_an_empty_list_on_the_way(self) -> None:
        """The goal is not called with nothing: its step fails as its arguments do not fit."""
        tracker = Tracker()
        tracker.add("list_teams", obj(), many(obj(id=COUNT)), READ, lambda _: [])
        tracker.add("disband", obj(team_id=TEXT), None, None, lambda args: args)
        suggestion = await tracker.ex.suggest_chain("hub:disband")
        result = await tracker.ex.run_chain(suggestion.steps)
        assert result.error is not None
        assert result.error.code == "validation_input"
        assert tracker.calls == [("list_teams", {})]


class TestTools:
    """Which tools are used."""

    async def test_unknown_goals(self, tracker: Tracker) -> None:
        """Unknown goals raise as everywhere, with similar IDs."""
        with pytest.raises(ToolNotFoundError) as caught:
            await tracker.ex.suggest_chain("hub:close_isue")
        assert "hub:close_issue" in caught.value.details["close"]
        with pytest.raises(InvalidToolIDError):
            await tracker.ex.suggest_chain("a:b:c:d")
        with pytest.raises(ConfigurationError):
            await tracker.ex.suggest_chain("hub:close_issue", depth=9)

    async def test_hidden_ones(self) -> None:
        """A hidden tool is neither in that caller's chains nor a goal."""
        policy = Policy([Rule("deny", tools="hub:list_repos", callers="guest"), Rule("deny", tools="hub:rename_issue")])
        tracker = Tracker(gate=Gate(policy=policy))
        assert len((await tracker.ex.suggest_chain("hub:close_issue")).steps) == 3
        with acting(Origin(caller=Caller(id="guest"))):
            suggestion = await tracker.ex.suggest_chain("hub:close_issue")
            with pytest.raises(ToolNotFoundError):
                await tracker.ex.suggest_chain("hub:rename_issue")
        assert "list_repos" not in str(suggestion.to_dict())
        assert [missing.name for missing in suggestion.missing] == ["owner", "repo"]

    async def test_those_that_cannot_be_called(self) -> None:
        """A backend that is down gives nothing; that of the goal does not matter."""

        class Down(ProviderBackend):
            async def start(self) -> None:
                raise BackendUnavailableError("down")

        listing = Tool(name="list_teams", input_schema=obj(), output_schema=many(obj(id=TEXT)), annotations=READ)
        goal = Tool(name="disband", input_schema=obj(team_id=TEXT))
        for backend, steps in ((ProviderBackend, 2), (Down, 1)):
            async with Exec() as ex:
                from toolexec.model.binding import ProviderBinding

                ex.add_backends(backend("far", lambda name, args: None, tools=[]))
                ex.add(listing, binding=ProviderBinding("far", "list_teams"))
                ex.add(goal, binding=ProviderBinding("far", "disband"))
                assert len((await ex.suggest_chain("disband")).steps) == steps

    async def test_backends_that_nobody_has_started(self) -> None:
        """Starts such backends, as for a search."""
        ex = Exec()
        goal = Tool(name="disband", namespace="far", input_schema=obj(team_id=TEXT))
        ex.add_backends(ProviderBackend("far", lambda name, args: None, tools=[goal]))
        try:
            assert (await ex.suggest_chain("far:disband")).goal == "far:disband"
        finally:
            await ex.aclose()

    async def test_documented_examples(self, tracker: Tracker) -> None:
        """Offers documented examples for missing arguments."""
        tracker.ex.docs.register_doc(
            "hub:rename_issue", DocEntry(examples=(ToolExample(args={"title": "a good name"}),))
        )
        suggestion = await tracker.ex.suggest_chain("hub:rename_issue")
        assert [missing.example for missing in suggestion.missing] == ["a good name"]

    async def test_documentation_of_its_own(self) -> None:
        """A store that knows of no tool has no examples, and that is all."""
        tracker = Tracker(docs=InMemoryDocStore())
        suggestion = await tracker.ex.suggest_chain("hub:rename_issue")
        assert [(missing.name, missing.example) for missing in suggestion.missing] == [("title", None)]

    async def test_many_tools(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Looks at many tools in a thread, so that the event loop goes on."""
        monkeypatch.setattr(links, "_MANY_TOOLS", 2)
        tracker = Tracker()
        assert tracker.ex.links.pending == 4
        first, second = await asyncio.gather(*(tracker.ex.suggest_chain("hub:close_issue") for _ in range(2)))
        assert first == second
        assert len(first.steps) == 3
        assert tracker.ex.links.pending == 0

    async def test_at_the_same_time(self, tracker: Tracker) -> None:
        """Suggestions do not get in each other's way, nor in that of new tools."""
        found = await asyncio.gather(*(tracker.ex.suggest_chain("hub:close_issue") for _ in range(20)))
        assert len({json.dumps(suggestion.to_dict()) for suggestion in found}) == 1


class TestLearning:
    """What no schema says is learnt from calls."""

    async def test_two_calls_by_hand_twice(self) -> None:
        """Then the chain is suggested with the path that was seen, and it runs."""
        watch = LinkWatch()
        ex = Exec(layers=[watch])
        jobs = iter(range(4711, 4800))
        ex.add(
            Tool(name="begin", input_schema={"type": "object"}, annotations=READ),
            handler=lambda args: {"ticket": {"stamp": f"run-{next(jobs)}"}},
        )
        ex.add(Tool(name="finish", input_schema=obj(handle=TEXT)), handler=lambda args: args["handle"])
        before = await ex.suggest_chain("finish")
        assert [step.tool_id for step in before.steps] == ["finish"]
        for _ in range(2):
            value = (await ex.run_tool("begin")).value
            await ex.run_tool("finish", {"handle": value["ticket"]["stamp"]})
        after = await ex.suggest_chain("finish")
        assert [(step.tool_id, step.args) for step in after.steps] == [
            ("begin", {}),
            ("finish", {"handle": {"$ref": "steps.0.ticket.stamp"}}),
        ]
        assert "in 2 of 2 calls" in after.reasons[0]
        assert (await ex.run_chain(after.steps)).value == "run-4713"
        assert "run-47" not in json.dumps(watch.observations.dump())
        await ex.aclose()

    async def test_without_a_watch(self, tracker: Tracker) -> None:
        """Nothing is learnt, and links are the same object each time."""
        await tracker.ex.run_chain((await tracker.ex.suggest_chain("hub:close_issue")).steps)
        assert tracker.ex.links.observations.all() == []
        assert tracker.ex.links is tracker.ex.links

    async def test_the_index_tells_the_watch_about_arguments(self) -> None:
        """A watch with a `find` of its own keeps it."""
        watch, own = LinkWatch(), LinkWatch(find=lambda tool_id: None)
        for layer in (watch, own):
            find = layer.find
            ex = Exec(layers=[layer])
            assert ex.links.observations is layer.observations
            assert layer.find == (find or ex.index.find)
