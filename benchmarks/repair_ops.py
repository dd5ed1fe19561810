"""The tools that the tenth blind set of programs calls: repositories, builds, metrics and an on-call desk."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.repair_ops_records import (
    COSTS,
    DEPLOYS,
    FILES,
    FLAGS,
    INCIDENTS,
    LOGS,
    PEOPLE,
    PULL_REQUESTS,
    ROTATIONS,
    RUNS,
    SERIES,
)
from toolexec import Exec, tool

Severity = Literal["SEV1", "SEV2", "SEV3"]
Environment = Literal["staging", "production"]


class Author(TypedDict):
    login: str
    team: str


class PullRequest(TypedDict):
    number: int
    title: str
    author: Author
    labels: list[str]
    draft: bool
    opened_at: str
    merged_at: str | None


class PullRequestPage(TypedDict):
    pull_requests: list[PullRequest]
    page: int
    total_pages: int


class Commit(TypedDict):
    sha: str
    branch: str


class Merged(TypedDict):
    status: Literal["merged"]
    commit: Commit


class Blocked(TypedDict):
    status: Literal["blocked"]
    blockers: list[str]


class Match(TypedDict):
    path: str
    line_no: int
    text: str


class Run(TypedDict):
    run_id: str
    branch: str
    state: Literal["queued", "running", "finished"]
    outcome: Literal["passed", "failed", "cancelled"] | None
    duration_s: float | None


class RunPage(TypedDict):
    runs: list[Run]
    continue_from: str | None


class Incident(TypedDict):
    incident_id: str
    service: str
    severity: Severity
    opened_at: str
    resolved_at: str | None
    responders: list[str]
    impact: dict[str, int] | None


class Deploy(TypedDict):
    deploy_id: int
    service: str
    version: str
    environment: Environment
    finished_at: str | None
    deployed_by: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a version reaches users. A canary needs a percentage from 1 to 50."""

    strategy: Literal["rolling", "canary", "blue_green"]
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to page."""

    kind: Literal["team", "person"]
    id: str


@tool("repos:list_pull_requests", read_only=True)
def list_pull_requests(
    repo: str, state: Literal["open", "merged", "all"] = "open", page: int = 1, per_page: int = 3
) -> PullRequestPage:
    """List the pull requests of a repository, newest first.

    Args:
        repo: As "owner/name", e.g. "acme/api".
        state: Which pull requests.
        page: The page, from 1.
        per_page: How many a page has, at most 4.
    """
    if repo not in PULL_REQUESTS:
        raise ValueError(f"no repository {repo!r}; names are owner/name")
    if not 1 <= per_page <= 4:
        raise ValueError("per_page must be from 1 to 4")
    found = [
        {k: p[k] for k in PullRequest.__annotations__}
        for p in PULL_REQUESTS[repo]
        if state == "all" or (p["merged_at"] is None) == (state == "open")
    ]
    pages = -(-len(found) // per_page)
    start = (page - 1) * per_page
    return {"pull_requests": found[start : start + per_page], "page": page, "total_pages": pages}  # type: ignore[typeddict-item]


@tool("repos:get_pull_request", read_only=True)
def get_pull_request(repo: str, number: int) -> dict[str, Any]:
    """Get a pull request with its reviews, size and checks."""
    found = next((p for p in PULL_REQUESTS.get(repo, []) if p["number"] == number), None)
    if found is None:
        raise ValueError(f"no pull request {number} in {repo}")
    return found


@tool("repos:get_file", read_only=True)
def get_file(repo: str, path: str, ref: str = "main") -> dict[str, Any]:
    """Get a file of a repository. The content is Base64."""
    if (repo, path) not in FILES:
        raise ValueError(f"no file {path} in {repo} at {ref}")
    content = FILES[repo, path].encode()
    return {"path": path, "ref": ref, "size": len(content), "content": base64.b64encode(content).decode()}


@tool("repos:search_code", read_only=True)
def search_code(query: str, repo: str | None = None, max_results: int = 10) -> list[Match]:
    """Search for a string in all files."""
    found: list[Match] = []
    for (name, path), text in FILES.items():
        for number, line in enumerate(text.splitlines(), 1):
            if query in line and repo in (None, name):
                found.append({"path": f"{name}/{path}", "line_no": number, "text": line.strip()})
    return found[:max_results]


@tool("repos:merge_pull_request")
def merge_pull_request(
    repo: str, number: int, method: Literal["merge", "squash", "rebase"] = "squash"
) -> Merged | Blocked:
    """Merge a pull request; what keeps it from being merged is in `blockers`."""
    found = get_pull_request(repo, number)
    blockers = [f"{r['login']} requested changes" for r in found["reviews"] if r["decision"] == "changes_requested"]
    if found["draft"]:
        blockers.append("draft")
    if blockers:
        return {"status": "blocked", "blockers": blockers}
    return {"status": "merged", "commit": {"sha": f"{number:07x}{method[0]}", "branch": found["branches"]["base"]}}


@tool("ci:list_runs", read_only=True)
def list_runs(branch: str | None = None, continue_from: str | None = None, max_runs: int = 3) -> RunPage:
    """List the runs of the pipeline, newest first.

    Args:
        branch: Only runs of this branch.
        continue_from: continue_from of the page before.
        max_runs: How many, at most 5.
    """
    if not 1 <= max_runs <= 5:
        raise ValueError("max_runs must be from 1 to 5")
    found = [r for r in RUNS if branch in (None, r["branch"])]
    start = int(continue_from.removeprefix("r-")) if continue_from else 0
    end = start + max_runs
    page = [{k: r[k] for k in Run.__annotations__} for r in found[start:end]]
    return {"runs": page, "continue_from": f"r-{end}" if end < len(found) else None}  # type: ignore[typeddict-item]


@tool("ci:get_run", read_only=True)
def get_run(run_id: str) -> dict[str, Any]:
    """Get a run with its jobs."""
    found = next((r for r in RUNS if r["run_id"] == run_id), None)
    if found is None:
        raise ValueError(f"no run {run_id}")
    return {"run": found, "triggered_by": found["trigger"]}


@tool("ci:get_log", read_only=True)
def get_log(log_id: str) -> str:
    """Get the log of a job as plain text, a line for each event: time, level, message."""
    if log_id not in LOGS:
        raise ValueError(f"no log {log_id}")
    return LOGS[log_id]


@tool("ci:rerun-jobs")
def rerun_jobs(run_id: str, jobs: list[str] | None = None, debug: bool = False) -> dict[str, Any]:
    """Run jobs of a run again: those named, or the ones that failed."""
    run = get_run(run_id)["run"]
    names = jobs if jobs is not None else [j["name"] for j in run["jobs"] if j["outcome"] == "failed"]
    unknown = [name for name in names if name not in {j["name"] for j in run["jobs"]}]
    if unknown:
        raise ValueError(f"no job {unknown[0]} in {run_id}")
    return {"rerun": {"run_id": f"{run_id}-2", "jobs": names, "debug": debug}}


@tool("metrics:query_range", read_only=True)
def query_range(metric: str, start: int, end: int, step_s: int = 60) -> dict[str, Any]:
    """Query a metric over a range of time.

    Args:
        metric: Its name, e.g. "http.latency_ms".
        start: Unix time in seconds.
        end: Unix time in seconds, after start.
        step_s: Seconds between two points.
    """
    if metric not in SERIES:
        raise ValueError(f"no metric {metric}")
    if start > 10_000_000_000:
        raise ValueError("start is in seconds, not milliseconds")
    if end <= start:
        raise ValueError("end must be after start")
    unit, hosts = SERIES[metric]
    series = [
        {"labels": {"host": host}, "points": [[1789000000 + i * step_s, v] for i, v in enumerate(values)]}
        for host, values in hosts.items()
    ]
    return {"metric": metric, "unit": unit, "series": series}


@tool("metrics:list_metrics", read_only=True)
def list_metrics(prefix: str = "") -> list[str]:
    """List the names of metrics."""
    return [name for name in SERIES if name.startswith(prefix)]


@tool("oncall:list_incidents", read_only=True)
def list_incidents(service: str | None = None, severity: Severity | None = None) -> list[Incident]:
    """List incidents, oldest first."""
    return [i for i in INCIDENTS if service in (None, i["service"]) and severity in (None, i["severity"])]


@tool("oncall:get_rotation", read_only=True)
def get_rotation(team: str) -> dict[str, Any]:
    """Get who is on call in a team, and the shifts that follow."""
    if team not in ROTATIONS:
        raise ValueError(f"no team {team!r}; teams: {', '.join(ROTATIONS)}")
    return ROTATIONS[team]


@tool("oncall:page")
def page(target: Target, message: str, urgency: Literal["low", "high"] = "low") -> dict[str, Any]:
    """Page a team or a person."""
    return {"page_id": f"PG-{target.kind[0]}-{target.id}", "urgency": urgency, "delivered": target.kind == "person"}


@tool("oncall:resolve_incident")
def resolve_incident(incident_id: str, summary: str, follow_ups: list[str] | None = None) -> dict[str, Any]:
    """Resolve an incident."""
    found = next((i for i in INCIDENTS if i["incident_id"] == incident_id), None)
    if found is None:
        raise ValueError(f"no incident {incident_id}")
    if found["resolved_at"]:
        raise ValueError(f"{incident_id} was resolved at {found['resolved_at']}")
    return {
        "incident_id": incident_id,
        "resolved": True,
        "tickets": [f"T-{i}" for i, _ in enumerate(follow_ups or [], 1)],
    }


@tool("people:lookup", read_only=True)
def lookup(logins: list[str]) -> dict[str, Any]:
    """Look people up by login. Those that are not known are in `unknown`."""
    return {
        "people": {each: PEOPLE[each] for each in logins if each in PEOPLE},
        "unknown": [each for each in logins if each not in PEOPLE],
    }


@tool("deploys:list_deploys", read_only=True)
def list_deploys(environment: Environment, service: str | None = None) -> list[Deploy]:
    """List deploys to an environment, oldest first."""
    return [d for d in DEPLOYS if d["environment"] == environment and service in (None, d["service"])]


@tool("deploys:start_deploy")
def start_deploy(
    service: str, version: str, environment: Environment, rollout: Rollout, dry_run: bool = False
) -> dict[str, Any]:
    """Start a deploy of a version, such as "2.4.1"."""
    if version.startswith("v"):
        raise ValueError("version has no leading v, such as 2.4.1")
    if rollout.strategy == "canary" and not (rollout.percent and 1 <= rollout.percent <= 50):
        raise ValueError("a canary needs percent from 1 to 50")
    return {"deploy": {"id": 900 + len(service), "state": "planned" if dry_run else "started"}, "service": service}


@tool("flags:get_flag", read_only=True)
def get_flag(key: str) -> dict[str, Any]:
    """Get a feature flag with its rules. A rule without a percentage holds for all."""
    if key not in FLAGS:
        raise ValueError(f"no flag {key}")
    return FLAGS[key]


@tool("flags:update_flag")
def update_flag(key: str, enabled: bool, percentage: int | None = None) -> dict[str, Any]:
    """Turn a feature flag on or off, for a percentage of users (0 to 100)."""
    get_flag(key)
    if percentage is not None and not 0 <= percentage <= 100:
        raise ValueError("percentage must be from 0 to 100")
    return {"flag": {"key": key, "enabled": enabled, "percentage": percentage}, "previous": FLAGS[key]["enabled"]}


@tool("costs:get_report", read_only=True)
def get_report(month: str, group_by: Literal["service", "team"] = "service") -> dict[str, Any]:
    """Get the costs of a month (YYYY-MM). Amounts are decimal strings."""
    if month not in COSTS:
        raise ValueError(f"no report for {month!r}; months are YYYY-MM")
    return {"month": month, "currency": "USD", "lines": COSTS[month][group_by]}


def add_ops_tools(ex: Exec) -> None:
    """Add the tools of a software team: repositories, builds, metrics, on-call desk, deploys, flags and costs."""
    repos = list_pull_requests, get_pull_request, get_file, search_code, merge_pull_request
    ci = list_runs, get_run, get_log, rerun_jobs
    watch = query_range, list_metrics, list_incidents, get_rotation, page, resolve_incident, lookup
    change = list_deploys, start_deploy, get_flag, update_flag, get_report
    for each in (*repos, *ci, *watch, *change):
        ex.add(each)
