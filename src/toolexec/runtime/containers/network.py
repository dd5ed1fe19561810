"""What code in containers may reach: nothing, or some hosts through the proxy of the host, over the guest protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from toolexec.model.json_value import JSONDict
from toolexec.runtime.containers.spec import WORK
from toolexec.runtime.protocol.tunnel import Connect

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Egress, EgressRecord
    from toolexec.runtime.egress.proxy import EgressProxy
    from toolexec.runtime.egress.secrets import ResolveSecret

_PORT: Final = 3128
_CERTIFICATE: Final = ".toolexec-ca.pem"
_MOST_TOLD: Final = 100


class Network:
    """The network of all containers of a backend; nothing of it is made before the first one needs it."""

    def __init__(self, egress: Egress | None, resolve_secret: ResolveSecret | None = None) -> None:
        self._egress = egress if egress is not None and egress.hosts else None
        self._resolve = resolve_secret
        self._shared: dict[str, Any] = {}

    @property
    def port(self) -> int:
        """Where the proxy is in a container; 0 for none."""
        return _PORT if self._egress is not None else 0

    @property
    def env(self) -> Mapping[str, str]:
        """The variables by which programs in a container find it."""
        if self._egress is None:
            return {}
        from toolexec.runtime.egress.environment import environment

        return environment(_PORT, f"{WORK}/{_CERTIFICATE}")

    def reach(self, reach: Reach | None = None) -> Reach | None:
        """Return the way out of one more container, *reach* or a new one; None where there is none.

        Raises MissingExtraError without the `egress` extra.
        """
        if self._egress is None:
            return None
        from toolexec.runtime.egress.authority import Authority
        from toolexec.runtime.egress.proxy import EgressProxy
        from toolexec.runtime.egress.secrets import KnownSecrets
        from toolexec.runtime.egress.upstream import client_context

        if not self._shared:
            self._shared = {
                "resolve_secret": self._resolver(),
                "authority": Authority(),
                "trust": client_context(),
                "known": KnownSecrets(),  # what one container has used must not come back to another one
            }
        reach = reach or Reach()
        reach.proxy = EgressProxy(self._egress, **self._shared, on_request=reach.note)
        return reach

    async def problem(self) -> str:
        """Return why a secret of the policy can never be used, judged by variables and files; "" if
        nothing is wrong. A secret that is not there may still come.
        """
        resolve = self._resolver() if self._egress is not None else None
        if self._egress is None or resolve is None:
            return ""
        from toolexec.runtime.egress.secrets import SHORTEST_SECRET, too_short

        for placeholder, secret in self._egress.secrets.items():
            if secret.ref.startswith(("env:", "file:")):
                with suppress(Exception):  # whatever it is, the request that needs the secret says so
                    length = len((await resolve(secret.ref)).strip())
                    if 0 < length < SHORTEST_SECRET:
                        return f"the egress secret for {placeholder} cannot be used: {too_short(length)}"
        return ""

    def _resolver(self) -> ResolveSecret | None:
        if self._resolve is None and self._egress is not None and self._egress.secrets:
            from toolexec.backend.secrets.resolver import SecretResolver
            from toolexec.runtime.egress.secrets import resolve_with

            self._resolve = resolve_with(SecretResolver())
        return self._resolve


class Reach:
    """The way out of one container: who serves its connections, and what went over them."""

    proxy: EgressProxy

    def __init__(self) -> None:
        self._records: list[EgressRecord] = []

    @property
    def connect(self) -> Connect:
        """Serves one connection."""
        return self.proxy.serve

    @property
    def files(self) -> Mapping[str, bytes]:
        """What has to be in the working directory: the certificate that programs must trust."""
        return {_CERTIFICATE: self.proxy.ca_pem}

    def note(self, record: EgressRecord) -> None:
        """Keep the record of a request, up to a bound."""
        if len(self._records) < _MOST_TOLD:
            self._records.append(record)

    def told(self) -> list[JSONDict]:
        """Return the requests since the last time, as results show them: at most a hundred."""
        told = [
            {
                "host": record.host,
                "port": record.port,
                "method": record.method,
                "path": record.path,
                "status": record.status,
                "allowed": record.allowed,
                **({"reason": record.reason} if record.reason else {}),
            }
            for record in self._records
        ]
        self._records.clear()
        return told
