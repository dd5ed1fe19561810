"""A tracker of issues."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_projects": "projects of the issue tracker",
    "search_issues": "find tickets",
    "get_issue": "read a ticket",
    "create_issue": "file a bug",
    "update_issue": "change the priority of a ticket",
    "transition_issue": "close a ticket",
    "assign_issue": "assign a ticket",
    "add_comment": "comment on a ticket",
    "list_comments": "comments of a ticket",
    "link_issues": "link two tickets",
    "log_work": "log time on a ticket",
    "list_sprints": "sprints of a project",
    "add_to_sprint": "put a ticket into a sprint",
}

Priority = Literal["low", "medium", "high", "urgent"]
Status = Literal["open", "in_progress", "in_review", "done"]


class Issue(TypedDict):
    id: str
    project: str
    summary: str
    description: str
    status: Status
    priority: Priority
    assignee: str | None
    sprint_id: str | None
    minutes_logged: int


class Comment(TypedDict):
    id: str
    issue_id: str
    author: str
    body: str


class Sprint(TypedDict):
    id: str
    name: str
    project: str
    ends: str


def _issue(project: str, summary: str, priority: str, assignee: str | None = None, text: str = "") -> dict[str, Any]:
    return {
        "project": project,
        "summary": summary,
        "description": text,
        "status": "open",
        "priority": priority,
        "assignee": assignee,
        "sprint_id": None,
        "minutes_logged": 0,
    }


def make() -> Service:
    """Return the tools over two projects."""
    service = Service("tickets")
    issues = Table(
        "iss",
        _issue("WEB", "Checkout crashes on empty cart", "high", "anna", "Steps: open the cart, remove all, press pay."),
        _issue("WEB", "Dark mode for settings page", "low"),
        _issue("WEB", "Login loop after password reset", "urgent", "omar", "Reported by three customers."),
        _issue("OPS", "Rotate database credentials", "medium"),
        _issue("OPS", "Disk usage alert for db-2", "high", "petra"),
        _issue("WEB", "Wrong total on March invoices", "high", None, "Rounding of taxes."),
        _issue("OPS", "Upgrade the load balancer", "medium", "lena"),
    )
    comments = Table("com", {"issue_id": "iss_0003", "author": "omar", "body": "The cookie of the session is kept."})
    sprints = Table(
        "spr",
        {"name": "Web 48", "project": "WEB", "ends": "2026-12-04"},
        {"name": "Ops 48", "project": "OPS", "ends": "2026-12-04"},
    )

    @service.tool(read_only=True)
    def list_projects() -> list[str]:
        """List the keys of all projects that the current user can browse."""
        return ["WEB", "OPS"]

    @service.tool(read_only=True)
    def search_issues(
        query: str = "",
        project: str | None = None,
        status: Status | None = None,
        assignee: str | None = None,
        limit: int = 20,
    ) -> list[Issue]:
        """Search issues by words in their summary and description, and filter them by project, status and assignee.

        Args:
            query: The words; all of them must occur. Empty for every issue.
            project: Key of the project, such as WEB.
            status: Only issues in this status.
            assignee: Only issues of this user.
            limit: How many issues to return at most.
        """
        return issues.select(
            lambda i: (
                matches(query, i["summary"], i["description"])
                and project in (None, i["project"])
                and status in (None, i["status"])
                and assignee in (None, i["assignee"])
            )
        )[:limit]

    @service.tool(read_only=True)
    def get_issue(issue_id: str) -> Issue:
        """Get an issue with its description, status, priority, assignee and the time that was logged.

        Args:
            issue_id: ID of the issue, such as iss_0001.
        """
        return issues.get(issue_id)

    @service.tool()
    def create_issue(
        project: str, summary: str, description: str = "", priority: Priority = "medium", assignee: str | None = None
    ) -> Issue:
        """Create an issue in a project. It is open, and in no sprint.

        Args:
            project: Key of the project, such as WEB.
            summary: One line that says what is wrong or wanted.
            description: The details, as Markdown.
            priority: How much it hurries.
            assignee: Who works on it.
        """
        return issues.add(**_issue(project, summary, priority, assignee, description))

    @service.tool()
    def update_issue(
        issue_id: str, summary: str | None = None, description: str | None = None, priority: Priority | None = None
    ) -> Issue:
        """Change fields of an issue. What is not given stays as it is.

        Args:
            issue_id: ID of the issue.
            summary: A new summary.
            description: A new description.
            priority: A new priority.
        """
        return issues.change(issue_id, summary=summary, description=description, priority=priority)

    @service.tool()
    def transition_issue(issue_id: str, status: Status, resolution: str = "") -> Issue:
        """Move an issue to another status of its workflow.

        Args:
            issue_id: ID of the issue.
            status: The new status.
            resolution: Why it is done; for the status done only.
        """
        return issues.change(issue_id, status=status)

    @service.tool()
    def assign_issue(issue_id: str, assignee: str) -> Issue:
        """Hand an issue to a user, who is notified.

        Args:
            issue_id: ID of the issue.
            assignee: Name of the user.
        """
        return issues.change(issue_id, assignee=assignee)

    @service.tool()
    def add_comment(issue_id: str, body: str) -> Comment:
        """Add a comment to an issue. Users who are mentioned with @ are notified.

        Args:
            issue_id: ID of the issue.
            body: The text, as Markdown.
        """
        issues.get(issue_id)
        return comments.add(issue_id=issue_id, author="me", body=body)

    @service.tool(read_only=True)
    def list_comments(issue_id: str) -> list[Comment]:
        """List the comments of an issue, oldest first.

        Args:
            issue_id: ID of the issue.
        """
        return comments.select(lambda c: c["issue_id"] == issue_id)

    @service.tool()
    def link_issues(issue_id: str, other_id: str, kind: Literal["blocks", "duplicates", "relates_to"]) -> str:
        """Link an issue to another one.

        Args:
            issue_id: ID of the issue that blocks, duplicates or relates to the other.
            other_id: ID of the other issue.
            kind: How the first is related to the second.
        """
        return f"{issues.get(issue_id)['id']} {kind} {issues.get(other_id)['id']}"

    @service.tool()
    def log_work(issue_id: str, minutes: int, comment: str = "") -> Issue:
        """Record time that was spent on an issue.

        Args:
            issue_id: ID of the issue.
            minutes: How many minutes.
            comment: What was done.
        """
        return issues.change(issue_id, minutes_logged=issues.get(issue_id)["minutes_logged"] + minutes)

    @service.tool(read_only=True)
    def list_sprints(project: str) -> list[Sprint]:
        """List the current and the planned sprints of a project.

        Args:
            project: Key of the project.
        """
        return sprints.select(lambda s: s["project"] == project)

    @service.tool()
    def add_to_sprint(issue_id: str, sprint_id: str) -> Issue:
        """Plan an issue for a sprint of its project.

        Args:
            issue_id: ID of the issue.
            sprint_id: ID of the sprint, such as spr_0001.
        """
        return issues.change(issue_id, sprint_id=sprints.get(sprint_id)["id"])

    return service
