"""Each command runs of a project, a variant and the machine what the page on it lists, and no more.

The page is `docs/explanation/what-kbuild-runs.md`; its table is what this test holds commands to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbuild.cli import all_commands, find_command
from tests.support.hub.fixture import running_hub
from tests.support.traps import Traps, set_traps

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "what-kbuild-runs.md"
WORDS = {
    "package": "package",
    "variant": "variant",
    "bytecode in the variant": "variant",
    "tests": "tests",
    "module in the root pytest": "tests",
}
"""What the page calls what a trap stands for; it has no word for any other trap of a project."""
PROBE = {"bwrap"}
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "init": ("../new",),
    "build": ("--variant", "torch-cpu"),
    "aot": ("triton", "demo.py", "--kernel-name", "f", "--signature", "*fp32"),
    "verify": ("--repository", "org/demo", "--offline"),
    "create-pyproject": ("--force",),
    "upload": ("--allow-dirty", "--allow-noncompliant"),
    "build-and-upload": ("--allow-dirty", "--variant", "torch-cpu"),
    "dev": ("--python", "absent"),  # else it stays
    "toolchain": ("list",),
    "cache": ("list",),
    "skills": ("list",),
    "completions": ("bash",),
    "generate-docs": ("../cli.md",),
}
"""What makes a command do its work on the project with the traps, where it needs more than that."""
SEEN: Mapping[str, set[str]] = {
    "build": {"package", "git", "c++", *PROBE},
    "build-and-upload": {"package", "git", "c++", *PROBE},
    "reproduce": {"package", "c++", *PROBE},
    "plan": {"git", "c++"},
    "test": {"tests"},
    "init": {"git"},
    "check": PROBE,
    "check-builds": PROBE,
}
"""What does run: a trap that nothing can spring proves nothing."""
OPTIONS = ("check-abi", "check-builds", "clean-pyproject", "hash", "testshell", "update-build")
"""Other names for a command with an option, which makes it do other work."""
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="the traps are for Linux"),
]


def rows() -> dict[str, set[str]]:
    """Command -> the words in code font of its row."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.fullmatch(r"`([a-z-]+)`", cells[0])
        if line.startswith("|") and name:
            assert name[1] not in found, f"{name[1]} has two rows"
            found[name[1]] = set(re.findall(r"`([^`]+)`", " ".join(cells[1:])))
    return found


def words(ran: set[str]) -> set[str]:
    """What ran, as the page calls it."""
    programs = {name.removeprefix("program ") for name in ran if name.startswith("program ")}
    others = {name for name in ran if not name.startswith("program ")}
    kept = {name for name in ran if name.startswith("program of ")}  # of a project, or its git
    programs -= {name.removeprefix("program ") for name in kept}
    return programs | {WORDS.get(name, name) for name in others | kept}


@pytest.fixture
def traps(tmp_path: Path) -> Traps:
    return set_traps(tmp_path / "traps")


@pytest.fixture
def online(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables that lead to a Hub with the kernel's repository."""
    with running_hub(tmp_path / "hub") as bench:
        bench.create("org/demo")
        names = ("HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "NO_PROXY", "HF_HUB_DISABLE_XET")
        environ = bench.environ()
        yield {name: environ[name] for name in names}


@pytest.mark.quick
def test_the_page_has_a_row_for_every_command() -> None:
    assert sorted(rows()) == sorted(verb.name for verb in all_commands())


@pytest.mark.parametrize("verb", [*(verb.name for verb in all_commands()), *OPTIONS])
def test_only_what_the_page_lists_is_run(traps: Traps, online: dict[str, str], verb: str) -> None:
    if verb == "clean-pyproject":
        traps.kbuild("create-pyproject", "--force")
    if verb == "build-and-upload":
        shutil.rmtree(traps.variant)
    _ = traps.ran
    code, said = traps.kbuild(verb, *ARGUMENTS.get(verb, ()), env=online)
    assert code != 70, said
    found = words(traps.ran)
    command = find_command(verb)
    assert command is not None
    assert found <= rows()[command.name], said
    assert SEEN.get(verb, set()) <= found, said


FOREIGN = (
    ("check", "build"),
    ("check", "build/torch-cpu"),
    ("check-builds", "build/torch-cpu", "--also-python", sys.executable),
    ("check-abi", "build/torch-cpu"),
)


@pytest.mark.parametrize("command", FOREIGN, ids=" ".join)
def test_what_was_built_elsewhere_is_not_loaded(traps: Traps, command: tuple[str, ...]) -> None:
    _, said = traps.kbuild(*command)
    assert words(traps.ran) <= PROBE
    if command[0] != "check-abi":
        assert "not loaded: built elsewhere" in said


def test_nor_what_is_on_the_hub(traps: Traps, online: dict[str, str]) -> None:
    for command in (("hash",), ("upload", *ARGUMENTS["upload"])):
        code, said = traps.kbuild(*command, env=online)
        assert code == 0, said
    _ = traps.ran
    _, said = traps.kbuild("check", "hub:org/demo@v1", env=online)
    assert "not loaded: built elsewhere; `--load` loads it" in said
    assert words(traps.ran) <= PROBE


@pytest.mark.parametrize("verb", ["check", "check-builds"])
def test_it_is_loaded_when_somebody_asks(traps: Traps, verb: str) -> None:
    traps.kbuild(verb, "build", "--load")
    assert traps.ran - {"program bwrap"} == {"bytecode in the variant"}
    shutil.rmtree(traps.variant / "__pycache__")
    traps.kbuild(verb, "build", "--load")
    assert traps.ran - {"program bwrap"} == {"variant"}


def test_what_was_built_here_is_loaded(traps: Traps) -> None:
    shutil.rmtree(traps.variant)
    code, said = traps.kbuild("build", "--variant", "torch-cpu")
    assert code == 0, said
    assert "package" in traps.ran
    code, said = traps.kbuild("check-builds", "--fresh")
    assert words(traps.ran) == {"package", *PROBE}, said
    (traps.variant / "extra.py").touch()
    code, said = traps.kbuild("check-builds", "--fresh")
    assert words(traps.ran) <= PROBE
    assert "not loaded: built elsewhere" in said


@pytest.mark.quick
def test_the_traps_work(traps: Traps) -> None:
    """They are sprung by what a careless program would start in the project's folder."""
    for command, name in (
        ((sys.executable, "-m", "pip", "--version"), "module in the root pip"),
        (("git", "status"), "program of .git/config"),
        (("git", "checkout", "-b", "other"), "hook of git"),
        (("ninja", "all"), "CMake or ninja in the root"),
        (("cmake", "-S", ".", "-B", "tree"), "CMake or ninja in the root"),
    ):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environ = {**traps.environ, "PATH": path}
        subprocess.run(  # noqa: TID251
            command, cwd=traps.project, env=environ, check=False, capture_output=True
        )
        assert name in traps.ran, command
