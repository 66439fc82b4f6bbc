"""What travels to a worker for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.plugins.cluster.tests import files_for_tests, files_of_variant
from kbuild.system.processes import LocalRunner
from tests.support.command_project import CommandProject

KEPT = (
    *("tests/test_a.py", "data/input.bin", "tests/test_token.py", "new.py", "env.py"),
    *("credentials_helper.py", "tests/credentials.py", "tests/secrets/cases.py", "docs/id_rsa.md"),
    *("words/token/list.json", "tests/credentials_of_users.json", "data/secretary.json"),
)
LEFT = (
    *(".env", "tests/.env.local", "deploy/key.pem", "credentials.json", ".aws/config", "token"),
    *("build/v/__init__.py", ".netrc", "a/secrets/b.txt", "Credentials", "secrets.yml", ".npmrc"),
    *(".pypirc", "home/id_rsa", "client_secret_12.json"),
)


@pytest.mark.parametrize("in_git", [True, False])
def test_neither_outputs_nor_credentials_travel(tmp_path: Path, in_git: bool) -> None:
    root = tmp_path / "project"
    for name in (*KEPT, *LEFT, "ignored.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    expected = set(KEPT)
    if in_git:
        (root / ".gitignore").write_text("ignored.bin\n")
        bench = CommandProject(root, tmp_path)
        bench.git("init", "-q")
        bench.git("add", "-f", "tests", "data", ".env", "credentials.json")
        expected |= {".gitignore"}
    else:
        expected |= {"ignored.bin"}
    (root / "outside").symlink_to("/etc/passwd")
    assert set(files_for_tests(root, LocalRunner())) == expected


def test_bytecode_of_a_variant_stays(tmp_path: Path) -> None:
    for name in ("__init__.py", "__pycache__/a.pyc", "sub/lib.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert set(files_of_variant(tmp_path)) == {"__init__.py", "sub/lib.so"}
