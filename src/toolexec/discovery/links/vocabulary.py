"""Words that say what a name is about: which are verbs, which name a field, which say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _table(lines: str) -> dict[str, str]:
    """`word: others` lines, turned round: each of the others stands for the word."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        word, _, others = line.partition(":")
        found |= dict.fromkeys(others.split(), word)
    return found


SAME: Final[Mapping[str, str]] = _table("""
    id: ids identifier uuid guid uid pk
    number: num nr no iid
    username: login handle
    email: mailaddress emailaddress
    url: uri href permalink
    sha: oid
    repository: repo
    organization: org organisation
    pullrequest: pr prs pull
    mergerequest: mr mrs
    message: msg
    document: doc
    directory: dir
    environment: env
    project: proj
    customer: cust
    department: dept
    account: acct
    image: img
    latitude: lat
    longitude: lon lng long
    user: usr
    person: people
""")
"""What a word stands for. Words are in the singular, as `words_of` gives them."""

PHRASES: Final[Mapping[tuple[str, str], str]] = {
    ("pullrequest", "request"): "pullrequest",
    ("merge", "request"): "mergerequest",
    ("user", "name"): "username",
    ("screen", "name"): "username",
    ("e", "mail"): "email",
    ("email", "address"): "email",
    ("mail", "address"): "email",
    ("full", "name"): "fullname",
    ("display", "name"): "displayname",
    ("first", "name"): "firstname",
    ("last", "name"): "lastname",
    ("given", "name"): "firstname",
    ("family", "name"): "lastname",
    ("node", "id"): "nodeid",
    ("external", "id"): "externalid",
    ("phone", "number"): "phone",
    ("file", "path"): "path",
    ("html", "url"): "url",
    ("web", "url"): "url",
    ("commit", "sha"): "sha",
    ("commit", "hash"): "sha",
    ("time", "zone"): "timezone",
    ("log", "in"): "username",
}
"""Two words that are one."""

SHOWN: Final[Mapping[str, str]] = {
    "pullrequest": "pull request",
    "mergerequest": "merge request",
    "fullname": "full name",
    "displayname": "display name",
    "nodeid": "node ID",
    "externalid": "external ID",
    "id": "ID",
    "url": "URL",
    "sha": "SHA",
}
"""How words that are written as one are shown."""

FIELDS: Final = _set("id key number name username email slug sha url path code phone fullname nodeid externalid")
"""The last word of a name that says how a thing is identified among others of its kind."""

PORTABLE: Final = _set("username email sha url path phone fullname")
"""Fields that mean something by themselves, whatever they belong to."""

OWNERS: Final[Mapping[str, str]] = {"username": "user", "email": "user", "fullname": "repository"}
"""What a field belongs to when nothing else is said."""

CONTENT: Final = _set("""
    title body description text content subject comment note summary reason status state type kind mode query q search
    filter limit page size offset cursor count total sort order direction format since until before after start end
    date time at on language locale timezone enabled force verbose color colour priority field fields expand include
    exclude max min maximum minimum value data input output result option setting displayname firstname lastname
    visibility score rank position index level depth width height version timestamp duration flag
    snippet preview markdown html json template
""")
"""The last word of a name whose value a person or a model makes up; no tool's result is looked through for it."""

EMPTY: Final = _set("""
    item data result value entry record node edge list row payload response content object body output element match hit
    page all collection set batch root attribute property metadata envelope info detail d
""")
"""Names of containers that say nothing of what is in them."""

TRAILING: Final = _set("""
    detail info information data list result page metadata output response model schema item array object collection
    envelope dto payload record content
""")
"""What may follow a noun without changing what it is about: `issue_details`, `IssueListResponse`."""

QUALIFIERS: Final = _set("""
    parent child source target from to previous next related linked base head dest destination origin original root
    other new old current first last the this that my own inward outward duplicate blocking
    all recent latest single many multiple bulk batch authenticated available assigned
""")
"""Words that say which one is meant, not what it is."""

PREPOSITIONS: Final = _set("by for in with from to of on at as via using per about and under within into")

SELF: Final = _set("me myself whoami self")
"""Nouns that mean the user who asks."""

ROLES: Final = _set("""
    user assignee author owner reporter creator sender recipient member reviewer actor committer requester approver
    editor lead organizer attendee invitee participant manager watcher collaborator contributor person follower contact
""")
"""Nouns that mean a user in some part."""

VERBS: Final[Mapping[str, str]] = _table("""
    list: list search find query browse lookup discover enumerate filter autocomplete
    get: get fetch read retrieve show describe view load resolve check inspect geocode
    make: create add insert register make start upload draft send invite fork import copy duplicate clone publish
    make: submit post
    change: update edit set modify patch close reopen assign unassign move rename merge archive unarchive lock unlock
    change: transition mark enable disable reply approve reject link unlink attach request label star subscribe
    change: restore share run execute trigger convert book schedule write put save pin
    delete: delete remove destroy purge drop clear revoke cancel trash unsubscribe detach erase
""")
"""What each verb does: `list` gives many, `get` one, `make` something new, `change` and `delete` what is there."""
