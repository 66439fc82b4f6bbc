"""What is read from Nix's own log, and what has to stay free of Nix."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from kbuild.pipeline.nix.build import NixBuildMonitor
from kbuild.pipeline.nix.flake import store_path_name
from kbuild.system.ui import Ui
from tests.support.nix.recorded import RELEASES, lines
from tests.support.projects import BINDING, kernel, write_project

VARIANTS = [f"torch2{minor}-cxx11-cpu-x86_64-linux" for minor in (11, 12, 13, 14)]


class Shown:
    def __init__(self):
        self.told = []

    def update(self, done, total, label):
        self.told.append((done, total, label))


class Ticks:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def label(derivation):
    name = store_path_name(derivation)
    return next((variant for variant in VARIANTS if variant in name), name)


def played(release, log, folder):
    err, shown = io.StringIO(), Shown()
    ui = Ui(out=io.StringIO(), err=err, environ={})
    watch = NixBuildMonitor(label, folder, ui, shown, Ticks())
    for line in lines(release, log):
        watch.listen(line)
    watch.close()
    return watch, shown, err.getvalue()


@pytest.mark.parametrize("release", RELEASES)
class TestBuilds:
    def test_own_failures_are_told_with_kbuilds_words(self, release, tmp_path):
        watch, _, _ = played(release, "build", tmp_path)
        failures = {label(file): error for file, error in watch.failures()}
        assert set(failures) == {VARIANTS[0], "broken-toolchain"}
        own = failures[VARIANTS[0]]
        assert own.message == f"{VARIANTS[0]}: src/k.cpp did not compile"
        assert own.excerpt == ("src/k.cpp:3:1: error: expected initializer before 'int'",)
        assert own.hint.startswith("look at line 3; `nix log /nix/store/")
        assert "log: /build" not in str(own)
        assert "unpacking" in own.log.read_text()

    def test_other_builders_are_told_with_their_last_words(self, release, tmp_path):
        watch, _, _ = played(release, "build", tmp_path)
        (broken,) = (error for _, error in watch.failures() if "broken" in error.message)
        assert broken.message == "broken-toolchain: its builder failed with exit code 3"
        assert broken.excerpt[-1].startswith("unzip: no space left")

    def test_steps_inside_become_progress(self, release, tmp_path):
        _, shown, _ = played(release, "build", tmp_path)
        labels = [text for _, _, text in shown.told]
        assert f"{VARIANTS[2]}: src/k.cpp (1/2)" in labels
        assert f"{VARIANTS[1]}: torch-ext/binding.cpp (2/2)" in labels
        assert shown.told[-1][0] <= shown.told[-1][1]
        assert max(total for _, total, _ in shown.told) == 6


@pytest.mark.parametrize("release", ["2.8", "2.34"])
class TestOtherPlaces:
    def test_another_machine_is_named_and_its_lines_come_once(self, release, tmp_path):
        watch, _, said = played(release, "remote", tmp_path)
        assert said.count(f"{VARIANTS[2]}: building on ") == 1
        assert "/srv/builder" in said
        (log,) = tmp_path.glob("*torch213*.log")
        assert log.read_text().count("src/k.cpp") == 1
        assert not watch.reasons


def test_a_machine_that_cannot_build_is_named(tmp_path):
    watch, _, _ = played("2.8", "fetch", tmp_path)
    file = f"/nix/store/{'a' * 32}-my-kernel-{VARIANTS[2]}.drv"
    words = f"build of '{file}' on 'ssh-ng://one' failed: error: Path '/tmp' is world-writable"
    watch.listen('@nix {"action":"msg","level":0,"msg":"error: ' + words + '"}')
    watch.listen('@nix {"action":"msg","level":0,"msg":"error: Cannot build \'' + file + "'.\"}")
    assert watch.reasons[file] == "on ssh-ng://one: Path '/tmp' is world-writable"


SCRIPT = """
import sys
from kbuild.__main__ import main
code = main(sys.argv[1:])
loaded = sorted(name for name in sys.modules if name.startswith("kbuild.pipeline.nix"))
print(code, loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words", [("list-variants",), ("plan", "--no-toolchain", "--json"), ("check-config",)]
)
def test_looking_needs_no_nix(tmp_path, words):
    root = write_project(tmp_path, BINDING, kernel("cpu"))
    (root / "flake.nix").write_text("{ kbuild = 1; }\n")
    command = (sys.executable, "-c", SCRIPT, *words, str(root))
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: TID251
    assert done.stderr.splitlines()[-1] == "0 []"


def test_a_build_by_nix_loads_no_toolchain(tmp_path):
    script = (
        "import sys, kbuild.pipeline.nix_build; print([n for n in sys.modules if 'wheels' in n])"
    )
    command = (sys.executable, "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: TID251
    assert done.stdout.strip() == "[]"
