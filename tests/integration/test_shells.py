"""`devshell` without Nix: the toolchain of a variant, built for development."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_project import SOURCES, write_tiny


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_development_shell(tmp_path: Path) -> None:
    tiny = write_tiny(tmp_path, "cpu")
    script = (
        'printf "%s\\n" "$KBUILD_VARIANT" "$CXX"; cmake --version > cmake.txt; '
        'python -c "import tiny; print(tiny.__file__)"'
    )
    done = tiny.kbuild("devshell", ".", "--", "sh", "-c", script)
    variant, compiler, package = done.stdout.splitlines()[-3:]
    assert (tiny.root / "build" / variant).is_dir()
    assert Path(compiler).is_file()
    assert Path(package).resolve().is_relative_to((tiny.root / "build" / variant).resolve())
    assert (tiny.root / "cmake.txt").read_text().startswith("cmake version")
    assert (tiny.root / ".kbuild" / "compile_commands.json").is_file()


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_source_that_does_not_compile_is_no_reason_to_stay_outside(tmp_path: Path) -> None:
    tiny = write_tiny(tmp_path, "cpu")
    (tiny.root / SOURCES["cpu"][0]).write_text("mistake\n")
    done = tiny.kbuild("devshell", "--", "sh", "-c", 'echo "$KBUILD_VARIANT"')
    assert "did not compile" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("torch")
