"""The certificates that the proxy shows to code: signed by a key of this backend that lives in memory and no longer."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
import tempfile
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import MissingExtraError
from toolexec.net.hosts import plain_host

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_MOST: Final = 256
_LONG: Final = timedelta(days=3650)
_LEAF: Final = timedelta(days=30)
_EARLY: Final = timedelta(days=2)
"""The clock of a sandbox may be behind."""


class Authority:
    """Makes certificates for hosts. Its own is public, and what code has to trust; its key never leaves this object.

    Safe for many connections at once; used by one event loop. Raises MissingExtraError without the `egress` extra.
    """

    def __init__(self) -> None:
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _own_certificate(self._key)
        self._contexts: OrderedDict[str, tuple[ssl.SSLContext, datetime]] = OrderedDict()

    def __repr__(self) -> str:
        return "Authority()"

    @property
    def ca_pem(self) -> bytes:
        """The certificate that code has to trust, in PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    async def context(self, host: str) -> ssl.SSLContext:
        """Return a context for the server's side of a connection to *host*, HTTP/1.1 only.

        A client that names another host in its greeting is turned away.
        """
        now = datetime.now(UTC)
        kept = self._contexts.get(host)
        if kept is not None and now < kept[1]:
            self._contexts.move_to_end(host)
            return kept[0]
        context = await asyncio.to_thread(self._make, host, now)
        self._contexts[host] = context, now + _LEAF / 2
        while len(self._contexts) > _MOST:
            self._contexts.popitem(last=False)
        return context

    def _make(self, host: str, now: datetime) -> ssl.SSLContext:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        certificate = self._leaf(host, now)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.num_tickets = 0
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _load(context, key + certificate.public_bytes(Encoding.PEM))

        def check(_: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> int | None:
            return None if name is None or plain_host(name) == host else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = check  # pyright: ignore[reportAttributeAccessIssue] - None as the name is not in the stubs
        return context

    def _leaf(self, host: str, now: datetime) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        authority = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return (
            _builder("toolexec egress", self._certificate.subject, self._leaf_key, now, _LEAF)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _own_certificate(key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return (
        _builder("toolexec sandbox CA", None, key, datetime.now(UTC), _LONG)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: str, issuer: x509.Name | None, key: EllipticCurvePrivateKey, now: datetime, valid: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Certificate and key can only be loaded from a file; where it can be, that is one in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("toolexec-egress", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory(prefix="toolexec-egress-") as directory:  # others may not look into it
        path = Path(directory) / "leaf.pem"
        path.write_bytes(pem)
        context.load_cert_chain(path)


def _require_cryptography() -> Any:
    try:
        import cryptography.x509
    except ModuleNotFoundError as error:
        raise MissingExtraError("egress", needed_for="an egress policy with hosts") from error
    return cryptography.x509
