"""What the tools of the tenth blind set of programs know: pull requests, runs, metrics and incidents."""

from __future__ import annotations

from typing import Any, Final


def _pull(
    number: int, title: str, author: tuple[str, str], labels: list[str], opened: str, merged: str | None, **more: Any
) -> dict[str, Any]:
    return {
        "number": number,
        "title": title,
        "author": {"login": author[0], "team": author[1]},
        "labels": labels,
        "draft": more.get("draft", False),
        "opened_at": opened,
        "merged_at": merged,
        "branches": {"head": more.get("head", f"topic-{number}"), "base": "main"},
        "diff": {"additions": more["size"][0], "deletions": more["size"][1], "files": more["size"][2]},
        "reviews": more.get("reviews", []),
        "milestone": more.get("milestone"),
    }


_MIRA, _TOM, _YUKI, _SAM = ("mira", "core"), ("tomasz", "core"), ("yuki", "web"), ("sam-o", "data")
PULL_REQUESTS: Final[dict[str, list[dict[str, Any]]]] = {
    "acme/api": [
        _pull(
            412,
            "Retry webhooks with backoff",
            _MIRA,
            ["bug", "webhooks"],
            "2026-09-10T08:15:00Z",
            None,
            size=(182, 40, 6),
            reviews=[{"login": "tomasz", "decision": "approved", "comments": 2}],
            milestone={"title": "2.5", "due_on": "2026-10-01"},
        ),
        _pull(
            411,
            "Drop Python 3.9",
            _TOM,
            ["breaking"],
            "2026-09-09T16:40:00Z",
            None,
            size=(31, 297, 44),
            reviews=[
                {"login": "mira", "decision": "changes_requested", "comments": 5},
                {"login": "yuki", "decision": None, "comments": 0},
            ],
        ),
        _pull(409, "Page through audit events", _YUKI, [], "2026-09-08T11:05:00Z", None, size=(95, 12, 3), draft=True),
        _pull(
            407,
            "Cache tenant settings",
            _MIRA,
            ["performance"],
            "2026-09-04T09:30:00Z",
            None,
            size=(64, 8, 2),
            reviews=[{"login": "sam-o", "decision": "approved", "comments": 0}],
        ),
        _pull(
            405,
            "Fix timezone of exports",
            _SAM,
            ["bug"],
            "2026-09-02T10:00:00Z",
            "2026-09-03T14:20:00Z",
            size=(12, 9, 1),
        ),
        _pull(
            401,
            "Add rate limits",
            _TOM,
            ["feature"],
            "2026-08-28T13:00:00Z",
            "2026-09-01T08:45:00Z",
            size=(340, 22, 11),
        ),
    ],
    "acme/web": [
        _pull(88, "New billing page", _YUKI, ["feature", "billing"], "2026-09-11T07:50:00Z", None, size=(820, 133, 27)),
        _pull(85, "Upgrade router", _YUKI, ["deps"], "2026-09-05T12:00:00Z", "2026-09-06T12:00:00Z", size=(40, 38, 9)),
    ],
}
FILES: Final[dict[tuple[str, str], str]] = {
    ("acme/api", "config/limits.json"): '{"default": {"rps": 50, "burst": 100}, "tenants": {"zeta": {"rps": 200}}}',
    ("acme/api", "requirements.txt"): "httpx==0.27.0\npydantic==2.8.2\n# pinned for the worker\ncelery==5.4.0\n",
    ("acme/api", "CHANGELOG.md"): "# Changes\n\n## 2.4.1\n- Fix timezone of exports\n\n## 2.4.0\n- Add rate limits\n",
    ("acme/web", "package.json"): '{"name": "web", "dependencies": {"react": "^18.3.1", "router": "^6.4.0"}}',
}


def _run(
    run_id: str, branch: str, state: str, outcome: str | None, seconds: float | None, *jobs: Any
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "branch": branch,
        "state": state,
        "outcome": outcome,
        "duration_s": seconds,
        "trigger": {"event": "push", "actor": "mira"} if branch != "main" else {"event": "schedule", "actor": None},
        "jobs": [{"name": n, "outcome": o, "log_id": log, "attempts": a} for n, o, log, a in jobs],
    }


RUNS: Final[list[dict[str, Any]]] = [
    _run("run-7031", "main", "running", None, None, ("lint", "passed", "L-7031-1", 1), ("test", None, None, 1)),
    _run(
        "run-7030", "topic-412", "finished", "failed", 412.5, ("lint", "passed", "L-1", 1), ("test", "failed", "L-2", 2)
    ),
    _run("run-7029", "main", "finished", "passed", 380.0, ("lint", "passed", "L-3", 1), ("test", "passed", "L-4", 1)),
    _run("run-7028", "topic-411", "finished", "cancelled", 61.2, ("lint", "failed", "L-5", 1), ("test", None, None, 0)),
    _run("run-7027", "main", "finished", "failed", 402.3, ("lint", "passed", "L-6", 1), ("test", "failed", "L-7", 3)),
    _run(
        "run-7026", "topic-412", "finished", "passed", 395.0, ("lint", "passed", "L-8", 1), ("test", "passed", "L-9", 1)
    ),
    _run("run-7025", "topic-409", "queued", None, None),
]
LOGS: Final[dict[str, str]] = {
    "L-2": (
        "2026-09-10T09:00:01Z INFO collected 214 items\n"
        "2026-09-10T09:04:40Z ERROR test_backoff FAILED: expected 3 retries, got 2\n"
        "2026-09-10T09:05:10Z WARNING 2 deprecations\n"
        "2026-09-10T09:06:20Z ERROR test_webhook_order FAILED: timeout after 30s\n"
    ),
    "L-7": "2026-09-08T02:00:03Z INFO collected 211 items\n2026-09-08T02:06:44Z ERROR test_export FAILED: tz\n",
    "L-5": "",
}
SERIES: Final[dict[str, tuple[str, dict[str, list[float | None]]]]] = {
    "http.latency_ms": ("ms", {"api-1": [120.0, 132.5, None, 181.0], "api-2": [98.0, 101.0, 99.5, 102.5]}),
    "http.errors": ("count", {"api-1": [0, 3, 9, 4], "api-2": [0, 0, 1, 0]}),
    "queue.depth": ("count", {"worker-1": [12, 18, 40, 22]}),
}
INCIDENTS: Final[list[Any]] = [
    {
        "incident_id": "INC-51",
        "service": "api",
        "severity": "SEV2",
        "opened_at": "2026-09-01T22:10:00Z",
        "resolved_at": "2026-09-01T23:40:00Z",
        "responders": ["mira", "tomasz"],
        "impact": {"tenants": 4, "requests": 18200},
    },
    {
        "incident_id": "INC-52",
        "service": "web",
        "severity": "SEV3",
        "opened_at": "2026-09-06T13:00:00Z",
        "resolved_at": "2026-09-06T13:25:00Z",
        "responders": ["yuki"],
        "impact": None,
    },
    {
        "incident_id": "INC-53",
        "service": "api",
        "severity": "SEV1",
        "opened_at": "2026-09-10T10:05:00Z",
        "resolved_at": None,
        "responders": ["mira", "sam-o", "ext-44"],
        "impact": {"tenants": 31, "requests": 90500},
    },
    {
        "incident_id": "INC-54",
        "service": "worker",
        "severity": "SEV3",
        "opened_at": "2026-09-11T06:00:00Z",
        "resolved_at": None,
        "responders": [],
        "impact": None,
    },
]
ROTATIONS: Final[dict[str, dict[str, Any]]] = {
    "core": {
        "team": "core",
        "current": {"login": "tomasz", "until": "2026-09-14T08:00:00Z"},
        "upcoming": [
            {"login": "mira", "from": "2026-09-14T08:00:00Z", "until": "2026-09-21T08:00:00Z"},
            {"login": "ines", "from": "2026-09-21T08:00:00Z", "until": "2026-09-28T08:00:00Z"},
        ],
        "escalation": ["mira", "ines"],
    },
    "web": {"team": "web", "current": None, "upcoming": [], "escalation": ["yuki"]},
}
PEOPLE: Final[dict[str, dict[str, Any]]] = {
    "mira": {"name": "Mira Kovač", "email": "mira@acme.example", "timezone": "Europe/Zagreb", "manager": "ines"},
    "tomasz": {"name": "Tomasz Lis", "email": "tomasz@acme.example", "timezone": "Europe/Warsaw", "manager": "ines"},
    "yuki": {"name": "Yuki Arai", "email": "yuki@acme.example", "timezone": "Asia/Tokyo", "manager": None},
    "sam-o": {"name": "Sam Oduya", "email": None, "timezone": "Africa/Lagos", "manager": "ines"},
    "ines": {"name": "Inês Prado", "email": "ines@acme.example", "timezone": "Europe/Lisbon", "manager": None},
}
DEPLOYS: Final[list[Any]] = [
    {
        "deploy_id": 871,
        "service": "api",
        "version": "2.4.0",
        "environment": "production",
        "finished_at": "2026-09-01T09:10:00Z",
        "deployed_by": "tomasz",
    },
    {
        "deploy_id": 874,
        "service": "web",
        "version": "5.10.0",
        "environment": "production",
        "finished_at": "2026-09-06T14:00:00Z",
        "deployed_by": "yuki",
    },
    {
        "deploy_id": 875,
        "service": "api",
        "version": "2.4.1",
        "environment": "production",
        "finished_at": "2026-09-03T15:00:00Z",
        "deployed_by": "sam-o",
    },
    {
        "deploy_id": 878,
        "service": "web",
        "version": "5.9.2",
        "environment": "staging",
        "finished_at": None,
        "deployed_by": "yuki",
    },
]
FLAGS: Final[dict[str, dict[str, Any]]] = {
    "new-billing": {
        "key": "new-billing",
        "enabled": True,
        "rules": [
            {"attribute": "plan", "values": ["team", "enterprise"], "percentage": 25},
            {"attribute": "country", "values": ["HR", "PL"]},
        ],
        "owner": {"team": "web", "login": "yuki"},
    },
    "fast-exports": {"key": "fast-exports", "enabled": False, "rules": [], "owner": None},
}
COSTS: Final[dict[str, dict[str, list[dict[str, Any]]]]] = {
    "2026-08": {
        "service": [
            {"name": "compute", "amount": "1840.50", "change_pct": 4.2},
            {"name": "storage", "amount": "312.25", "change_pct": -1.5},
            {"name": "egress", "amount": "97.10", "change_pct": None},
        ],
        "team": [
            {"name": "core", "amount": "1500.00", "change_pct": 2.0},
            {"name": "web", "amount": "749.85", "change_pct": 3.1},
        ],
    },
    "2026-07": {
        "service": [
            {"name": "compute", "amount": "1766.30", "change_pct": 0.4},
            {"name": "storage", "amount": "317.00", "change_pct": 2.2},
        ],
        "team": [{"name": "core", "amount": "1471.00", "change_pct": 1.0}],
    },
}
