"""Three services written by hand, each with the links between its tools that a person would draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolexec.discovery import InMemoryIndex
from toolexec.model.binding import LocalBinding
from toolexec.model.tool import Tool, ToolAnnotations

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer"}
FLAG: dict[str, Any] = {"type": "boolean"}
EMAIL: dict[str, Any] = {"type": "string", "format": "email"}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
READ = ToolAnnotations(read_only=True)
DESTROY = ToolAnnotations(destructive=True)


def obj(**properties: Any) -> dict[str, Any]:
    """A schema of an object."""
    return {"type": "object", "properties": properties}


def many(items: Any) -> dict[str, Any]:
    """A schema of a list."""
    return {"type": "array", "items": items}


def text(description: str, **more: Any) -> dict[str, Any]:
    """A described text."""
    return {"type": "string", "description": description, **more}


def count(description: str) -> dict[str, Any]:
    """A described integer."""
    return {"type": "integer", "description": description}


def tool(
    tool_id: str,
    takes: Mapping[str, Any] | None = None,
    gives: Any = None,
    hints: ToolAnnotations | None = None,
    **more: Any,
) -> Tool:
    """A tool; an argument that ends in `?` is optional."""
    namespace, _, name = tool_id.rpartition(":")
    takes = takes or {}
    properties = {key.rstrip("?"): value for key, value in takes.items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [key for key in takes if not key.endswith("?")]
    return Tool(name=name, namespace=namespace, input_schema=schema, output_schema=gives, annotations=hints, **more)


def index_of(*tools: Tool) -> InMemoryIndex:
    """An index with these tools."""
    index = InMemoryIndex()
    index.register_many((each, LocalBinding(each.id)) for each in tools)
    return index


# -- like GitHub ------------------------------------------------------------------------------------------------------

_USER = obj(login=TEXT, id=COUNT, html_url=TEXT, type=TEXT)
_REPO = obj(id=COUNT, name=TEXT, full_name=TEXT, owner=_USER, private=FLAG, default_branch=TEXT, html_url=TEXT)
_LABEL = obj(id=COUNT, name=TEXT, color=TEXT)
_ISSUE = obj(
    id=COUNT, number=COUNT, title=TEXT, body=TEXT, state=TEXT, user=_USER, labels=many(_LABEL), html_url=TEXT,
    milestone=obj(id=COUNT, number=COUNT, title=TEXT), created_at=TIME, comments=COUNT,
)  # fmt: skip
_PULL = obj(
    id=COUNT, number=COUNT, title=TEXT, state=TEXT, user=_USER, head=obj(ref=TEXT, sha=TEXT), merge_commit_sha=TEXT
)
_COMMENT = obj(id=COUNT, body=TEXT, user=_USER, created_at=TIME)
_COMMIT = obj(sha=TEXT, html_url=TEXT, commit=obj(message=TEXT), author=_USER)
_RUN = obj(id=COUNT, name=TEXT, head_branch=TEXT, head_sha=TEXT, status=TEXT, conclusion=TEXT)
_IN = {"owner": text("Repository owner"), "repo": text("Repository name")}
_ISSUE_IN = {**_IN, "issue_number": count("The number of the issue")}
_PULL_IN = {**_IN, "pull_number": count("Pull request number")}
_PAGE = {"page?": COUNT, "per_page?": COUNT}

GITHUB = [
    tool("github:get_me", {}, _USER, READ),
    tool("github:search_users", {"query": TEXT, **_PAGE}, obj(total_count=COUNT, items=many(_USER)), READ),
    tool("github:search_repositories", {"query": TEXT, **_PAGE}, obj(total_count=COUNT, items=many(_REPO)), READ),
    tool("github:list_my_repos", {**_PAGE}, many(_REPO), READ),
    tool("github:get_repository", _IN, _REPO, READ),
    tool("github:create_repository", {"name": TEXT, "description?": TEXT, "private?": FLAG}, _REPO),
    tool("github:fork_repository", {**_IN, "organization?": TEXT}, _REPO),
    tool("github:list_issues", {**_IN, "state?": {"enum": ["open", "closed"]}, **_PAGE}, many(_ISSUE), READ),
    tool("github:search_issues", {"q": TEXT, **_PAGE}, obj(total_count=COUNT, items=many(_ISSUE)), READ),
    tool("github:get_issue", _ISSUE_IN, _ISSUE, READ),
    tool("github:create_issue", {**_IN, "title": TEXT, "body?": TEXT, "labels?": many(TEXT)}, _ISSUE),
    tool("github:update_issue", {**_ISSUE_IN, "title?": TEXT, "assignee?": text("Login of the user")}, _ISSUE),
    tool("github:close_issue", _ISSUE_IN, _ISSUE),
    tool("github:add_issue_comment", {**_ISSUE_IN, "body": TEXT}, _COMMENT),
    tool("github:list_issue_comments", _ISSUE_IN, many(_COMMENT), READ),
    tool("github:delete_issue_comment", {**_IN, "comment_id": COUNT}, None, DESTROY),
    tool("github:list_pull_requests", _IN, many(_PULL), READ),
    tool("github:get_pull_request", _PULL_IN, _PULL, READ),
    tool("github:merge_pull_request", {**_PULL_IN, "commit_title?": TEXT}, obj(merged=FLAG, sha=TEXT)),
    tool("github:list_commits", {**_IN, "sha?": TEXT}, many(_COMMIT), READ),
    tool("github:get_commit", {**_IN, "sha": text("Commit SHA")}, _COMMIT, READ),
    tool("github:list_branches", _IN, many(obj(name=TEXT, commit=obj(sha=TEXT), protected=FLAG)), READ),
    tool("github:delete_branch", {**_IN, "branch": TEXT}, None, DESTROY),
    tool("github:list_labels", _IN, many(_LABEL), READ),
    tool("github:add_labels", {**_ISSUE_IN, "labels": many(text("Label name"))}, many(_LABEL)),
    tool("github:list_workflow_runs", _IN, obj(total_count=COUNT, workflow_runs=many(_RUN)), READ),
    tool("github:rerun_workflow", {**_IN, "run_id": COUNT}, None),
    tool("github:list_milestones", _IN, many(obj(id=COUNT, number=COUNT, title=TEXT)), READ),
    tool("github:update_milestone", {**_IN, "milestone_number": COUNT, "title?": TEXT}, obj(number=COUNT)),
    tool("github:get_file_contents", {**_IN, "path": TEXT, "ref?": TEXT}, obj(content=TEXT, sha=TEXT, path=TEXT), READ),
    tool("github:list_directory", {**_IN, "path?": TEXT}, many(obj(name=TEXT, path=TEXT, sha=TEXT)), READ),
    tool("github:follow_user", {"username": TEXT}, None),
]

# -- like Jira --------------------------------------------------------------------------------------------------------

_JUSER = {"$ref": "#/$defs/User"}
_JDEFS = {
    "User": obj(accountId=TEXT, displayName=TEXT, emailAddress=EMAIL, active=FLAG),
    "Issue": obj(
        id=TEXT, key=TEXT,
        fields=obj(summary=TEXT, status=obj(id=TEXT, name=TEXT), assignee=_JUSER, reporter=_JUSER,
                   project=obj(id=TEXT, key=TEXT, name=TEXT), issuetype=obj(id=TEXT, name=TEXT)),
    ),
}  # fmt: skip
_KEY = {"issueIdOrKey": text("The ID or key of the issue")}


def _jira(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": _JDEFS}


JIRA = [
    tool("jira:getCurrentUser", {}, _jira({"$ref": "#/$defs/User"}), READ),
    tool("jira:searchUsers", {"query": TEXT, "maxResults?": COUNT}, _jira(many(_JUSER)), READ),
    tool("jira:searchIssues", {"jql": TEXT, "startAt?": COUNT},
         _jira(obj(total=COUNT, startAt=COUNT, issues=many({"$ref": "#/$defs/Issue"}))), READ),
    tool("jira:getIssue", _KEY, _jira({"$ref": "#/$defs/Issue"}), READ),
    tool("jira:createIssue", {"projectKey": TEXT, "issueTypeId": TEXT, "summary": TEXT, "assigneeAccountId?": TEXT},
         obj(id=TEXT, key=TEXT, self=TEXT)),
    tool("jira:editIssue", {**_KEY, "summary?": TEXT}, None),
    tool("jira:deleteIssue", {**_KEY, "deleteSubtasks?": FLAG}, None, DESTROY),
    tool("jira:assignIssue", {**_KEY, "accountId": text("The account ID of the user")}, None),
    tool("jira:listTransitions", _KEY, obj(transitions=many(obj(id=TEXT, name=TEXT, to=obj(id=TEXT, name=TEXT)))), READ),
    tool("jira:transitionIssue", {**_KEY, "transitionId": TEXT}, None),
    tool("jira:addComment", {**_KEY, "body": TEXT}, _jira(obj(id=TEXT, body=TEXT, author=_JUSER))),
    tool("jira:listComments", _KEY, _jira(obj(comments=many(obj(id=TEXT, body=TEXT, author=_JUSER)))), READ),
    tool("jira:deleteComment", {**_KEY, "commentId": TEXT}, None, DESTROY),
    tool("jira:listProjects", {"query?": TEXT}, obj(values=many(obj(id=TEXT, key=TEXT, name=TEXT, lead=obj(accountId=TEXT)))), READ),
    tool("jira:getProject", {"projectIdOrKey": TEXT}, obj(id=TEXT, key=TEXT, name=TEXT), READ),
    tool("jira:listIssueTypes", {"projectId?": TEXT}, many(obj(id=TEXT, name=TEXT, subtask=FLAG)), READ),
    tool("jira:listBoards", {"projectKeyOrId?": TEXT}, obj(values=many(obj(id=COUNT, name=TEXT, type=TEXT))), READ),
    tool("jira:listSprints", {"boardId": COUNT}, obj(values=many(obj(id=COUNT, name=TEXT, state=TEXT))), READ),
    tool("jira:getSprintIssues", {"sprintId": COUNT}, _jira(obj(issues=many({"$ref": "#/$defs/Issue"}))), READ),
    tool("jira:moveIssuesToSprint", {"sprintId": COUNT, "issues": many(text("Issue key"))}, None),
    tool("jira:listWorklogs", _KEY, obj(worklogs=many(obj(id=TEXT, timeSpent=TEXT))), READ),
    tool("jira:deleteWorklog", {**_KEY, "worklogId": TEXT}, None, DESTROY),
    tool("jira:listLinkTypes", {}, obj(issueLinkTypes=many(obj(id=TEXT, name=TEXT, inward=TEXT, outward=TEXT))), READ),
    tool("jira:linkIssues", {"inwardIssue": text("Key of the issue"), "outwardIssue": text("Key of the issue"),
                             "linkTypeId": TEXT}, None),
    tool("jira:addWatcher", {**_KEY, "accountId": TEXT}, None),
    tool("jira:listVersions", {"projectIdOrKey": TEXT}, many(obj(id=TEXT, name=TEXT, released=FLAG)), READ),
    tool("jira:releaseVersion", {"versionId": TEXT}, None),
]  # fmt: skip

# -- like a mailbox ---------------------------------------------------------------------------------------------------

_MESSAGE = {
    "title": "Message",
    **obj(id=TEXT, threadId=TEXT, subject=TEXT, snippet=TEXT, sender=obj(name=TEXT, email=EMAIL), labelIds=many(TEXT),
          attachments=many(obj(attachmentId=TEXT, filename=TEXT, size=COUNT))),
}  # fmt: skip
_PERSON = obj(resourceName=TEXT, name=TEXT, email=EMAIL, phone=TEXT)

MAIL = [
    tool("mail:search_messages", {"query": TEXT, "page_token?": TEXT}, obj(messages=many(_MESSAGE), nextPageToken=TEXT), READ),
    tool("mail:list_messages", {"label_id?": TEXT}, obj(messages=many(_MESSAGE)), READ),
    tool("mail:read_message", {"message_id": text("Message ID")}, _MESSAGE, READ),
    tool("mail:trash_message", {"message_id": TEXT}, None),
    tool("mail:mark_as_read", {"message_ids": many(TEXT)}, None),
    tool("mail:send_message", {"to": many(EMAIL), "subject": TEXT, "body": TEXT}, obj(id=TEXT, threadId=TEXT)),
    tool("mail:reply_to_message", {"message_id": TEXT, "body": TEXT}, obj(id=TEXT, threadId=TEXT)),
    tool("mail:forward_message", {"message_id": TEXT, "to": EMAIL}, obj(id=TEXT)),
    tool("mail:get_attachment", {"message_id": TEXT, "attachment_id": TEXT}, obj(data=TEXT, size=COUNT), READ),
    tool("mail:list_threads", {"query?": TEXT}, obj(threads=many(obj(id=TEXT, snippet=TEXT))), READ),
    tool("mail:get_thread", {"thread_id": TEXT}, obj(id=TEXT, messages=many(_MESSAGE)), READ),
    tool("mail:archive_thread", {"thread_id": TEXT}, None),
    tool("mail:list_labels", {}, obj(labels=many(obj(id=TEXT, name=TEXT))), READ),
    tool("mail:create_label", {"name": TEXT}, obj(id=TEXT, name=TEXT)),
    tool("mail:delete_label", {"label_id": TEXT}, None, DESTROY),
    tool("mail:apply_label", {"message_id": TEXT, "label_id": TEXT}, None),
    tool("mail:list_drafts", {}, obj(drafts=many(obj(id=TEXT, message=obj(id=TEXT)))), READ),
    tool("mail:create_draft", {"to": EMAIL, "subject": TEXT, "body": TEXT}, obj(draftId=TEXT)),
    tool("mail:send_draft", {"draft_id": TEXT}, obj(id=TEXT, threadId=TEXT)),
    tool("mail:delete_draft", {"draft_id": TEXT}, None, DESTROY),
    tool("contacts:search_contacts", {"query": TEXT}, many(_PERSON), READ),
    tool("contacts:get_contact", {"resource_name": TEXT}, _PERSON, READ),
    tool("contacts:update_contact", {"resource_name": TEXT, "phone?": TEXT}, _PERSON),
    tool("calendar:list_calendars", {}, obj(items=many(obj(id=TEXT, summary=TEXT, primary=FLAG))), READ),
    tool("calendar:list_events", {"calendar_id": TEXT, "time_min?": TIME}, obj(items=many(obj(id=TEXT, summary=TEXT, organizer=obj(email=EMAIL)))), READ),
    tool("calendar:get_event", {"calendar_id": TEXT, "event_id": TEXT}, obj(id=TEXT, summary=TEXT), READ),
    tool("calendar:delete_event", {"calendar_id": TEXT, "event_id": TEXT}, None, DESTROY),
    tool("calendar:invite", {"calendar_id": TEXT, "event_id": TEXT, "attendee_email": TEXT}, None),
]  # fmt: skip
