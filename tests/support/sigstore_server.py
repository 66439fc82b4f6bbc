"""A sigstore of the tests' own: a certificate authority, two logs, and a server that plays them.

Keys are made here, everything else is as the real services do it, so that the sigstore library
signs and verifies with all of its checks. Nothing leaves the machine.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ISSUER = "https://issuer.example"
SCT = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
FULCIO = "1.3.6.1.4.1.57264.1"
START = "2020-01-01T00:00:00Z"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def der_string(text: str) -> bytes:
    return bytes([0x0C, len(text)]) + text.encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass
class LocalSigstore:
    authority: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificate_log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    root: x509.Certificate = field(init=False)
    url: str = ""

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        now = datetime.now(timezone.utc)
        public = self.authority.public_key()
        self.root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage(sign=False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.authority, hashes.SHA384())
        )

    # What a certificate authority does.

    def certify(self, request: x509.CertificateSigningRequest, claims: dict[str, str]) -> list[str]:
        now = datetime.now(timezone.utc)
        identity = claims["sub"]
        named = x509.RFC822Name if "@" in identity else x509.UniformResourceIdentifier
        public = self.authority.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.root.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + timedelta(minutes=10))
            .add_extension(usage(sign=True), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([named(identity)]), critical=True)
        )
        for number, value in (
            (1, claims["iss"].encode()),
            (8, der_string(claims["iss"])),
            (12, der_string(claims.get("repository", "none"))),
        ):
            extension = x509.UnrecognizedExtension(
                x509.ObjectIdentifier(f"{FULCIO}.{number}"), value
            )
            builder = builder.add_extension(extension, critical=False)
        before = builder.sign(self.authority, hashes.SHA384())
        stamped = builder.add_extension(
            x509.UnrecognizedExtension(SCT, self._timestamp(before)), critical=False
        ).sign(self.authority, hashes.SHA384())
        return [pem(stamped), pem(self.root)]

    def _timestamp(self, certificate: x509.Certificate) -> bytes:
        """RFC 6962: a log's promise to list the certificate, as an extension's value."""
        tbs, moment = certificate.tbs_certificate_bytes, int(time.time() * 1000)
        entry = hashlib.sha256(spki(self.authority)).digest() + len(tbs).to_bytes(3, "big") + tbs
        signed = struct.pack("!BBQH", 0, 0, moment, 1) + entry + b"\0\0"
        signature = self.certificate_log.sign(signed, ec.ECDSA(hashes.SHA256()))
        log = hashlib.sha256(spki(self.certificate_log)).digest()
        stamp = struct.pack("!B32sQHBBH", 0, log, moment, 0, 4, 3, len(signature)) + signature
        inner = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        return bytes([0x04, len(inner)] if len(inner) < 128 else [0x04, 0x81, len(inner)]) + inner

    # What a transparency log does; its tree has one leaf.

    def enter(self, proposed: dict[str, Any]) -> dict[str, Any]:
        body = canonical(logged(proposed))
        leaf = hashlib.sha256(b"\0" + body).digest()
        log = hashlib.sha256(spki(self.log)).digest()
        moment = int(time.time())
        promise = {"body": b64(body), "integratedTime": moment, "logID": log.hex(), "logIndex": 0}
        note = f"log.example - 1\n1\n{b64(leaf)}\n"
        hint = b64(log[:4] + self._sign(note.encode()))
        proof = {
            "checkpoint": f"{note}\n\u2014 log.example {hint}\n",
            "hashes": [],
            "logIndex": 0,
            "rootHash": leaf.hex(),
            "treeSize": 1,
        }
        stamp = b64(self._sign(canonical(promise)))
        verification = {"inclusionProof": proof, "signedEntryTimestamp": stamp}
        return {leaf.hex(): promise | {"verification": verification}}

    def _sign(self, data: bytes) -> bytes:
        return self.log.sign(data, ec.ECDSA(hashes.SHA256()))

    # What a client is told.

    def trust_config(self) -> str:
        def key(private: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": b64(spki(private)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": START},
                },
                "logId": {"keyId": b64(hashlib.sha256(spki(private)).digest())},
            }

        def service(path: str) -> list[dict[str, Any]]:
            valid = {"start": START}
            return [
                {
                    "url": self.url + path,
                    "majorApiVersion": 1,
                    "validFor": valid,
                    "operator": "tests",
                }
            ]

        root = b64(self.root.public_bytes(serialization.Encoding.DER))
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
                "trustedRoot": {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [key(self.log)],
                    "ctlogs": [key(self.certificate_log)],
                    "certificateAuthorities": [
                        {
                            "subject": {"organization": "tests", "commonName": "tests"},
                            "uri": self.url,
                            "certChain": {"certificates": [{"rawBytes": root}]},
                            "validFor": {"start": START},
                        }
                    ],
                    "timestampAuthorities": [],
                },
                "signingConfig": {
                    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                    "caUrls": service(""),
                    "oidcUrls": service("/auth"),
                    "rekorTlogUrls": service(""),
                    "tsaUrls": [],
                    "rekorTlogConfig": {"selector": "ANY"},
                    "tsaConfig": {"selector": "ANY"},
                },
            }
        )


def usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign,
        key_cert_sign=not sign,
        crl_sign=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def logged(proposed: dict[str, Any]) -> dict[str, Any]:
    """What the log keeps of a proposed entry: of an envelope only hashes."""
    if proposed["kind"] != "dsse":
        return proposed
    content = proposed["spec"]["proposedContent"]
    envelope = json.loads(content["envelope"])
    payload = base64.b64decode(envelope["payload"])
    return {
        "apiVersion": "0.0.1",
        "kind": "dsse",
        "spec": {
            "envelopeHash": digest(content["envelope"].encode()),
            "payloadHash": digest(payload),
            "signatures": [
                {"signature": signature["sig"], "verifier": verifier}
                for signature, verifier in zip(
                    envelope["signatures"], content["verifiers"], strict=True
                )
            ],
        },
    }


def digest(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def token(identity: str, *, issuer: str = ISSUER, expired: bool = False, **claims: str) -> str:
    now = int(time.time()) - (7200 if expired else 0)
    told = {"aud": "sigstore", "sub": identity, "iss": issuer, "iat": now, "exp": now + 3600}
    return jwt.encode(told | claims, "a key that nobody checks, long enough", algorithm="HS256")


class Handler(BaseHTTPRequestHandler):
    sigstore: LocalSigstore

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/v2/signingCert":
            raw = self.headers["Authorization"].removeprefix("Bearer ")
            claims = jwt.decode(raw, options={"verify_signature": False})
            request = base64.b64decode(sent["certificateSigningRequest"])
            chain = self.sigstore.certify(x509.load_pem_x509_csr(request), claims)
            self.answer({"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}})
        else:
            self.answer(self.sigstore.enter(sent))

    def answer(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(sigstore: LocalSigstore):
    handler = type("Handler", (Handler,), {"sigstore": sigstore})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    sigstore.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield sigstore
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
