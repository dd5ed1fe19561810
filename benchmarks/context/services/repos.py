"""A host of git repositories."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_repositories": "repositories of an organization",
    "get_repository": "details of a repository",
    "list_branches": "branches of a repository",
    "create_branch": "make a branch",
    "get_file_contents": "read a file of a repository",
    "commit_file": "commit a change of a file",
    "create_pull_request": "open a pull request",
    "list_pull_requests": "open pull requests",
    "get_pull_request": "read a pull request",
    "merge_pull_request": "merge a pull request",
    "add_review_comment": "review a pull request",
    "list_commits": "history of a branch",
    "create_release": "publish a release",
    "search_code": "find code",
}


class Repository(TypedDict):
    name: str
    owner: str
    default_branch: str
    private: bool
    stars: int


class PullRequest(TypedDict):
    id: str
    repo: str
    title: str
    head: str
    base: str
    state: Literal["open", "merged", "closed"]
    comments: list[str]


class Commit(TypedDict):
    sha: str
    branch: str
    message: str
    author: str


def make() -> Service:
    """Return the tools over two repositories."""
    service = Service("repos")
    repositories: Any = [
        {"name": "webshop", "owner": "acme", "default_branch": "main", "private": True, "stars": 12},
        {"name": "infra", "owner": "acme", "default_branch": "main", "private": True, "stars": 3},
    ]
    branches: dict[str, list[str]] = {"webshop": ["main", "fix-cart"], "infra": ["main"]}
    files: dict[tuple[str, str], str] = {
        ("webshop", "README.md"): "# Web shop\n\nRun `make serve`.\n",
        ("webshop", "src/cart.py"): "def total(items):\n    return sum(item.price for item in items)\n",
        ("infra", "alerts.yaml"): "disk:\n  threshold: 95\n",
    }
    pulls = Table(
        "pr",
        {
            "repo": "webshop",
            "title": "Fix crash on empty cart",
            "head": "fix-cart",
            "base": "main",
            "state": "open",
            "comments": [],
        },
    )
    commits: Any = [
        {"sha": "9f1c2ab", "branch": "main", "message": "Round taxes", "author": "anna", "repo": "webshop"},
        {"sha": "77e04d1", "branch": "main", "message": "Raise the threshold", "author": "petra", "repo": "infra"},
    ]

    @service.tool(read_only=True)
    def list_repositories(owner: str, limit: int = 30) -> list[Repository]:
        """List the repositories of a user or an organization that the current user can read.

        Args:
            owner: Login of the user or the organization.
            limit: How many repositories to return at most.
        """
        return [one for one in repositories if one["owner"] == owner][:limit]

    @service.tool(read_only=True)
    def get_repository(owner: str, repo: str) -> Repository:
        """Get a repository with its default branch, its visibility and its number of stars.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
        """
        return next(one for one in repositories if (one["owner"], one["name"]) == (owner, repo))

    @service.tool(read_only=True)
    def list_branches(owner: str, repo: str) -> list[str]:
        """List the names of the branches of a repository.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
        """
        return branches[repo]

    @service.tool()
    def create_branch(owner: str, repo: str, branch: str, source: str = "main") -> str:
        """Create a branch at the head of another one.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            branch: Name of the new branch.
            source: Branch that it starts from.
        """
        branches[repo] = [*branches[repo], branch]
        return branch

    @service.tool(read_only=True)
    def get_file_contents(owner: str, repo: str, path: str, ref: str = "main") -> str:
        """Get the text of a file at a branch, a tag or a commit.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            path: Path of the file inside the repository.
            ref: Branch, tag or commit.
        """
        return files[repo, path]

    @service.tool()
    def commit_file(owner: str, repo: str, path: str, content: str, message: str, branch: str = "main") -> Commit:
        """Create or replace a file with a single commit on a branch.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            path: Path of the file inside the repository.
            content: The new text of the file.
            message: Message of the commit.
            branch: Branch that gets the commit.
        """
        files[repo, path] = content
        commit = {"sha": f"c{len(commits):06}", "branch": branch, "message": message, "author": "me", "repo": repo}
        commits.append(commit)
        return {name: commit[name] for name in ("sha", "branch", "message", "author")}  # type: ignore[return-value]

    @service.tool()
    def create_pull_request(
        owner: str, repo: str, title: str, head: str, base: str = "main", body: str = "", draft: bool = False
    ) -> PullRequest:
        """Open a pull request that proposes to merge a branch into another one.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            title: Title of the pull request.
            head: Branch with the changes.
            base: Branch that is to get them.
            body: Description, as Markdown.
            draft: Whether it is not ready for review yet.
        """
        return pulls.add(repo=repo, title=title, head=head, base=base, state="open", comments=[])

    @service.tool(read_only=True)
    def list_pull_requests(
        owner: str, repo: str, state: Literal["open", "merged", "closed"] = "open"
    ) -> list[PullRequest]:
        """List the pull requests of a repository.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            state: Only those in this state.
        """
        return pulls.select(lambda p: p["repo"] == repo and p["state"] == state)

    @service.tool(read_only=True)
    def get_pull_request(pull_id: str) -> PullRequest:
        """Get a pull request with its branches, its state and its comments.

        Args:
            pull_id: ID of the pull request, such as pr_0001.
        """
        return pulls.get(pull_id)

    @service.tool()
    def merge_pull_request(pull_id: str, method: Literal["merge", "squash", "rebase"] = "merge") -> PullRequest:
        """Merge a pull request into its base branch.

        Args:
            pull_id: ID of the pull request.
            method: How its commits are merged.
        """
        return pulls.change(pull_id, state="merged")

    @service.tool()
    def add_review_comment(
        pull_id: str, body: str, verdict: Literal["comment", "approve", "request_changes"] = "comment"
    ) -> PullRequest:
        """Review a pull request: leave a comment, approve it, or ask for changes.

        Args:
            pull_id: ID of the pull request.
            body: Text of the review, as Markdown.
            verdict: What the review comes to.
        """
        return pulls.change(pull_id, comments=[*pulls.get(pull_id)["comments"], f"{verdict}: {body}"])

    @service.tool(read_only=True)
    def list_commits(owner: str, repo: str, branch: str = "main", limit: int = 20) -> list[Commit]:
        """List the commits of a branch, newest first.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            branch: Name of the branch.
            limit: How many commits to return at most.
        """
        found = [one for one in commits if one["repo"] == repo and one["branch"] == branch]
        return [{name: one[name] for name in ("sha", "branch", "message", "author")} for one in found[::-1][:limit]]  # type: ignore[return-value]

    @service.tool()
    def create_release(owner: str, repo: str, tag: str, name: str = "", notes: str = "") -> str:
        """Publish a release of a repository under a tag, which is created if there is none of that name.

        Args:
            owner: Login of the owner.
            repo: Name of the repository.
            tag: Name of the tag, such as v1.4.0.
            name: Title of the release.
            notes: What is new, as Markdown.
        """
        return f"https://git.acme.example/{owner}/{repo}/releases/{tag}"

    @service.tool(read_only=True)
    def search_code(query: str, repo: str | None = None) -> list[str]:
        """Search the default branches of all repositories, and return the paths of the files that match.

        Args:
            query: Words that occur in the file.
            repo: Search this repository only.
        """
        return [
            f"{name}/{path}" for (name, path), text in files.items() if matches(query, text) and repo in (None, name)
        ]

    return service
