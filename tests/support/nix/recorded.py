"""A Nix that only plays: it answers as a release does, and its builds are recorded ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbuild.pipeline.nix.flake import read_event
from kbuild.system.processes import ProcessResult

LOGS = Path(__file__).parent / "logs"
RELEASES = ("2.8", "2.26", "2.34")
SETTINGS = {"sandbox": True, "sandbox-fallback": False, "build-users-group": ""}
METADATA = {
    "name": "my-kernel",
    "id": "_my_kernel_cpu_1a2b3c4",
    "version": 2,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
    "provenance": {"kernel-builder": {"name": "kbuild", "version": "0.1"}},
}


def lines(release: str, name: str) -> list[str]:
    return (LOGS / release / f"{name}.log").read_text("utf-8").splitlines()


def derivations(release: str) -> dict[str, str]:
    """Variant -> `.drv` file, of the builds in a recorded log and of what waits for them."""
    waiting = "torch214-cxx11-cpu-x86_64-linux"  # 2.8 does not tell of what it never started
    found = {waiting: f"/nix/store/{'0' * 32}-my-kernel-{waiting}.drv"}
    for line in lines(release, "build"):
        event = read_event(line)
        for word in f"{event.text} {event.fields}".split("'") if event else ():
            if word.startswith("/nix/store/") and word.endswith(".drv") and "-torch2" in word:
                found[word.split("my-kernel-")[1].removesuffix(".drv")] = word
    return found


@dataclass
class PlayedNix:
    """Answers what kbuild asks of Nix."""

    release: str
    outputs: Path
    """Stands for the store: what is made goes there."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Variant -> derivation, as the flake offers them."""
    makes: Sequence[str] = ()
    """Variants that the recorded build makes."""
    played: str = "build"
    code: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    namespaces: bool = True
    evaluation: str = ""
    """A recorded evaluation that fails."""
    store: str = "local"
    pip: str = ""
    """What `pip config list` says."""
    environments: list[Mapping[str, str]] = field(default_factory=list)
    """Of its builds."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def stop(self) -> None:
        """Nothing runs."""

    def run(
        self, argv: Sequence[str], *, listen: Any = None, env: Any = None, **_: Any
    ) -> ProcessResult:
        command = tuple(str(part) for part in argv)
        self.asked.append(command)
        if command[0] == "unshare" or command[-2:] == ("config", "list"):
            return self._done(command, self.pip, 0 if self.namespaces else 1)
        if "--version" in command:
            return self._done(command, f"nix (Nix) {self.release}.3\n")
        if "show-config" in command:
            shown = {name: {"value": value} for name, value in self.settings.items()}
            warning = "warning: 'show-config' is a deprecated alias for 'config show'\n"
            return self._done(command, warning * (self.release != "2.8") + json.dumps(shown))
        if "ping" in command:
            return self._done(command, f"Store URL: {self.store}\nVersion: {self.release}\n")
        if "eval" in command:
            return self._evaluated(command)
        if "build" in command or "develop" in command:
            self.environments.append(dict(env))
            return self._built(command, listen)
        raise AssertionError(f"nobody answers {command}")

    @property
    def builds(self) -> list[tuple[str, ...]]:
        return [command for command in self.asked if "build" in command]

    def output(self, variant: str) -> Path:
        return self.outputs / f"my-kernel-{variant}"

    def _evaluated(self, command: tuple[str, ...]) -> ProcessResult:
        if self.evaluation:
            return self._done(command, "\n".join(lines(self.release, self.evaluation)), 1)
        named = json.loads(command[command.index("--apply") + 1].split('fromJSON "')[1]
                           .split('";\n')[0].replace('\\"', '"'))  # fmt: skip
        offered = {
            name: {
                "derivation": self.variants[name],
                "output": str(self.output(name)),
                "compiled": self.variants[name],
            }
            for name in named if name in self.variants
        }  # fmt: skip
        answer = {"offered": offered, "refused": dict(self.refused)}
        noise = '@nix {"action":"msg","level":1,"msg":"warning: Git tree is dirty"}\n'
        return self._done(command, noise + json.dumps(answer))

    def _built(self, command: tuple[str, ...], listen: Any) -> ProcessResult:
        if "develop" in command:
            return self._done(command, "")
        said = lines(self.release, self.played)
        for line in said:
            listen(line)
        for variant in self.makes:
            make_output(self.output(variant))
        return self._done(command, "\n".join(said), self.code)

    def _done(self, command: tuple[str, ...], output: str, code: int = 0) -> ProcessResult:
        return ProcessResult(command, code, output, 0.0)


def make_output(folder: Path) -> None:
    """A variant as the store has it: read-only, from 1970."""
    if folder.exists():
        return
    (folder / "layers").mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(METADATA, indent=2) + "\n")
    (folder / "__init__.py").write_text("from . import layers\n")
    (folder / "layers" / "__init__.py").write_text("")
    (folder / "_k.abi3.so").write_bytes(b"\x7fELF")
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() or path.suffix == ".so" else 0o444)
        __import__("os").utime(path, (1, 1))


def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something called `nix` on PATH; the runner answers for it."""
    nix = folder / "bin" / "nix"
    nix.parent.mkdir(parents=True, exist_ok=True)
    nix.write_text("")
    nix.chmod(0o755)
    monkeypatch.setenv("PATH", str(nix.parent))
    return nix
