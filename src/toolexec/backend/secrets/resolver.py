"""Fill in the references of a configuration, as late as possible."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolexec.backend.secrets.providers import (
    SecretProvider,
    ask_command,
    ask_environment,
    ask_keyring,
    read_secret_file,
)
from toolexec.errors import ConfigurationError, MissingExtraError, SecretError
from toolexec.errors.hints import did_you_mean
from toolexec.model.redaction import Redactor, redactor
from toolexec.model.secret_forms import SHORTEST
from toolexec.model.settings import checked

FILL_IN: Final = "PUT-ITS-VALUE-HERE"
"""Stands for the value of a variable in what users paste and fill in; as a value it counts as not set."""
_KEEP_SECONDS: Final = 600.0
_PREFIX: Final = "secretref:"
_REFERENCE = re.compile(
    r"(?P<dollar>\$\$)|\$\{(?P<body>[^{}]*)\}|(?P<open>\$\{)"
    r"|(?<![\w-])secretref:(?:(?P<provider>[A-Za-z0-9_-]+):(?P<ref>[^\s,;&\"']+))?"
)
_WHOLE = re.compile(r"secretref:(?P<provider>[A-Za-z0-9_-]+):(?P<ref>.+)", re.DOTALL)
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_ENV_FORM = re.compile(r"env:(?P<name>[^:]+)")
_TELLING = re.compile(
    r"token|secret|passw|pwd|key|auth|cred|cookie|session|dsn|bearer|(?:^|_)(?:pat|pin)(?:_|$)", re.IGNORECASE
)
_PLAIN_ENDS = re.compile(
    r"(?:.*_)?(?:path|dirs?|directory|root|home|file|host(?:name)?|port|region|zone|lang|locale|tz|user(?:name)?|logname"
    r"|shell|term|editor|pwd|tmpdir|level|mode|env|environment|stage|debug|verbose|timeout|enabled|disabled|version)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """Strings without references, by label, and the values among them that must stay secret."""

    strings: Mapping[str, str]
    secrets: frozenset[str] = field(repr=False)


@dataclass(slots=True)
class _Work:
    """What has come up while strings were expanded."""

    problems: list[str] = field(default_factory=list[str])
    secrets: set[str] = field(default_factory=set[str])


def references_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the provider and the name of every reference in *text* that must lead somewhere, in order.

    `${NAME}` is one to the provider `env`; with a default (`${NAME:-x}`) it need not be set, and is left out.
    """
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        yield whole["provider"], whole["ref"]
        return
    for match in _REFERENCE.finditer(text):
        if match["provider"] is not None:
            yield match["provider"], match["ref"]
        elif match["body"] is not None and match["body"] not in ("userHome", "workspaceFolder"):
            variable = _VARIABLE.fullmatch(match["body"]) or _ENV_FORM.fullmatch(match["body"])
            if variable is not None and variable.groupdict().get("default") is None:
                yield "env", variable["name"]


def has_reference(text: str) -> bool:
    """Return whether a SecretResolver would change *text*, or refuse it."""
    return _REFERENCE.search(text) is not None


@checked("SecretResolver")
class SecretResolver:
    """Replaces references by what they stand for.

    - `${NAME}` is an environment variable that must be set; `${NAME:-default}` has a default for one that is not set or
      empty. `${env:NAME}` and `${userHome}` work as in VS Code; its other forms are refused. `$$` is a `$`. A `$`
      without a brace is left alone, and what is filled in is not looked at again.
    - `secretref:PROVIDER:REF` is a secret: `env:NAME`, `file:PATH`, `command:COMMAND LINE`, `keyring:SERVICE/NAME`, or
      one of *providers*, which may also take the place of these. A text that begins with it is one reference, up to its
      end; elsewhere (`Bearer secretref:env:TOKEN`) a reference ends before white space, a comma, a semicolon, an
      ampersand or a quote.

    Every secret is made known to *redact*, and so is every variable unless its name (`..._HOST`, `..._DIR`, `HOME`) or
    its value (the path of something that exists) shows that it is none. Secrets of providers are kept for 10 minutes.
    *environment* is read again each time. With *strict* false a variable that is not set stays as it is written.

    Methods block as long as a provider does. They may be called from any thread.
    """

    def __init__(
        self,
        providers: Mapping[str, SecretProvider] | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        redact: Redactor = redactor,
        strict: bool = True,
    ) -> None:
        self._environment = environment
        self.redact = redact
        self._strict = strict
        self._providers: dict[str, SecretProvider] = {
            "env": ask_environment(environment),
            "file": read_secret_file,
            "command": ask_command,
            "keyring": ask_keyring,
            **(providers or {}),
        }
        self._kept: dict[tuple[str, str], tuple[str, float]] = {}
        self._asking: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SecretResolver(providers={sorted(self._providers)})"

    def resolve(self, text: str, where: str) -> str:
        """*text* with its references filled in.

        Raises SecretError, which names *where* and what is missing but never a value, and MissingExtraError.
        """
        return self.expand({"": text}, where).strings[""]

    def resolve_all(self, strings: Mapping[str, str], where: str) -> dict[str, str]:
        """Several strings at once; raises as `resolve`, with everything that is missing in one error."""
        return dict(self.expand(strings, where).strings)

    def expand(
        self, strings: Mapping[str, str], where: str, *, public: Collection[str] = (), fresh: bool = False
    ) -> Expanded:
        """As `resolve_all`, with what of it is secret.

        Under the labels *public* a variable counts as secret only when its name says so. *fresh* asks all providers
        again.
        """
        work = _Work()
        found: dict[str, str] = {}
        for label, text in strings.items():
            problems = len(work.problems)
            found[label] = self._expand(text, work, public=label in public, fresh=fresh)
            if label:
                work.problems[problems:] = [f"{label}: {problem}" for problem in work.problems[problems:]]
        if work.secrets:
            self.redact.add(*work.secrets)
        if work.problems:
            problems = list(dict.fromkeys(work.problems))
            raise SecretError(f"{where}: {'; '.join(problems)}", details={"where": where, "problems": problems})
        return Expanded(strings=found, secrets=frozenset(work.secrets))

    def _expand(self, text: str, work: _Work, *, public: bool, fresh: bool) -> str:
        if text.startswith(_PREFIX):
            whole = _WHOLE.fullmatch(text)
            return self._secret(whole["provider"], whole["ref"], work, fresh=fresh) if whole else _malformed(work)

        def fill_in(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            if match["open"]:
                work.problems.append("there is a ${ without its }; write $${ for a plain one")
                return ""
            if match["body"] is not None:
                return self._variable(match["body"], work, public=public)
            if match["provider"] is None:
                return _malformed(work)
            return self._secret(match["provider"], match["ref"], work, fresh=fresh)

        return _REFERENCE.sub(fill_in, text)

    def _variable(self, body: str, work: _Work, *, public: bool) -> str:
        if body == "userHome":
            return str(Path.home())
        match = _VARIABLE.fullmatch(body) or _ENV_FORM.fullmatch(body)
        if match is None or body == "workspaceFolder":
            shown = body if len(body) <= 40 else f"{body[:40]}..."
            work.problems.append(
                f"${{{shown}}} is not known here; use ${{NAME}}, ${{NAME:-default}}, ${{env:NAME}}, ${{userHome}}"
                " or secretref:PROVIDER:REF"
            )
            return ""
        name, default = match["name"], match.groupdict().get("default")
        value = self._environment.get(name)
        if default is not None and not value:
            return default
        if value is None:
            if not self._strict:
                return f"${{{body}}}"
            work.problems.append(f"the environment variable {name} is not set")
            return ""
        if value == FILL_IN:
            work.problems.append(f"the environment variable {name} is still {FILL_IN}; put its value in that place")
        elif _is_secret(name, value, public=public):
            work.secrets.add(value)
        return value

    def _secret(self, provider: str, ref: str, work: _Work, *, fresh: bool) -> str:
        ask = self._providers.get(provider)
        if ask is None:
            known = did_you_mean(provider, sorted(self._providers))
            work.problems.append(f"there is no provider {provider!r} of secrets; {known}")
            return ""
        try:
            value = self._ask(provider, ask, ref, fresh=fresh)
        except MissingExtraError:
            raise
        except ConfigurationError as error:
            work.problems.append(error.message)
            return ""
        except Exception as error:  # whatever it says may hold the secret
            work.problems.append(f"the provider {provider!r} failed with {type(error).__name__}")
            return ""
        work.secrets.add(value)
        return value

    def _ask(self, provider: str, ask: SecretProvider, ref: str, *, fresh: bool) -> str:
        key = provider, ref
        asked = time.monotonic()
        with self._lock:
            turn = self._asking.setdefault(key, threading.Lock())
        with turn:  # one program, and one prompt, for all who want the same secret at the same time
            kept = self._kept.get(key)
            if kept is not None:
                value, since = kept
                if since >= asked or (not fresh and asked - since < _KEEP_SECONDS):
                    return value
            value = ask(ref)
            if not isinstance(value, str) or not value:
                raise SecretError(f"the provider {provider!r} gave no text")
            if provider != "env":
                self._kept[key] = value, time.monotonic()
            return value


def _malformed(work: _Work) -> str:
    work.problems.append("a reference to a secret must be secretref:PROVIDER:REF")
    return ""


def _is_secret(name: str, value: str, *, public: bool) -> bool:
    if len(value) < SHORTEST or _is_path(value):
        return False
    if name not in ("PWD", "OLDPWD") and _TELLING.search(name):
        return True
    return not public and _PLAIN_ENDS.fullmatch(name) is None


def _is_path(value: str) -> bool:
    try:
        return Path(value).is_absolute() and Path(value).exists()
    except (OSError, ValueError):
        return False
