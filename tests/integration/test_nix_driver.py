"""`kbuild build --driver nix` with this machine's Nix: small derivations, and one real kernel."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.command_project import GIT, CommandProject
from tests.support.nix.sandbox import NIX, SYSTEM, Sandbox, why_not
from tests.support.projects import BINDING, kernel, write_project

pytestmark = [
    pytest.mark.nix,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
ONE, TWO, BAD = (f"torch2{minor}-cxx11-cpu-{SYSTEM}" for minor in (13, 12, 14))
METADATA = {
    "name": "my-kernel",
    "id": "_my_kernel_cpu_1",
    "version": 2,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
    "provenance": {"kernel-builder": {"name": "kbuild", "version": "0"}},
}
FLAKE = """\
{ # as kbuild's own flake, but for what is built
  outputs = { self }:
    let
      make = name: script: derivation {
        name = "my-kernel-${name}";
        system = "SYSTEM";
        builder = "/bin/bash";
        args = [ "-c" ''
          export PATH=/usr/bin:/bin
          ${script}
          exit 0
        '' ];
        metadata = builtins.toJSON (builtins.fromJSON (builtins.readFile ./metadata.json));
      };
      variant = name: make name ''
        echo "${name}: 1/2 after 0 s, src/k.cpp"
        mkdir $out
        echo "$metadata" > $out/metadata.json
        echo '# ${builtins.readFile ./src/k.cpp}' > $out/__init__.py
        EXTRA
      '';
    in {
      packages.SYSTEM = {
        redistributable = {
          ONE = variant "ONE";
          TWO = variant "TWO";
          BAD = make "BAD" ''
            echo "error: src/k.cpp did not compile"
            echo "    src/k.cpp:1:5: error: expected identifier"
            exit 5
          '';
        };
      };
    };
}
"""


@dataclass(frozen=True)
class Kernel(CommandProject):
    """A small project whose flake builds with bash alone, and a Nix with settings of its own."""

    settings: dict[str, str] = field(default_factory=dict)
    nix: tuple[str, ...] = ()
    """Arguments for Nix."""

    def run(self, *arguments, env=None):
        own = {"KBUILD_TOOLCHAIN": "", **self.settings}
        if arguments[0] == "build":
            arguments = ("build", "--driver", "nix", *arguments[1:], "--", *self.nix)
        return super().run(*arguments, env={**own, **(env or {})})

    def flake(self, extra: str = "") -> None:
        text = FLAKE
        for word, meaning in (
            ("SYSTEM", SYSTEM), ("ONE", ONE), ("TWO", TWO), ("BAD", BAD), ("EXTRA", extra),
        ):  # fmt: skip
            text = text.replace(word, meaning)
        (self.root / "flake.nix").write_text(text)
        self.git("add", "-A")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory) -> Sandbox:
    made = Sandbox(tmp_path_factory.mktemp("nix"))
    made.prepare()
    return made


@pytest.fixture
def small(sandbox, tmp_path) -> Kernel:
    root = write_project(tmp_path / "kernel", BINDING, kernel("cpu"))
    (root / "metadata.json").write_text(json.dumps(METADATA))
    (root / "src" / "k.cpp").write_text(f"// {tmp_path}")  # nobody has built this before
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nix").symlink_to(str(NIX))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    made = Kernel(root, tmp_path / "cache", {**sandbox.environment(), "PATH": path})
    made.git("init", "-q")
    made.flake()
    return made


class TestSmall:
    def test_built_once_copied_once_and_writable(self, small) -> None:
        first = small.build("--variant", ONE, "--variant", TWO)
        assert {entry["status"] for entry in first.values()} == {"built"}
        target = small.root / "build" / ONE
        assert os.access(target / "__init__.py", os.W_OK)
        assert "sandbox" not in (target / "metadata.json").read_text()
        again = small.build("--variant", ONE, "--variant", TWO)
        assert {entry["status"] for entry in again.values()} == {"up-to-date"}
        (small.root / "src" / "k.cpp").write_text("// changed")
        changed = small.build("--variant", ONE)
        assert changed[ONE]["status"] == "built"
        assert "changed" in (target / "__init__.py").read_text()

    def test_a_failure_is_told_and_the_others_are_built(self, small) -> None:
        done = small.kbuild("build", "--variant", ONE, "--variant", BAD, expect=5)
        assert f"error: {BAD}: src/k.cpp did not compile" in done.stderr
        assert "    src/k.cpp:1:5: error: expected identifier" in done.stderr
        assert "`nix log /nix/store/" in done.stderr
        log = small.root / ".kbuild" / "nix" / "log" / f"my-kernel-{BAD}.log"
        assert "did not compile" in log.read_text()
        assert (small.root / "build" / ONE).is_dir()
        assert not (small.root / "build" / BAD).exists()

    def test_another_machine(self, small) -> None:
        # Newer Nix refuses stores below folders that anybody may write to.
        place = Path(f"/var/lib/kbuild-test-{os.getpid()}")
        try:
            machine = f"{place} {SYSTEM} - 1 1"
            given = replace(small, nix=("--max-jobs", "0", "--builders", machine))
            done = given.kbuild("build", "--variant", ONE)
            assert f"{ONE}: building on" in done.stderr
            assert (small.root / "build" / ONE / "__init__.py").is_file()
        finally:
            subprocess.run(("chmod", "-R", "u+w", str(place)), check=False)  # noqa: TID251
            shutil.rmtree(place, ignore_errors=True)

    def test_without_a_sandbox_the_variant_says_so(self, small) -> None:
        given = replace(small, nix=("--option", "sandbox", "false"))
        done = given.kbuild("build", "--variant", ONE)
        assert "sandbox is off" in done.stderr
        metadata = json.loads((small.root / "build" / ONE / "metadata.json").read_text())
        assert metadata["provenance"]["kernel-builder"]["sandbox"] == "off"

    def test_the_end_of_kbuild_is_the_end_of_builders(self, small) -> None:
        small.flake("sleep 8642")
        own = {**os.environ, "KBUILD_CACHE_DIR": str(small.cache), **small.settings}
        command = (sys.executable, "-m", "kbuild", "build", "--driver", "nix", "--variant", ONE)
        with subprocess.Popen(command, cwd=small.root, env=own) as process:  # noqa: TID251
            assert waits_for(lambda: sleepers("8642") != [])
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 143
        assert waits_for(lambda: sleepers("8642") == [])
        assert not (small.root / "build" / ONE).exists()


def sleepers(seconds: str) -> list[int]:
    """Processes that sleep that long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(int(path.parent.name))
    return found


def waits_for(holds, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(holds())


@pytest.mark.compile
@pytest.mark.network
class TestKernel:
    """The example with a stable ABI: it compiles in seconds."""

    VARIANT = f"torch-stable-abi211-cpu-{SYSTEM}"

    @pytest.fixture
    def stable(self, sandbox, tmp_path) -> Kernel:
        project = sandbox.project("relu-stable-abi", tmp_path / "relu-stable-abi")
        path = f"{Path(str(NIX)).parent}{os.pathsep}{os.environ['PATH']}"
        own = {**sandbox.environment(), "PATH": path}
        return Kernel(project, tmp_path / "cache", own, sandbox.overrides(project))

    def test_a_real_variant(self, stable) -> None:
        subprocess.run((*GIT, "init", "-q"), cwd=stable.root, check=True)  # noqa: TID251
        stable.git("add", "-A")
        first = stable.build("--variant", self.VARIANT)
        assert first[self.VARIANT]["status"] == "built"
        stable.kbuild("check-builds", "--skip", "load")
        (stable.root / "README.md").write_text("another\n")
        again = stable.build("--variant", self.VARIANT)
        assert again[self.VARIANT]["status"] == "up-to-date"
