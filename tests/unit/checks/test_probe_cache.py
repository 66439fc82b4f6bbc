"""What was loaded before is not loaded again, unless something that decided it has changed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.checks.base import Finding, Output
from kbuild.checks.load import LoadCheck
from kbuild.checks.metadata_client import MetadataClientCheck
from kbuild.checks.probe_cache import ProbeCache
from kbuild.system.processes import LocalRunner, ProcessResult
from tests.support.interpreters import CLIENT, make_interpreter

Make = Callable[..., Output]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says what a process has mapped"
)


@dataclass
class CountingRunner:
    """A `Runner` that counts what it starts."""

    inner: LocalRunner = field(default_factory=LocalRunner)
    started: int = 0

    def run(self, argv: Any, **how: Any) -> ProcessResult:
        self.started += 1
        return self.inner.run(argv, **how)

    def stop(self) -> None:
        self.inner.stop()


@dataclass
class ProbeFixture:
    """An interpreter with a Torch and a client of a few lines, and a cache."""

    folder: Path
    runner: CountingRunner = field(default_factory=CountingRunner)

    def __post_init__(self) -> None:
        self.interpreter = make_interpreter(self.folder / "venv")
        self.python, self.packages = self.interpreter.python, self.interpreter.packages

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def records(self) -> list[Path]:
        return sorted(path for path in self.cache.rglob("*") if path.is_file())

    def asked(
        self, output: Output, check: Any = LoadCheck, **how: Any
    ) -> tuple[list[Finding], int]:
        """What the check finds, and how many processes that took."""
        before, asking = self.runner.started, check()
        asking.runner = self.runner
        probe_cache = ProbeCache(self.cache, **how)
        found = list(asking.run(replace(output, python=self.python, probe_cache=probe_cache)))
        return found, self.runner.started - before


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProbeFixture:
    """Without other folders that are searched for modules, in which others may write files."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return ProbeFixture(tmp_path)


@pytest.mark.parametrize("check", [LoadCheck, MetadataClientCheck])
def test_the_second_time_no_process_is_started(
    fixture: ProbeFixture, noarch: Make, check: Any
) -> None:
    output = noarch({"__init__.py": "import torch\n"})
    assert fixture.asked(output, check) == ([], 1)
    assert fixture.asked(output, check) == ([], 0)


def test_the_same_bytes_in_another_folder_are_the_same_variant(
    fixture: ProbeFixture, noarch: Make, tmp_path: Path
) -> None:
    output = noarch()
    fixture.asked(output)
    other = shutil.copytree(output.root, tmp_path / "elsewhere" / output.root.name)
    assert fixture.asked(replace(output, root=other)) == ([], 0)


def of_variant(fixture: ProbeFixture, output: Output) -> None:
    (output.root / "_ops.py").write_text("#")


def of_names(fixture: ProbeFixture, output: Output) -> None:
    (output.root / "_ops.py").rename(output.root / "_opt.py")


def of_torch(fixture: ProbeFixture, output: Output) -> None:
    (fixture.packages / "torch" / "version.py").write_text("__version__ = '2.13.1+cpu'\n")


def of_client(fixture: ProbeFixture, output: Output) -> None:
    (fixture.packages / "kernels-1.0.dist-info").rename(fixture.packages / "kernels-1.1.dist-info")


def of_client_in_place(fixture: ProbeFixture, output: Output) -> None:
    (fixture.packages / "kernels" / "__init__.py").write_text(CLIENT + "# changed\n")


def of_packages(fixture: ProbeFixture, output: Output) -> None:
    (fixture.packages / "another.pth").write_text("import sys\n")


def of_interpreter(fixture: ProbeFixture, output: Output) -> None:
    (fixture.folder / "venv" / "pyvenv.cfg").write_text("include-system-site-packages = false\n")


CHANGES = (
    of_variant, of_names, of_torch, of_client, of_client_in_place, of_packages, of_interpreter,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_asks_again(fixture: ProbeFixture, noarch: Make, change: Any) -> None:
    output = noarch({"__init__.py": "import torch\n"})
    assert fixture.asked(output) == ([], 1)
    change(fixture, output)
    assert fixture.asked(output) == ([], 1)
    assert fixture.asked(output) == ([], 0)


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TORCH_LOGS"])
def test_a_variable_that_changes_loading_asks_again(
    fixture: ProbeFixture, noarch: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    output = noarch()
    fixture.asked(output)
    monkeypatch.setenv(name, "/nowhere")
    assert fixture.asked(output)[1] == 1
    for other in ("TERM", "HF_HOME", "CUDA_API_KEY"):  # not passed on
        monkeypatch.setenv(other, "another")
    assert fixture.asked(output)[1] == 0


def test_values_of_variables_are_not_written(
    fixture: ProbeFixture, noarch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-secret-of-mine")
    fixture.asked(noarch())
    assert fixture.records()
    assert not any(b"a-secret" in path.read_bytes() for path in fixture.records())


def test_what_may_change_any_time_is_not_kept(fixture: ProbeFixture, noarch: Make) -> None:
    output = noarch({"__init__.py": "raise RuntimeError('today')\n"})
    first = fixture.asked(output)
    assert first[0][0].severity == "error"
    assert fixture.asked(output) == first
    shutil.rmtree(fixture.packages / "torch")
    assert "has no torch" in fixture.asked(output)[0][0].what
    assert not fixture.records()


def test_a_file_that_changes_meanwhile_is_not_kept(
    fixture: ProbeFixture, noarch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = fixture.packages / "torch" / "version.py"
    run = fixture.runner.inner.run

    def touching(*given: Any, **how: Any) -> ProcessResult:
        done = run(*given, **how)
        touched.touch()
        return done

    monkeypatch.setattr(fixture.runner.inner, "run", touching)
    fixture.asked(noarch({"__init__.py": "import torch\n"}))
    assert not fixture.records()


def test_another_kbuild_asks(
    fixture: ProbeFixture, noarch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = noarch()
    fixture.asked(output)
    monkeypatch.setattr("kbuild.checks.probe_cache.package_digest", lambda _: "another")
    assert [fixture.asked(output)[1] for _ in range(2)] == [1, 0]
