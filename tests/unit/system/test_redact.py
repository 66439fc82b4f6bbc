"""Texts without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.system.redact import redacted, without_secrets

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"  # noqa: S105


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {TOKEN}!", "token ***!"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("hf_oauth_eyJh.b-C done", "*** done"),
        ("http://me:secret@hub.example/x", "http://***@hub.example/x"),
        ("x?X-Amz-Signature=12ab&part=1", "x?X-Amz-Signature=***&part=1"),
        ("x?a=1&X-Amz-Credential=AK%2F&signature=9", "x?a=1&X-Amz-Credential=***&signature=***"),
        ("sftp://me:p@ss@host/x, ftp://a@b", "sftp://***@host/x, ftp://***@b"),
        ("s3://b/x?secret_key=a1&v=2&sig=b", "s3://b/x?secret_key=***&v=2&sig=***"),
        ("a?monkey=1&turnkey=2", "a?monkey=1&turnkey=2"),
        ("hf_hub_download and hf_transfer stay", "hf_hub_download and hf_transfer stay"),
    ],
)
def test_shapes(text: str, shown: str) -> None:
    assert redacted(text, {}) == shown


def test_values_of_whatever_shape(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    (tmp_path / "other").write_text("from-the-path\n")
    environ = {
        "HF_TOKEN": "from-the-environment",
        "HF_HOME": str(tmp_path),
        "HF_TOKEN_PATH": str(tmp_path / "other"),
    }
    text = "from-the-environment, from-the-file, from-the-path"
    assert redacted(text, environ) == "***, ***, ***"
    assert redacted("a short word", {"HF_TOKEN": "a", "HF_HOME": "/nowhere"}) == "a short word"


def test_command_lines() -> None:
    given = ["sign", "--identity-token", "eyJ", "--identity-token=eyJ", "build"]
    shown = ("sign", "--identity-token", "***", "--identity-token=***", "build")
    assert without_secrets(given) == shown
