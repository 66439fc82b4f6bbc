"""A project, and a variant in it, where everything that might be run leaves its name behind.

Programs on the PATH leave theirs as well: what a command starts of a machine is known then. There
is no sandbox, in which a trap could not tell.
"""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.interpreters import make_interpreter

BUILD_TOML = """\
[general]
name = "demo"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "org/demo"

[torch-noarch]
"""
METADATA = {
    "name": "demo",
    "id": "_demo_cpu_1a2b3c4",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cpu"},
}
ROOT_MODULES = (
    "kbuild", "torch", "json", "tomli", "pip", "pytest", "cmake", "ninja", "triton", "kernels",
    "numpy", "resource", "rich", "sitecustomize", "usercustomize", "setup", "conftest",
)  # fmt: skip
"""Names that any interpreter with the project as its current folder might take from there."""
VARIANT_MODULES = ("torch", "json", "sitecustomize", "conftest", "setup")
PROGRAMS = (
    "git", "nix", "nix-store", "unshare", "cmake", "ninja", "c++", "g++", "gcc", "cc", "clang",
    "clang++", "nvcc", "hipcc", "icpx", "ccache", "sccache", "ld", "strip", "rocm_agent_enumerator",
    "nvidia-smi", "apt-get", "pip", "uv", "docker", "make", "sh-of-project",
)  # fmt: skip
PASSED_ON = ("git", "unshare", "c++", "g++", "gcc", "cc", "ld", "strip")
"""Programs that do their work after they have told."""
GIT_CONFIG = """\
[core]
\tfsmonitor = {trap}
\thooksPath = {hooks}
\tpager = {trap}
\teditor = {trap}
\tsshCommand = {trap}
\taskPass = {trap}
\tgitProxy = {trap}
\talternateRefsCommand = {trap}
[filter "trap"]
\tclean = {trap}
\tsmudge = {trap}
\tprocess = {trap}
\trequired = true
[diff]
\texternal = {trap}
[diff "trap"]
\ttextconv = {trap}
\tcommand = {trap}
[merge "trap"]
\tdriver = {trap}
[credential]
\thelper = {trap}
[gpg]
\tprogram = {trap}
[alias]
\tstatus = !{trap}
"""


@dataclass(frozen=True)
class Traps:
    """Where the traps lie, and what ran."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def variant(self) -> Path:
        return self.project / "build" / "torch-cpu"

    @property
    def ran(self) -> set[str]:
        """The names of what was run since the last time, which are forgotten."""
        file = self._log
        names = set(file.read_text().split("\n")) - {""} if file.exists() else set()
        file.unlink(missing_ok=True)
        return names

    @property
    def _log(self) -> Path:
        return self.folder / "ran"

    @property
    def environ(self) -> dict[str, str]:
        """Of a user who has these programs, and an interpreter with Torch."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GIT_", "XDG_"))}
        own = {
            "HOME": str(self.folder / "home"),
            "KBUILD_CACHE_DIR": str(self.folder / "cache"),
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder / "venv"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        return {**kept, **own}

    def kbuild(self, *argv: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The installed program, started in the project's folder: exit code and all it said."""
        done = subprocess.run(  # noqa: TID251
            [Path(sys.executable).with_name("kbuild"), *argv],
            cwd=self.project,
            env={**self.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout + done.stderr

    def python(self, name: str) -> str:
        """Python source that tells."""
        return f"with open({str(self._log)!r}, 'a') as file:\n    file.write({name!r} + '\\n')\n"

    def shell(self, name: str, *, and_then: str = "exit 1") -> str:
        """A shell script that tells."""
        return f"#!/bin/sh\necho '{name}' >> '{self._log}'\n{and_then}\n"

    def program(self, path: Path, name: str, *, and_then: str = "exit 1") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.shell(name, and_then=and_then))
        path.chmod(0o755)
        return path

    def file(self, path: str, text: str) -> None:
        (self.project / path).parent.mkdir(parents=True, exist_ok=True)
        (self.project / path).write_text(text)


def set_traps(folder: Path) -> Traps:
    """All of them."""
    traps = Traps(folder)
    (folder / "home").mkdir(parents=True)
    make_interpreter(folder / "venv")
    for name in PROGRAMS:
        real = shutil.which(name) if name in PASSED_ON else None
        then = f'exec "{real}" "$@"' if real else "exit 127"
        traps.program(folder / "bin" / name, f"program {name}", and_then=then)
    traps.program(folder / "bin" / "bwrap", "program bwrap", and_then="echo bwrap: no >&2; exit 1")
    _set_project(traps)
    _set_variant(traps)
    _set_git(traps)
    assert traps.ran == set()
    return traps


def _set_project(traps: Traps) -> None:
    file, tell = traps.file, traps.python
    file("build.toml", BUILD_TOML)
    file("../build.toml", BUILD_TOML.replace('"demo"', '"parent"'))
    file("torch-ext/demo/__init__.py", f'{tell("package")}\n__all__ = ["one"]\n\none = 1\n')
    file("torch-ext/demo/unused.py", tell("unused module of the package"))
    file("torch-ext/setup.py", tell("setup.py"))
    file("tests/test_demo.py", tell("tests"))
    file("tests/conftest.py", tell("tests"))
    for name in ROOT_MODULES:
        file(f"{name}.py", tell(f"module in the root {name}"))
    file("CARD.md", "# {{ name }}\n")
    file("LICENSE", "Apache-2.0\n")
    cmake = f'execute_process(COMMAND sh "{traps.project / "tell.sh"}")\n'
    file("CMakeLists.txt", cmake)
    file("cmake/demo.cmake", cmake)
    file("templates/project/CMakeLists.txt", cmake)
    file("CMakePresets.json", json.dumps({"version": 3}))
    traps.program(traps.project / "tell.sh", "CMake or ninja in the root")
    file("build.ninja", f"rule trap\n  command = sh {traps.project / 'tell.sh'}\nbuild all: trap\n")
    file("Makefile", f"all:\n\tsh {traps.project / 'tell.sh'}\n")
    backend = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
    file("pyproject.toml", f'{backend}[tool.pytest.ini_options]\naddopts = "-p setup"\n')
    file("trap.pth", f"import sys; exec({tell('.pth file')!r})\n")
    file("demo-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1\n")
    groups = ("backends", "checks", "frameworks", "languages", "toolchains")
    points = "\n".join(f"[kbuild.{group}]\ntrap = trap_plugin" for group in groups)
    file("demo-1.dist-info/entry_points.txt", f"{points}\n[pytest11]\ntrap = trap_plugin\n")
    file("trap_plugin.py", tell("entry point of the root"))
    file("flake.nix", '{ outputs = _: builtins.throw "evaluated"; }\n')
    file(".env", "PATH=/nowhere\n")
    traps.program(traps.project / "bin" / "git", "program of the project")


def _set_variant(traps: Traps) -> None:
    """As somebody might send it: nothing in it is of the project's last build."""
    folder, tell = traps.variant, traps.python
    package = {"__init__.py": f"{tell('variant')}\none = 1\n", "_ops.py": tell("variant")}
    others = {f"{name}.py": tell(f"module in the variant {name}") for name in VARIANT_MODULES}
    for name, text in {**package, **others, "x.pth": "import torch\n"}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "metadata.json").write_text(json.dumps(METADATA, indent=2) + "\n")
    source = traps.folder / "bytecode.py"
    source.write_text(tell("bytecode in the variant"))
    target = folder / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), invalidation_mode=mode, doraise=True)


def _set_git(traps: Traps) -> None:
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=n@n", *arguments]
        environ = {**traps.environ, "PATH": os.environ["PATH"]}
        subprocess.run(command, cwd=traps.project, env=environ, check=True)  # noqa: TID251

    git("init", "--quiet")
    (traps.project / ".gitignore").write_text("build/\n.kbuild/\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "demo")
    traps.file(".gitattributes", "* filter=trap diff=trap merge=trap\n")
    trap = traps.program(traps.folder / "git-trap", "program of .git/config")
    hooks = traps.folder / "hooks"
    for hook in (
        "post-checkout",
        "post-index-change",
        "fsmonitor-watchman",
        "reference-transaction",
    ):
        traps.program(hooks / hook, "hook of git")
        traps.program(traps.project / ".git" / "hooks" / hook, "hook of git")
    with (traps.project / ".git" / "config").open("a") as file:
        file.write(GIT_CONFIG.format(trap=trap, hooks=hooks))
    (traps.project / "torch-ext" / "demo" / "unused.py").touch()  # git would look at its contents
