from __future__ import annotations

import os
import shutil
import subprocess

import pytest


@pytest.fixture
def complete(kbuild):
    """What bash offers for a command line whose last word is being typed."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    script = kbuild("completions", "bash").out

    def offers(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_kbuild"
        program = f'{script}\n{ask}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(  # noqa: TID251
            ["bash", "-euc", program], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return offers


def test_verbs(complete):
    assert complete("kbuild", "check-") == ["check-config"]


@pytest.mark.parametrize("command", ["build", "abi-advice"])
def test_backends(complete, command):
    assert complete("kbuild", command, "--backend", "c") == ["cann", "cpu", "cuda"]


@pytest.mark.parametrize("command", ["build", "check", "wheel"])
def test_variants_are_those_of_the_project(complete, command, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "kbuild"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ntest "$*" = "list-variants -qq" && printf "torch-%s\\n" cpu cuda\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert complete("kbuild", command, "--variant", "torch-cu") == ["torch-cuda"]
