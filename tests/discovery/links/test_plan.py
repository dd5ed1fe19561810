"""Calls that lead to a goal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.discovery.links.services import COUNT, GITHUB, JIRA, MAIL, READ, TEXT, index_of, many, obj, text, tool

from toolexec.discovery.links import Links
from toolexec.discovery.links.plan import Plan, plan_chain
from toolexec.errors import ConfigurationError, ToolNotFoundError
from toolexec.model.tool import Tool, ToolAnnotations

LIST = tool("t:list_issues", {}, many(obj(id=TEXT)), READ)
CLOSE = tool("t:close_issue", {"issue_id": TEXT}, None)


def plan(*tools: Tool, **settings: Any) -> Plan:
    """A plan whose goal is the last of the tools."""
    index = index_of(*tools)
    return plan_chain(Links(index), index, tools[-1].id, **settings)


def calls(found: Plan) -> list[tuple[str, dict[str, Any]]]:
    """The calls as pairs."""
    return [(call.tool_id, call.args) for call in found.calls]


class TestChains:
    """What leads to what."""

    def test_two_steps_and_shared_values(self) -> None:
        """The repository is found once, and both calls that need it get the same one."""
        found = plan(*[each for each in GITHUB if each.name != "close_issue"], GITHUB[12])
        assert found.calls[-1].tool_id == "github:close_issue"
        owner, repo = {"$ref": "steps.0[0].owner.login"}, {"$ref": "steps.0[0].name"}
        assert calls(found) == [
            ("github:list_my_repos", {}),
            ("github:list_issues", {"owner": owner, "repo": repo}),
            ("github:close_issue", {"owner": owner, "repo": repo, "issue_number": {"$ref": "steps.1[0].number"}}),
        ]
        assert found.missing == []
        assert found.needs_confirmation == ["github:close_issue"], "it works on the first issue of all"
        assert 0.4 < found.confidence < 1
        assert len(found.reasons) == 3

    def test_what_is_given(self) -> None:
        """A given value is used for the goal and for the calls before it that need the same."""
        index = index_of(*GITHUB)
        found = plan_chain(
            Links(index), index, "github:close_issue", {"owner": "ann", "repo": "x", "note": {"$ref": "steps.9"}}
        )
        assert calls(found) == [
            ("github:list_issues", {"owner": "ann", "repo": "x"}),
            (
                "github:close_issue",
                {
                    "owner": "ann",
                    "repo": "x",
                    "note": {"$literal": {"$ref": "steps.9"}},
                    "issue_number": {"$ref": "steps.0[0].number"},
                },
            ),
        ]

    def test_two_arguments_for_two_things(self) -> None:
        """Two arguments get two different items of the list."""
        index = index_of(*JIRA)
        found = plan_chain(Links(index), index, "jira:linkIssues")
        args = found.calls[-1].args
        assert args["inwardIssue"]["$ref"].endswith("issues[0].key")
        assert args["outwardIssue"]["$ref"].endswith("issues[1].key")

    def test_lists(self) -> None:
        """A goal that only reads gets all values, another one just the first; a single value becomes a list."""
        ids = {"issue_ids": many(TEXT)}
        read = plan(LIST, tool("t:export", ids, None, READ))
        assert read.calls[-1].args == {"issue_ids": {"$ref": "steps.0[].id"}}
        assert read.needs_confirmation == []
        change = plan(LIST, tool("t:close", ids))
        assert change.calls[-1].args == {"issue_ids": [{"$ref": "steps.0[0].id"}]}
        single = plan(tool("t:get_current_issue", {}, obj(id=TEXT), READ), tool("t:export", ids, None, READ))
        assert single.calls[-1].args == {"issue_ids": [{"$ref": "steps.0.id"}]}

    def test_arguments_in_objects(self) -> None:
        """References are put where they belong, beside what was given."""
        body = {**obj(issue_id=TEXT, note=TEXT), "required": ["issue_id"]}
        goal = tool("t:send", {"body": body})
        assert plan(LIST, goal).calls[-1].args == {"body": {"issue_id": {"$ref": "steps.0[0].id"}}}
        given = plan(LIST, goal, given={"body": {"note": "x"}})
        assert given.calls[-1].args == {"body": {"note": "x", "issue_id": {"$ref": "steps.0[0].id"}}}
        assert [call.tool_id for call in plan(LIST, goal, given={"body": {"issue_id": "7"}}).calls] == ["t:send"]

    def test_how_deep(self) -> None:
        """At most so many producers in a row; what they would have given is missing then."""
        chain = [tool("t:list_a", {}, many(obj(id=TEXT)), READ)]
        for before, own in zip("abcdefgh", "bcdefghi", strict=True):
            chain.append(tool(f"t:list_{own}", {f"{before}_id": TEXT}, many(obj(id=TEXT)), READ))
        chain = [each.replace(name=each.name + "_thing") for each in chain]
        renamed = [each.replace(input_schema={"type": "object", **_things(each)}) for each in chain]
        lengths = [len(plan(*renamed[:5], depth=depth).calls) for depth in range(6)]
        assert lengths == [1, 2, 3, 4, 5, 5]
        assert [m.name for m in plan(*renamed[:5], depth=2).missing] == ["b_thing_id"]
        assert len(plan(*renamed, depth=6).calls) == 7

    @pytest.mark.parametrize("depth", [-1, 7, True, 1.0, "3", None])
    def test_depths_that_make_no_sense(self, depth: Any) -> None:
        """Refuses invalid depths."""
        with pytest.raises(ConfigurationError, match="from 0 to 6"):
            plan(LIST, CLOSE, depth=depth)

    def test_cycles(self) -> None:
        """Tools that need each other's results are not called round and round."""
        one = tool("t:list_apples", {"pear_id": TEXT}, many(obj(id=TEXT)), READ)
        other = tool("t:list_pears", {"apple_id": TEXT}, many(obj(id=TEXT)), READ)
        found = plan(one, other, tool("t:eat", {"apple_id": TEXT, "pear_id": TEXT}))
        assert len(found.calls) <= 3
        assert len({call.tool_id for call in found.calls}) == len(found.calls)
        assert found.missing

    def test_a_limit_of_calls(self) -> None:
        """A goal that needs a dozen things gets seven of them."""
        names = "ant bee cat dog elk fox gnu hen ibis jay kea lynx".split()
        sources = [tool(f"t:list_{name}s", {}, many(obj(id=TEXT)), READ) for name in names]
        found = plan(*sources, tool("t:gather", {f"{name}_id": TEXT for name in names}))
        assert len(found.calls) == 8
        assert len(found.missing) == 5

    def test_every_tool_of_every_service(self) -> None:
        """Every reference is to an earlier call, no tool is called twice, and only reading ones come before the goal."""
        index = index_of(*GITHUB, *JIRA, *MAIL)
        links = Links(index)
        for entry in index.tools():
            found = plan_chain(links, index, entry.tool.id)
            assert found.calls[-1].tool_id == entry.tool.id
            assert len({call.tool_id for call in found.calls}) == len(found.calls) <= 8
            for number, call in enumerate(found.calls):
                for reference in _references(call.args):
                    assert int(reference.removeprefix("steps.").partition(".")[0].partition("[")[0]) < number
            assert set(found.needs_confirmation) <= {entry.tool.id}


class TestSafety:
    """What is called before the goal."""

    WRITE = tool("t:create_issue", {}, obj(id=TEXT), ToolAnnotations(destructive=False))
    UNKNOWN = tool("t:make_issue", {}, obj(id=TEXT))

    def test_reading_tools_come_first(self) -> None:
        """Reading tools come first, even if another one would fit better."""
        far = tool("t:list_comments", {}, many(obj(issue=obj(id=TEXT))), READ)
        assert plan(self.WRITE, self.UNKNOWN, far, CLOSE).calls[0].tool_id == far.id

    def test_others_are_flagged(self) -> None:
        """When there is nothing else; those that are known to destroy nothing come first."""
        found = plan(self.UNKNOWN, self.WRITE, CLOSE)
        assert [call.tool_id for call in found.calls] == ["t:create_issue", "t:close_issue"]
        assert found.needs_confirmation == ["t:create_issue"]
        assert plan(self.UNKNOWN, CLOSE).needs_confirmation == ["t:make_issue"]

    def test_destructive_tools_only_where_somebody_says_so(self) -> None:
        """No schema leads to one, an API's own link does, and it is flagged."""
        meta = {
            "openapi_links": {"x": {"operationId": "close_issue", "parameters": {"issue_id": "$response.body#/id"}}}
        }
        drop = tool("t:drop_issue", {}, obj(id=TEXT), ToolAnnotations(destructive=True))
        assert len(plan(drop, CLOSE).calls) == 1
        assert plan(drop.replace(meta=meta), CLOSE).needs_confirmation == ["t:drop_issue"]

    def test_hidden_tools(self) -> None:
        """Hidden tools are neither used nor a goal."""
        found = plan(LIST, self.UNKNOWN, CLOSE, visible=lambda tool_id: tool_id != LIST.id)
        assert [call.tool_id for call in found.calls] == ["t:make_issue", "t:close_issue"]
        with pytest.raises(ToolNotFoundError):
            plan(LIST, CLOSE, visible=lambda tool_id: tool_id != CLOSE.id)


class TestConstantsAndGaps:
    """What is filled in without asking, and what is left."""

    def test_constants(self) -> None:
        """Defaults, the only possible value, and for tools that only read the first of several or a documented one."""
        takes = {
            "mode": {"const": "fast"},
            "state": {"type": "string", "enum": ["open", "closed"]},
            "limit": {"type": "integer", "default": 20},
            "flag": {"type": "boolean", "examples": [True]},
            "page": COUNT,
        }
        listing = tool("t:list_issues", takes, many(obj(id=TEXT)), READ)
        examples = {"t:list_issues": {"page": 1}}
        found = plan(listing, CLOSE, examples=lambda tool_id: examples.get(tool_id, {}))
        assert found.calls[0].args == {"mode": "fast", "state": "open", "limit": 20, "flag": True, "page": 1}
        assert found.missing == []
        writing = listing.replace(name="sort_out", annotations=ToolAnnotations())
        assert [m.name for m in plan(LIST, writing).missing] == ["state", "flag", "page"]

    def test_a_constant_that_looks_like_a_reference(self) -> None:
        """Such a constant stays what it is."""
        goal = tool("t:x", {"a": {"default": {"$ref": "steps.0"}}, "b": {"default": [{"$literal": 1}]}})
        assert plan(goal).calls[0].args == {
            "a": {"$literal": {"$ref": "steps.0"}},
            "b": [{"$literal": {"$literal": 1}}],
        }
        deep: Any = 1
        for _ in range(90):
            deep = [deep]
        assert plan(tool("t:x", {"a": {"default": deep}})).calls[0].args == {"a": deep}

    def test_what_is_missing(self) -> None:
        """By name, with its schema, an example, and who may know; the same for two calls is asked for once."""
        get = tool("t:get_user_by_email", {"email": TEXT, "tenant_id": TEXT}, obj(user=obj(id=TEXT)), READ)
        silent = tool("t:list_projects", {}, None, READ)
        goal = tool(
            "t:assign",
            {
                "user_id": TEXT,
                "tenant_id": TEXT,
                "title": text("What it is called", examples=["x"]),
                "project_id": TEXT,
            },
        )
        found = plan(get, silent, goal)
        by_name = {missing.name: missing for missing in found.missing}
        assert set(by_name) == {"email", "tenant_id", "title", "project_id"}
        assert by_name["tenant_id"].places == ((0, ("tenant_id",)), (1, ("tenant_id",)))
        assert by_name["title"].example == "x"
        assert [p.tool_id for p in by_name["project_id"].producers] == ["t:list_projects"]
        assert by_name["title"].to_dict() == {
            "name": "title", "tool": "t:assign", "schema": {"type": "string", "description": "What it is called", "examples": ["x"]},
            "steps": [1], "example": "x",
        }  # fmt: skip
        assert by_name["project_id"].to_dict()["producers"][0]["tool"] == "t:list_projects"

    def test_names_that_are_taken(self) -> None:
        """Two different arguments of one name are distinguished."""
        one = tool("t:list_issues", {"query": TEXT}, many(obj(id=TEXT)), READ)
        found = plan(one, tool("t:close_issue", {"issue_id": TEXT, "query": TEXT}))
        assert [m.name for m in found.missing] == ["query", "close_issue.query"]

    def test_secrets_are_never_filled_in(self) -> None:
        """Not even by their default."""
        found = plan(
            tool("t:list_tokens", {}, many(obj(token=TEXT)), READ), tool("t:x", {"token": {**TEXT, "default": "s"}})
        )
        assert [m.name for m in found.missing] == ["token"]

    def test_large_schemas_and_examples(self) -> None:
        """Shortens them, or leaves them out, and hands out a copy."""
        goal = tool(
            "t:x", {"a": {**TEXT, "description": "d" * 9000}, "b": {**TEXT, "examples": ["e" * 900]}, "c": TEXT}
        )
        index = index_of(goal)
        links = Links(index)
        first, second, third = plan_chain(links, index, goal.id, examples=lambda _: {"c": {"x": 1}}).missing
        assert first.schema == {"type": "string", "description": "d" * 200}
        assert (second.example, third.example) == (None, None)
        dict.clear(third.schema)  # type: ignore[arg-type]
        assert plan_chain(links, index, goal.id).missing[2].schema == {"type": "string"}


def _things(each: Tool) -> dict[str, Any]:
    names = each.input_schema.to_json()["required"]
    changed = [name.replace("_id", "_thing_id") for name in names]
    return {"properties": dict.fromkeys(changed, TEXT), "required": changed}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [value["$ref"]] if "$ref" in value else [r for item in value.values() for r in _references(item)]
    return [reference for item in value for reference in _references(item)] if isinstance(value, list) else []
