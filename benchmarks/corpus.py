"""A made-up catalogue of any size for measuring speed: the same on every machine, each smaller one begins a larger.

A hundred services, thirty verbs, a hundred nouns; three to eight properties and 1 KB of JSON a tool. `QUERIES` are
asked of it: a tool answers one if its name begins with the verb, or a word for the same, and has the noun. `python -m
benchmarks.corpus` checks the first 100,000 tools. Standard library only, since the peers' programs read it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
SEED = 42
DIGESTS = {1000: "386ee8fcb0734922", 10_000: "864237c0a471f607", 100_000: "857db045d84d3188"}
"""The beginnings of the SHA-256 of the first tools, one a line as compact JSON."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the verb and the noun that it asks for; a query for a service has neither."""

    text: str
    verb: str | None
    noun: str | None

    def answered_by(self, name: str) -> bool:
        """Whether a tool of this name is what was asked for."""
        if self.verb is None and self.noun is None:
            return False
        if self.verb is not None and not any(name.startswith(f"{word}_") for word in VERBS[self.verb]):
            return False
        return self.noun is None or f"_{self.noun}_" in f"_{name}_"


def _words(text: str) -> list[str]:
    return text.split()


SERVICES = _words(
    """github gitlab jira slack stripe salesforce hubspot zendesk notion linear asana trello
dropbox gdrive onedrive sharepoint gmail outlook calendar zoom teams discord twilio sendgrid mailchimp
shopify magento woocommerce paypal square quickbooks xero netsuite sap workday bamboohr greenhouse lever
okta auth0 vault consul kubernetes docker terraform ansible jenkins circleci argocd datadog grafana
prometheus sentry pagerduty opsgenie splunk elastic kibana postgres mysql mongodb redis cassandra
snowflake bigquery redshift databricks airflow dbt kafka rabbitmq sqs s3 lambda ec2 route53 cloudfront
cloudflare fastly vercel netlify heroku figma miro canva wordpress contentful algolia pinecone weaviate
airtable coda clickup monday intercom drift freshdesk surveymonkey typeform docusign box tableau looker
metabase amplitude mixpanel segment braze klaviyo ups fedex dhl weather maps flights hotels"""
)

VERBS = {
    "create": ["create", "add", "new", "make"],
    "list": ["list", "enumerate", "browse"],
    "get": ["get", "fetch", "retrieve", "read"],
    "update": ["update", "edit", "modify", "patch"],
    "delete": ["delete", "remove", "destroy"],
    "search": ["search", "find", "query", "lookup"],
    "send": ["send", "deliver", "dispatch"],
    "export": ["export", "download", "dump"],
    "import": ["import", "upload", "ingest"],
    "approve": ["approve", "accept", "confirm"],
    "reject": ["reject", "decline", "deny"],
    "archive": ["archive", "retire"],
    "restore": ["restore", "recover", "undelete"],
    "schedule": ["schedule", "plan"],
    "cancel": ["cancel", "abort", "stop"],
    "sync": ["sync", "synchronize", "mirror"],
    "validate": ["validate", "check", "verify"],
    "convert": ["convert", "transform"],
    "merge": ["merge", "combine"],
    "split": ["split", "divide"],
    "assign": ["assign", "allocate"],
    "notify": ["notify", "alert"],
    "analyze": ["analyze", "inspect", "profile"],
    "summarize": ["summarize", "condense"],
    "deploy": ["deploy", "release", "rollout"],
    "rollback": ["rollback", "revert"],
    "monitor": ["monitor", "watch", "track"],
    "encrypt": ["encrypt", "seal"],
    "compress": ["compress", "shrink"],
    "translate": ["translate", "localize"],
}

NOUNS = _words(
    """invoice payment refund customer order product cart shipment subscription coupon ticket issue
comment label milestone sprint board card repository branch commit pull_request review pipeline build
artifact deployment environment secret certificate domain dns_record bucket object file folder document
spreadsheet slide page template form survey response contact lead opportunity campaign audience segment
event meeting calendar reminder task project workspace team member role permission policy group user
account profile session token webhook integration connector dataset table column row schema query report
dashboard chart metric alert incident runbook log trace span container pod node cluster namespace volume
image snapshot backup database index replica queue topic message channel thread notification email
attachment signature contract vendor purchase_order expense budget ledger timesheet payroll candidate
interview offer benefit asset license device network firewall gateway route forecast flight hotel booking
itinerary location address translation transcript recording video audio photo thumbnail annotation model
experiment feature_flag release version changelog package dependency vulnerability scan test_case"""
)

QUALIFIERS = _words(
    """by_id in_bulk for_owner with_filter by_date as_draft by_status for_region with_history
by_tag for_month by_email recursively by_priority as_csv as_pdf with_preview by_name in_place for_team
by_range with_retry by_label async_mode dry_run by_hash for_quarter by_parent with_audit"""
)

CATEGORIES = [
    "finance",
    "devops",
    "crm",
    "storage",
    "messaging",
    "analytics",
    "security",
    "hr",
    "commerce",
    "content",
    "scheduling",
    "data",
    "travel",
    "support",
]

EXTRA = [
    "The call is idempotent when a request key is given.",
    "Results are ordered by last change.",
    "Needs the write scope of the workspace.",
    "Large answers are paged with a cursor.",
    "Fails if the target is locked by another session.",
    "Timestamps are in UTC.",
    "Rate limited to sixty calls a minute.",
    "Returns the full record after the change.",
    "Only members with an admin role may use it.",
    "Supports partial answers with a field mask.",
    "Soft limits apply to trial plans.",
    "Changes are written to the audit log.",
]

PROPS = [
    ("id", {"type": "string", "minLength": 1, "maxLength": 64}, "Identifier of the {n}"),
    ("name", {"type": "string", "minLength": 1, "maxLength": 200}, "Name of the {n}"),
    ("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}, "How many {n} records to return"),
    ("cursor", {"type": "string"}, "Cursor of the next page"),
    ("status", {"type": "string", "enum": ["open", "closed", "pending", "archived"]}, "Status of the {n}"),
    ("priority", {"type": "integer", "minimum": 0, "maximum": 5}, "Priority, zero is lowest"),
    ("tags", {"type": "array", "items": {"type": "string"}, "maxItems": 20}, "Labels put on the {n}"),
    ("amount", {"type": "number", "minimum": 0}, "Amount in the account's currency"),
    ("currency", {"type": "string", "pattern": "^[A-Z]{3}$"}, "Currency code"),
    ("owner", {"type": "string"}, "Login of the owner"),
    ("email", {"type": "string", "format": "email"}, "Address to send the {n} to"),
    ("due_date", {"type": "string", "format": "date"}, "Due date of the {n}"),
    ("dry_run", {"type": "boolean", "default": False}, "Only report what would change"),
    ("recursive", {"type": "boolean"}, "Include children of the {n}"),
    ("region", {"type": "string", "enum": ["us", "eu", "apac"]}, "Region that holds the {n}"),
    (
        "filter",
        {
            "type": "object",
            "properties": {
                "field": {"type": "string"},
                "op": {"type": "string", "enum": ["eq", "ne", "lt", "gt"]},
                "value": {"type": "string"},
            },
            "required": ["field", "op"],
        },
        "Condition that a {n} must meet",
    ),
    ("metadata", {"type": "object", "additionalProperties": {"type": "string"}}, "Free key and value pairs"),
    ("format", {"type": "string", "enum": ["json", "csv", "pdf"]}, "Format of the answer"),
    ("notes", {"type": "string", "maxLength": 4000}, "Free text kept with the {n}"),
    ("retries", {"type": "integer", "minimum": 0, "maximum": 10}, "Tries before giving up"),
]

QUERIES = (
    Query("invoice", None, "invoice"),
    Query("pull_request", None, "pull_request"),
    Query("create", "create", None),
    Query("snowflake", None, None),
    Query("feature_flag", None, "feature_flag"),
    Query("restore_backup", "restore", "backup"),
    Query("deploy", "deploy", None),
    Query("payroll", None, "payroll"),
    Query("create an invoice for a customer", "create", "invoice"),
    Query("refund a payment", None, "refund"),
    Query("find open tickets by status", "search", "ticket"),
    Query("send email message with attachment", "send", "email"),
    Query("roll back a deployment", "rollback", "deployment"),
    Query("list files in a folder", "list", "file"),
    Query("schedule a meeting in the calendar", "schedule", "meeting"),
    Query("export report as csv", "export", "report"),
    Query("delete user account", "delete", "user"),
    Query("analyze log of the kubernetes pod", "analyze", "log"),
    Query("translate document", "translate", "document"),
    Query("book a flight and hotel", None, "flight"),
)


class _Dice:
    """Choices that are made of `random()` only, whose sequence is the same on every version of Python."""

    def __init__(self) -> None:
        self._random = random.Random(SEED).random

    def number(self, low: int, high: int) -> int:
        return low + int(self._random() * (high - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        mixed = list(options)
        for i in range(count):
            j = i + int(self._random() * (len(mixed) - i))
            mixed[i], mixed[j] = mixed[j], mixed[i]
        return mixed[:count]

    def chance(self, share: float) -> bool:
        return self._random() < share


def make_corpus() -> Iterator[dict[str, Any]]:
    """Tools without end, in MCP's shape with namespace, version and tags."""
    dice = _Dice()
    seen: set[tuple[str, str]] = set()
    while True:
        namespace, verb, noun = dice.pick(SERVICES), dice.pick(list(VERBS)), dice.pick(NOUNS)
        name = f"{dice.pick(VERBS[verb]) if dice.chance(0.5) else verb}_{noun}"
        if dice.chance(0.55):
            name += f"_{dice.pick(QUALIFIERS)}"
        if (namespace, name) not in seen:
            seen.add((namespace, name))
            yield _tool(dice, namespace, verb, noun, name)


def _tool(dice: _Dice, namespace: str, verb: str, noun: str, name: str) -> dict[str, Any]:
    human, words = noun.replace("_", " "), name.split("_")
    other_verb, category = dice.pick(VERBS[verb]), dice.pick(CATEGORIES)
    description = f"{other_verb.capitalize()} {'an' if human[0] in 'aeiou' else 'a'} {human} in {namespace}"
    rest = words[2 + noun.count("_") :]
    if rest:
        description += f" {' '.join(rest)}"
    description += ". " + " ".join(dice.sample(EXTRA, dice.number(1, 3)))
    properties: dict[str, Any] = {}
    for key, schema, text in dice.sample(PROPS, dice.number(3, 8)):
        properties[key] = {**schema, "description": text.format(n=human)}
    tool: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "version": f"{dice.number(1, 4)}.{dice.number(0, 9)}.{dice.number(0, 9)}",
        "title": " ".join(word.capitalize() for word in words),
        "description": description,
        "tags": sorted({category, human.replace(" ", "-"), verb}),
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:2],
            "additionalProperties": False,
        },
    }
    if dice.chance(0.5):
        answer = {"id": {"type": "string"}, "ok": {"type": "boolean"}, noun: {"type": "object"}}
        tool["outputSchema"] = {"type": "object", "properties": answer, "required": ["id", "ok"]}
    if dice.chance(0.6):
        tool["annotations"] = {
            "readOnlyHint": verb in ("list", "get", "search", "analyze", "monitor", "summarize"),
            "destructiveHint": verb in ("delete", "cancel", "rollback"),
        }
    return tool


def other_queries(count: int) -> list[str]:
    """As many different queries for a verb, a noun and now and then a service."""
    dice = _Dice()
    found: dict[str, None] = {}
    while len(found) < count:
        words = [dice.pick(VERBS[dice.pick(list(VERBS))]), dice.pick(NOUNS).replace("_", " ")]
        found[" ".join([*words, *(["in", dice.pick(SERVICES)] if dice.chance(0.3) else [])])] = None
    return list(found)


def document_text(tool: dict[str, Any]) -> str:
    """All of a tool as one text, for engines that know no fields; names are cut into their words."""
    words = [tool["name"].replace("_", " "), tool["namespace"], tool["title"], tool["description"], *tool["tags"]]
    for name, schema in tool["inputSchema"]["properties"].items():
        words += [name.replace("_", " "), schema["description"]]
    return " ".join(words)


def precision(found: Sequence[Sequence[str]]) -> float:
    """Precision at ten over all queries: *found* has the names of the tools that each of them brought, best first."""
    hits = sum(query.answered_by(name) for query, names in zip(QUERIES, found, strict=True) for name in names[:10])
    return hits / 10 / len(QUERIES)


def check(sizes: Sequence[int]) -> None:
    """Compare the first tools with their digests; raises ValueError when they differ."""
    digest = sha256()
    for count, tool in enumerate(islice(make_corpus(), max(sizes)), 1):
        digest.update(f"{json.dumps(tool, separators=(',', ':'))}\n".encode())
        if count in sizes and not digest.hexdigest().startswith(DIGESTS[count]):
            raise ValueError(f"the first {count} tools are not those that all figures were taken with")


if __name__ == "__main__":
    check(tuple(DIGESTS))
    print("the corpus is as it should be")
