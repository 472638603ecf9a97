"""The cluster's certificates: an authority for Kubernetes, one for aggregated API servers, and those they sign."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=3650)
# A machine whose clock was set back a little must still accept the certificates.
BACKDATED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key as PEM text, and the files that hold them."""

    certificate_file: Path
    key_file: Path

    @property
    def certificate(self) -> bytes:
        return self.certificate_file.read_bytes()

    @property
    def key(self) -> bytes:
        return self.key_file.read_bytes()


def pair(folder: Path, name: str) -> Pair:
    """The pair `name` in the folder."""
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


def create_authority(folder: Path, name: str) -> Pair:
    """Create a self-signed certificate authority in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, organization="")
    builder = _builder(subject, issuer=subject, key=key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _write(pair(folder, name), builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Pair, folder: Path, name: str, *, common_name: str, organization: str = "", serves: Sequence[str] = ()
) -> Pair:
    """Issue a certificate by `authority`: a server's for the names and addresses in `serves`, else a client's."""
    authority_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(common_name, organization=organization), issuer=issuer, key=key)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if serves:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in serves]), critical=False)
    return _write(pair(folder, name), builder.sign(authority_key, hashes.SHA256()), key)


def create_signing_key(folder: Path, name: str) -> None:
    """Create a bare key pair, NAME.key and NAME.pub, with which service-account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.key").write_bytes(_private_pem(key))
    (folder / f"{name}.pub").write_bytes(public)


def write_kubeconfig(target: Path, *, server: str, authority: Pair, client: Pair, context: str) -> None:
    """Write a self-contained kubeconfig, as JSON, which is YAML."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [
            {
                "name": context,
                "user": {
                    "client-certificate-data": _base64(client),
                    "client-key-data": base64.b64encode(client.key).decode(),
                },
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    target.touch(mode=0o600)
    target.write_text(json.dumps(config, indent=1))


def _base64(certified: Pair) -> str:
    return base64.b64encode(certified.certificate).decode()


def _builder(subject: x509.Name, *, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
    )


def _name(common_name: str, *, organization: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(target: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    target.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    target.key_file.touch(mode=0o600)
    target.key_file.write_bytes(_private_pem(key))
    return target


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
