"""Certificates for tests: an authority, and what it has signed for a server and for a client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

PASSWORD = "the-password-of-the-key"


@dataclass
class Certificates:
    """Files in PEM: of the authority, of a server called `localhost` with its key, and of a client called `ann` and its
    key, which is encrypted."""

    ca: Path
    server: Path
    client: Path
    key: Path


def make_certificates(directory: Path) -> Certificates:
    """Write the files into *directory*."""
    found = Certificates(*(directory / f"{name}.pem" for name in ("ca", "server", "client", "key")))
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    ca = _signed("authority", keys[0], "authority", keys[0], is_ca=True)
    found.ca.write_bytes(ca.public_bytes(Encoding.PEM))
    server = _signed("localhost", keys[1], "authority", keys[0])
    plain = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    found.server.write_bytes(server.public_bytes(Encoding.PEM) + plain)
    found.client.write_bytes(_signed("ann", keys[2], "authority", keys[0]).public_bytes(Encoding.PEM))
    encrypted = BestAvailableEncryption(PASSWORD.encode())
    found.key.write_bytes(keys[2].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted))
    return found


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
