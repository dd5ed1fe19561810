"""Which links a person would draw between the tools of the services: those that must be found, and those that may be."""

from __future__ import annotations

from dataclasses import dataclass

from tests.discovery.links.services import GITHUB, JIRA, MAIL

from toolexec.discovery.links import Links
from toolexec.model.tool import Tool

REPOS = "list_my_repos search_repositories"
USERS = "search_users get_me list_issues search_issues get_issue list_issue_comments list_pull_requests list_commits"
MESSAGES = "search_messages list_messages"
MORE_MESSAGES = "get_thread list_drafts read_message send_message reply_to_message send_draft forward_message"
ISSUES = "searchIssues getSprintIssues"
PEOPLE = "getCurrentUser listComments listProjects searchIssues getSprintIssues getIssue addComment"
CONTACTS = "contacts:get_contact calendar:list_events mail:list_messages mail:search_messages mail:read_message"

EXPECTED: dict[str, dict[str, tuple[str, str]]] = {
    "github": {
        "owner": (REPOS, f"{USERS} get_repository"),
        "repo": (REPOS, "create_repository fork_repository"),
        "issue_number": ("list_issues search_issues", "create_issue"),
        "pull_number": ("list_pull_requests", ""),
        "comment_id": ("list_issue_comments", "add_issue_comment"),
        "run_id": ("list_workflow_runs", ""),
        "milestone_number": ("list_milestones", "list_issues search_issues get_issue"),
        "branch": ("list_branches", f"{REPOS} list_workflow_runs get_repository"),
        "get_commit.sha": ("list_commits", "list_branches list_pull_requests get_pull_request list_workflow_runs"),
        "list_commits.sha": ("list_branches", "list_pull_requests get_pull_request list_workflow_runs"),
        "labels": ("list_labels", "list_issues search_issues get_issue"),
        "assignee": ("search_users", USERS),
        "username": ("search_users", USERS),
        "path": ("list_directory", ""),
        "ref": ("", "list_branches list_pull_requests get_pull_request list_commits"),
    },
    "jira": {
        "issueIdOrKey": (ISSUES, "createIssue"),
        "inwardIssue": (ISSUES, "createIssue"),
        "outwardIssue": (ISSUES, "createIssue"),
        "issues": (ISSUES, "createIssue"),
        "projectKey": ("listProjects", f"{ISSUES} getIssue"),
        "projectId": ("listProjects", f"{ISSUES} getIssue"),
        "projectIdOrKey": ("listProjects", f"{ISSUES} getIssue"),
        "projectKeyOrId": ("listProjects", f"{ISSUES} getIssue"),
        "issueTypeId": ("listIssueTypes", f"{ISSUES} getIssue"),
        "accountId": ("searchUsers", PEOPLE),
        "assigneeAccountId": ("searchUsers", PEOPLE),
        "transitionId": ("listTransitions", ""),
        "commentId": ("listComments", "addComment"),
        "boardId": ("listBoards", ""),
        "sprintId": ("listSprints", ""),
        "worklogId": ("listWorklogs", ""),
        "linkTypeId": ("listLinkTypes", ""),
        "versionId": ("listVersions", ""),
    },
    "mail": {
        "message_id": (MESSAGES, MORE_MESSAGES),
        "message_ids": (MESSAGES, MORE_MESSAGES),
        "label_id": ("list_labels", f"{MESSAGES} get_thread read_message create_label"),
        "thread_id": ("list_threads", f"{MESSAGES} {MORE_MESSAGES}"),
        "attachment_id": (MESSAGES, "read_message get_thread"),
        "draft_id": ("list_drafts", "create_draft"),
        "to": ("contacts:search_contacts", CONTACTS),
    },
    "contacts": {
        "resource_name": ("search_contacts", ""),
        "phone": ("", "search_contacts get_contact"),
    },
    "calendar": {
        "calendar_id": ("list_calendars", ""),
        "event_id": ("list_events", ""),
        "attendee_email": ("contacts:search_contacts", CONTACTS),
    },
}
"""By namespace and argument (or tool and argument): the producers that must be among the best three, and those that may
be there as well. Arguments that are not listed have none."""

SERVICES: dict[str, list[Tool]] = {"github": GITHUB, "jira": JIRA, "mail": MAIL}


@dataclass(slots=True)
class Score:
    """How many links were right, of those that were given and of those that were to be found."""

    given: int = 0
    right: int = 0
    wanted: int = 0
    found: int = 0
    mistakes: str = ""

    @property
    def precision(self) -> float:
        """The part of the given links that are right."""
        return self.right / self.given

    @property
    def recall(self) -> float:
        """The part of the links that must be found that are."""
        return self.found / self.wanted


def judge(tools: list[Tool], links: Links, expected: dict[str, dict[str, tuple[str, str]]], *, limit: int = 3) -> Score:
    """Compare the best producers for every argument of every tool with the labels."""
    score = Score()
    for tool in tools:
        given = links.producers_for(tool.id, limit=limit)
        for taken in links.inputs(tool):
            labels = expected.get(tool.namespace, {})
            must, may = labels.get(f"{tool.name}.{taken.name}", labels.get(taken.name, ("", "")))
            wanted = _ids(must, tool.namespace) - {tool.id}
            allowed = wanted | _ids(may, tool.namespace)
            got = {producer.tool_id for producer in given.get(taken.name, ())}
            score.given += len(got)
            score.right += len(got & allowed)
            score.wanted += len(wanted)
            score.found += len(got & wanted)
            if got - allowed or wanted - got:
                score.mistakes += f"\n{tool.id} {taken.name}: wrong {got - allowed}, missed {wanted - got}"
    return score


def _ids(names: str, namespace: str) -> set[str]:
    return {name if ":" in name else f"{namespace}:{name}" for name in names.split()}
