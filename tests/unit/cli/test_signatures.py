"""`kbuild sign` and `kbuild verify`, with a sigstore of the tests' own and the real library."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("sigstore")

from kbuild.publish.signing import sign
from tests.support.sigstore_server import ISSUER, LocalSigstore, served, token

ME = "me@example.org"
BY_ME = ("--identity", ME, "--issuer", ISSUER)


@pytest.fixture(scope="module")
def sigstore() -> Iterator[LocalSigstore]:
    with served(LocalSigstore()) as running:
        yield running


@pytest.fixture
def trust(sigstore: LocalSigstore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple:
    for name in ("SIGSTORE_IDENTITY_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "trust.json"
    file.write_text(sigstore.trust_config())
    return ("--trust-config", file)


@pytest.fixture
def built(kbuild: Callable, variant: Path) -> Path:
    assert kbuild("hash", variant).code == 0
    return variant


@pytest.fixture
def signed(kbuild: Callable, built: Path, trust: tuple) -> Path:
    answer = kbuild("sign", built, *trust, "--identity-token", token(ME))
    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [str(built / "metadata.json.sigstore")]
    return built


def refused(kbuild: Callable, folder: Path, trust: tuple, *expected: str) -> str:
    answer = kbuild("verify", folder, *trust, *(expected or BY_ME))
    assert answer.code == 6, answer.out
    assert "refused" in answer.out
    return answer.err


class TestGood:
    def test_it_says_who_signed(self, kbuild, signed, trust):
        answer = kbuild("verify", signed, *trust, *BY_ME, "--json")
        assert answer.code == 0, answer.err
        assert answer.json == [
            {"variant": signed.name, "ok": True, "problems": [], "identity": ME, "issuer": ISSUER}
        ]

    def test_without_any_network(self, kbuild, signed, trust, monkeypatch):
        def closed(*_: object, **__: object) -> None:
            raise AssertionError("a connection was opened")

        monkeypatch.setattr(socket.socket, "connect", closed)
        assert kbuild("verify", signed, *trust, *BY_ME, "--offline").code == 0

    def test_a_workflow_of_a_repository(self, kbuild, built, trust):
        workflow = "https://github.com/a/b/.github/workflows/build.yaml@refs/heads/main"
        github = "https://token.actions.githubusercontent.com"
        raw = token(workflow, issuer=github, repository="https://github.com/a/b")
        assert kbuild("sign", built, *trust, "--identity-token", raw).code == 0
        for expected in (
            ("--repository", "a/b"),
            ("--repository", "a/b", "--identity", workflow, "--issuer", github),
        ):
            assert kbuild("verify", built, *trust, *expected).code == 0
        assert "not by a workflow of a/c" in refused(kbuild, built, trust, "--repository", "a/c")

    def test_the_token_of_the_environment(self, kbuild, built, trust, monkeypatch):
        monkeypatch.setenv("SIGSTORE_IDENTITY_TOKEN", token(ME))
        assert kbuild("sign", built, *trust).code == 0
        assert kbuild("verify", built, *trust, *BY_ME).code == 0


class TestBad:
    def test_nothing_signed(self, kbuild, built, trust):
        assert "there is no `metadata.json.sigstore`" in refused(kbuild, built, trust)

    def test_what_no_digest_counts(self, kbuild, signed, trust, tmp_path):
        """Importing runs it, and the signature says nothing of it."""
        (signed / "__pycache__").mkdir()
        (signed / "__pycache__" / "__init__.cpython-311.pyc").write_text("")
        (signed / "extra").symlink_to(tmp_path)
        os.mkfifo(signed / "pipe")
        strays = [
            "`__pycache__/__init__.cpython-311.pyc` is bytecode",
            "`extra` is a link that leads out of the folder",
            "`pipe` is a named pipe",
        ]
        words = refused(kbuild, signed, trust)
        assert all(stray in words for stray in strays)
        answer = kbuild("verify", signed, *trust, *BY_ME, "--json")
        assert (answer.code, answer.json[0]["problems"]) == (6, strays)
        answer = kbuild("sign", signed, *trust, "--identity-token", token(ME))
        assert answer.code == 6
        assert all(stray in answer.err for stray in strays)

    def test_a_file_more_and_a_file_less(self, kbuild, signed, trust):
        (signed / "_ops.py").unlink()
        (signed / "more.py").write_text("")
        words = refused(kbuild, signed, trust)
        assert "`_ops.py` is gone" in words
        assert "`more.py` is not in the digest" in words

    def test_changed_metadata(self, kbuild, signed, trust):
        """Also when the digest was made to fit the changed files."""
        (signed / "__init__.py").write_text("import os\n")
        answer = kbuild("hash", signed)
        assert (answer.code, "sign it again" in answer.err) == (0, True)
        words = refused(kbuild, signed, trust)
        assert "`metadata.json` was changed after it was signed" in words

    def test_metadata_is_not_read_before_its_signature(self, kbuild, signed, trust, monkeypatch):
        from kbuild.publish.signing import verify

        def read(_: Path) -> None:
            raise AssertionError("read")

        monkeypatch.setattr(verify, "read_metadata", read)
        (signed / "metadata.json").write_text("{}")
        refused(kbuild, signed, trust)

    def test_somebody_else(self, kbuild, signed, trust):
        words = refused(kbuild, signed, trust, "--identity", "you@example.org", "--issuer", ISSUER)
        assert f"was signed by {ME} ({ISSUER}), not by you@example.org ({ISSUER})" in words

    def test_another_sigstore(self, kbuild, signed, tmp_path):
        other = tmp_path / "other.json"
        other.write_text(LocalSigstore(url="http://localhost").trust_config())
        words = refused(kbuild, signed, ("--trust-config", other))
        assert "the signature of `metadata.json` is not valid" in words

    def test_a_bundle_that_says_it_is_about_something_else(self, kbuild, signed, trust):
        """Its own digest is a courtesy; the signature decides."""
        bundle = signed / "metadata.json.sigstore"
        document = json.loads(bundle.read_text())
        (signed / "metadata.json").write_text('{"id": "forged"}')
        import hashlib

        forged = hashlib.sha256((signed / "metadata.json").read_bytes()).digest()
        digest = base64.b64encode(forged).decode()
        document["messageSignature"]["messageDigest"]["digest"] = digest
        bundle.write_text(json.dumps(document))
        assert "is not valid" in refused(kbuild, signed, trust)

    @pytest.mark.parametrize("text", ["", "{}", "no json", '{"mediaType": "x"}'])
    def test_no_bundle(self, kbuild, signed, trust, text):
        (signed / "metadata.json.sigstore").write_text(text)
        assert "`metadata.json.sigstore` is not a bundle" in refused(kbuild, signed, trust)


class TestSigningIsRefused:
    def sign(self, kbuild, folder, *options):
        answer = kbuild("sign", folder, *options)
        assert answer.code != 0
        assert not (folder / "metadata.json.sigstore").exists()
        return answer

    def test_without_a_digest(self, kbuild, variant, trust):
        answer = self.sign(kbuild, variant, *trust, "--identity-token", token(ME))
        assert (answer.code, "has no digest" in answer.err) == (6, True)

    def test_for_files_that_are_not_those_of_the_digest(self, kbuild, built, trust):
        (built / "__init__.py").write_text("changed\n")
        answer = self.sign(kbuild, built, *trust, "--identity-token", token(ME))
        assert (answer.code, "`__init__.py` differs" in answer.err) == (6, True)

    def test_without_a_token_and_a_user(self, kbuild, built, trust):
        answer = self.sign(kbuild, built, *trust)
        assert answer.code == 10
        assert "no terminal to ask on" in answer.err
        assert "id-token: write" in answer.err

    @pytest.mark.parametrize("raw", ["nonsense", token(ME, expired=True)])
    def test_with_a_token_that_is_none(self, kbuild, built, trust, raw):
        answer = self.sign(kbuild, built, *trust, "--identity-token", raw)
        assert (answer.code, "no identity to sign with" in answer.err) == (10, True)

    def test_without_a_network(self, kbuild, built, tmp_path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        nowhere = tmp_path / "nowhere.json"
        nowhere.write_text(LocalSigstore(url=f"http://127.0.0.1:{port}").trust_config())
        options = ("--trust-config", nowhere, "--identity-token", token(ME))
        answer = self.sign(kbuild, built, *options)
        assert answer.code == 10
        assert "sigstore gave no certificate" in answer.err
        assert "needs a network" in answer.err

    def test_with_a_file_that_configures_nothing(self, kbuild, built, tmp_path):
        (tmp_path / "x.json").write_text("{}")
        options = ("--trust-config", tmp_path / "x.json", "--identity-token", token(ME))
        answer = self.sign(kbuild, built, *options)
        assert (answer.code, "not a trust configuration" in answer.err) == (2, True)


class TestCommandLine:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ((), "name the expected signer"),
            (("--identity", ME), "must be given together"),
            (("--issuer", ISSUER), "must be given together"),
            (("--repository", "alone"), "OWNER/NAME"),
        ],
    )
    def test_who_is_always_said(self, kbuild, signed, trust, options, words):
        answer = kbuild("verify", signed, *trust, *options)
        assert (answer.code, words in answer.err) == (2, True)

    def test_without_the_library(self, kbuild, built, trust, monkeypatch):
        monkeypatch.setattr(sign.importlib.util, "find_spec", lambda _: None)
        answer = kbuild("verify", built, *trust, *BY_ME)
        assert (answer.code, "sigstore>=4.1,<5" in answer.err) == (10, True)
        answer = kbuild("sign", built, *trust)
        assert (answer.code, "sigstore>=4.1,<5" in answer.err) == (10, True)

    def test_dirt_is_told(self, kbuild, variant, trust):
        metadata = json.loads((variant / "metadata.json").read_text())
        metadata["provenance"] = {
            "kernel-builder": {"version": "1.0"},
            "kernel": {"commit": "a" * 40, "dirty": True},
        }
        (variant / "metadata.json").write_text(json.dumps(metadata))
        kbuild("hash", variant)
        answer = kbuild("sign", variant, *trust, "--identity-token", token(ME))
        assert answer.code == 0
        assert "the source of kernel was dirty" in answer.err

    def test_the_public_instance_is_known_without_a_network(
        self, kbuild, built, monkeypatch, tmp_path
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        answer = kbuild("verify", built, *BY_ME, "--offline")
        assert (answer.code, "there is no `metadata.json.sigstore`" in answer.err) == (6, True)
