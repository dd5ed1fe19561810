"""What names are about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.discovery.links.names import (
    Hint,
    Name,
    ToolName,
    entities_of,
    hint_of,
    noun_of,
    parse_name,
    parse_tool_name,
)


@pytest.mark.parametrize(
    ("name", "entity", "fields"),
    [
        ("issue_id", "issue", "id"),
        ("issueId", "issue", "id"),
        ("issue_ids", "issue", "id"),
        ("issue-uuid", "issue", "id"),
        ("issueIdOrKey", "issue", "id key"),
        ("project_or_board", "project or board", ""),
        ("repo", "repository", ""),
        ("pull_request_number", "pullrequest", "number"),
        ("pr_no", "pullrequest", "number"),
        ("user_name", "", "username"),
        ("id", "", "id"),
        ("email_address", "", "email"),
        ("issue_id_list", "issue", "id"),
        ("list", "list", ""),
        ("lat", "latitude", ""),
        ("", "", ""),
        ("__", "", ""),
    ],
)
def test_arguments(name: str, entity: str, fields: str) -> None:
    """An entity and its fields, whatever the spelling."""
    assert parse_name(name) == Name(entity, tuple(fields.split()))


@pytest.mark.parametrize(
    ("tool_id", "verb", "noun"),
    [
        ("github:list_issues", "list", "issue"),
        ("jira:getIssue", "get", "issue"),
        ("issues:list", "list", "issue"),
        ("api:issues.search", "list", "issue"),
        ("github:github_list_issues", "list", "issue"),
        ("x:github_list_issues", "list", "issue"),
        ("x:get_user_by_email", "get", "user"),
        ("x:create_or_update_file", "make", "file"),
        ("x:get_issue_details", "get", "issue"),
        ("x:list_my_repos", "list", "repository"),
        ("x:list_issue_comments", "list", "issue comment"),
        ("x:whoami", "get", "user"),
        ("x:get_me", "get", "user"),
        ("x:add_comment_to_issue", "make", "comment"),
        ("x:weather", "", "weather"),
        ("weather:run", "change", "weather"),
    ],
)
def test_tools(tool_id: str, verb: str, noun: str) -> None:
    """Return the verb and the object of a tool."""
    namespace, _, name = tool_id.partition(":")
    assert parse_tool_name(namespace, name) == ToolName(verb, noun)


@pytest.mark.parametrize(
    ("description", "entity", "field"),
    [
        ("The ID of the issue.", "issue", "id"),
        ("issue key", "issue", "key"),
        ("The user's login", "user", "username"),
        ("Name of the repository to use", "repository", "name"),
        ("The unique ID", "", "id"),
        ("ID of the parent", "", "id"),
        ("Commit SHA", "", "sha"),
        ("How many to give. The ID of nothing", "", ""),
        ("what you want to do with the name", "", ""),
        ("", "", ""),
    ],
)
def test_descriptions(description: str, entity: str, field: str) -> None:
    """The first sentence may say which field of what is meant."""
    assert hint_of(description) == Hint(entity, field)


def test_what_an_entity_also_is() -> None:
    """With fewer words, and as a user in some part, but less surely each time."""
    assert dict(entities_of("issue comment")) == {"issue comment": 1.0, "comment": 0.74}
    assert list(dict(entities_of("first pull reviewer"))) == [
        "first pull reviewer",
        "pull reviewer",
        "reviewer",
        "user",
    ]
    assert dict(entities_of("user")) == {"user": 1.0}


@pytest.mark.parametrize(
    ("name", "noun"),
    [("items", ""), ("issues", "issue"), ("IssueListResponse", "issue"), ("workflow_runs", "workflow run"),
     ("data", ""), ("my_results", ""), ("a_b_c_d_e", "")],
)  # fmt: skip
def test_containers(name: str, noun: str) -> None:
    """Those that say nothing of what is in them have no noun."""
    assert noun_of(name) == noun


def test_kinds_of_names() -> None:
    """Distinguishes made-up names from looked-up ones, and a qualifier from an entity."""
    assert parse_name("commit_title").is_content
    assert Name().is_content
    assert not parse_name("assignee").is_content
    assert parse_name("parent_id").is_qualifier
    assert not parse_name("parent_issue_id").is_qualifier
    assert not parse_name("id").is_qualifier


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text(one: str, other: str) -> None:
    """Nothing raises, and what comes out is bounded."""
    for name in (one, other):
        assert len(parse_name(name).entity) <= 200
        assert len(noun_of(name)) <= 200
        assert len(hint_of(name).entity) <= 300
        assert len(list(entities_of(name))) <= 4
    assert len(parse_tool_name(one, other).noun) <= 200
