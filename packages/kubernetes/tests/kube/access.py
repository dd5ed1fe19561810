"""Who may do what: bearer tokens, and roles as RBAC reads them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from packages.kubernetes.tests.kube.objects import ApiError, Object
from packages.kubernetes.tests.kube.store import Store


@dataclass(frozen=True)
class User:
    """Who makes a request."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attributes:
    """What a request does."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def full(self) -> str:
        """Return the resource as rules have it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Access:
    """The tokens that are known, and the decision about each request."""

    def __init__(self, store: Store, admin_token: str) -> None:
        self._store = store
        self._users = {admin_token: User("admin", ("system:masters", "system:authenticated"))}

    def token_for(self, namespace: str, account: str) -> str:
        """Return a new token of a service account."""
        token = secrets.token_urlsafe(32)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        self._users[token] = User(f"system:serviceaccount:{namespace}:{account}", groups)
        return token

    def user_of(self, header: str) -> User:
        """Return who has the token of an Authorization header; raises ApiError."""
        kind, _, token = header.partition(" ")
        found = self._users.get(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise ApiError(401, "Unauthorized")
        return found

    def allows(self, user: User, asked: Attributes) -> bool:
        """Return whether a role of *user* has a rule for that."""
        if "system:masters" in user.groups:
            return True
        return any(_fits(rule, asked) for rule in self._rules(user, asked.namespace))

    def check(self, user: User, asked: Attributes) -> None:
        """Refuse with ApiError what no rule allows."""
        if self.allows(user, asked):
            return
        full = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
        name = f' "{asked.name}"' if asked.name else ""
        where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
        what = f'cannot {asked.verb} resource "{asked.full}" in API group "{asked.group}"{where}'
        message = f'{full}{name} is forbidden: User "{user.name}" {what}'
        raise ApiError(403, message, details={"name": asked.name, "group": asked.group, "kind": asked.resource})

    def _rules(self, user: User, namespace: str) -> Iterator[Object]:
        for binding in self._store.all("clusterrolebindings.rbac.authorization.k8s.io"):
            if _binds(binding, user, ""):
                yield from self._role(binding, "")
        if namespace:
            for binding in self._store.all("rolebindings.rbac.authorization.k8s.io", namespace):
                if _binds(binding, user, namespace):
                    yield from self._role(binding, namespace)

    def _role(self, binding: Object, namespace: str) -> list[Object]:
        reference = binding["roleRef"]
        is_local = reference["kind"] == "Role"
        key = "roles" if is_local else "clusterroles"
        found = self._store.find(f"{key}.rbac.authorization.k8s.io", namespace if is_local else "", reference["name"])
        return (found or {}).get("rules") or []


def _binds(binding: Object, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or []:
        match subject["kind"]:
            case "ServiceAccount":
                name = f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
                found = name == user.name
            case "Group":
                found = subject["name"] in user.groups
            case _:
                found = subject["name"] == user.name
        if found:
            return True
    return False


def _fits(rule: Object, asked: Attributes) -> bool:
    def has(name: str, value: str) -> bool:
        values = rule.get(name) or []
        return "*" in values or value in values

    names = rule.get("resourceNames") or []
    return (
        has("verbs", asked.verb)
        and has("apiGroups", asked.group)
        and (
            has("resources", asked.full) or (bool(asked.subresource) and f"*/{asked.subresource}" in rule["resources"])
        )
        and (not names or asked.name in names)
    )
