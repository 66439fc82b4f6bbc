"""What check, check-builds and check-abi take as TARGETs, their options, and their answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.device_code import MACHINE, elf, fatbin

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch-cuda"
COMMANDS = ("check", "check-builds", "check-abi")


def outputs(answer):
    assert answer.json["schema"] == 2
    return [output["name"] for target in answer.json["targets"] for output in target["outputs"]]


def kinds(answer):
    return [target["kind"] for target in answer.json["targets"]]


@pytest.fixture
def sealed(kbuild, variant):
    """A variant that passes every check."""
    assert kbuild("hash", "demo").code == 0
    return variant


@pytest.fixture
def library(here):
    """A shared library with a RUNPATH, by itself in a folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-rpath,/opt/x"]
    argv = [compiler, *flags, "-x", "c", "-", "-o", "lonely.so"]
    subprocess.run(argv, input="int f(void) { return 1; }", text=True, check=True)  # noqa: TID251
    return here / "lonely.so"


class TestGrammar:
    @pytest.mark.parametrize("command", ["check", "check-builds"])
    @pytest.mark.parametrize(
        ("target", "kind"),
        [("demo", "project"), ("demo/build", "build"), ("demo/build/torch-cuda", "variant")],
    )
    def test_folders(self, kbuild, sealed, command, target, kind):
        answer = kbuild(command, target, "--no-load", "--json")
        assert (answer.code, kinds(answer), outputs(answer)) == (0, [kind], [CUDA])

    def test_the_project_here(self, kbuild, sealed, demo, monkeypatch):
        monkeypatch.chdir(demo)
        answer = kbuild("check", "--no-load", "--json")
        assert (kinds(answer), outputs(answer)) == (["project"], [CUDA])
        assert answer.json["targets"][0]["sources"]["project"] == "demo"

    @pytest.mark.compile
    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_library(self, kbuild, library, command):
        answer = kbuild(command, "lonely.so", "--json")
        assert (answer.code, kinds(answer), outputs(answer)) == (6, ["library"], ["lonely.so"])
        (output,) = answer.json["targets"][0]["outputs"]
        assert output["checks"]["rpath"] == "fail"
        assert output["checks"]["python-abi"] == "ok"
        assert output["checks"].get("layout", "-") == "-"
        assert {finding["where"] for finding in output["findings"]} == {"lonely.so"}

    @pytest.mark.parametrize("command", COMMANDS)
    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("gone", "`gone` does not exist"),
            ("demo/build.toml", "is a file, but no shared library"),
            ("org/relu@v1", "a kernel on the Hub is written hub:org/relu@v1"),
            ("hub:relu@v1", "`hub:relu@v1` is not a kernel on the Hub"),
            ("hub:org/relu", "`hub:org/relu` names no revision"),
        ],
    )
    def test_no_target(self, kbuild, demo, command, target, words):
        answer = kbuild(command, target)
        assert answer.code == 2
        assert words in answer.err

    def test_built_variants_are_selected_like_those_to_be_built(self, kbuild, sealed):
        (sealed.parent / CPU).mkdir()
        folder = str(sealed.parent)
        assert outputs(kbuild("check", folder, "--backend", "cpu", "--no-load", "--json")) == [CPU]
        assert outputs(kbuild("check", folder, "--torch", "2.12", "--no-load", "--json")) == [CUDA]
        answer = kbuild("check", folder, "--backend", "rocm", "--no-load")
        assert answer.code == 2


class TestWhichChecks:
    def test_only(self, kbuild, sealed):
        answer = kbuild("check-builds", "demo", "--only", "layout", "--only", "ops", "--json")
        (output,) = answer.json["targets"][0]["outputs"]
        assert output["checks"] == {"layout": "ok", "ops": "ok"}

    @pytest.mark.parametrize("option", ["--only", "--skip"])
    def test_a_check_that_there_is_not(self, kbuild, option):
        answer = kbuild("check-builds", option, "layuot")
        assert answer.code == 2
        assert f"{option}: there is no check `layuot`" in answer.err
        assert "did you mean `layout`?" in answer.err

    @pytest.mark.parametrize("command", COMMANDS)
    def test_list(self, kbuild, here, command):
        answer = kbuild(command, "--list", "--json")
        names = {row["check"] for row in answer.json}
        assert "manylinux" in names
        assert ("layout" in names) == (command != "check-abi")
        assert ("flags" in names) == (command == "check")
        assert all(row["summary"].endswith(".") for row in answer.json)
        assert "manylinux" in kbuild(command, "--list").out

    def test_strict(self, kbuild, sealed):
        (sealed / "__init__.py").write_text("import numpy\n")
        kbuild("hash", "demo")
        arguments = ("check-builds", "demo", "--no-load")
        assert kbuild(*arguments).code == 0
        answer = kbuild(*arguments, "--strict", "--json")
        assert answer.code == 6
        (output,) = answer.json["targets"][0]["outputs"]
        assert (output["ok"], output["checks"]["depends"]) == (False, "fail")


class TestLimits:
    @pytest.mark.parametrize(
        ("option", "value", "words"),
        [
            ("--manylinux", "manylinux_2_29", "--manylinux: no policy `manylinux_2_29`"),
            ("--macos", "new", "--macos: `new` is not a version"),
            ("--python-abi", "3.x", "--python-abi: `3.x` is not a version"),
            ("--torch-stable-abi", "v2", "--torch-stable-abi: `v2` is not a version"),
            ("--max-size", "big", "--max-size: `big` is not a size"),
            ("--max-size", "0K", "--max-size: `0K` is not a size"),
        ],
    )
    def test_nonsense(self, kbuild, variant, option, value, words):
        answer = kbuild("check-builds", "demo", option, value)
        assert answer.code == 2
        assert words in answer.err

    def test_max_size(self, kbuild, sealed):
        (sealed / "data.bin").write_bytes(b"0" * 3000)
        kbuild("hash", "demo")
        arguments = ("check-builds", "demo", "--no-load", "--max-size")
        assert kbuild(*arguments, "1M").code == 0
        answer = kbuild(*arguments, "1.5K")
        assert answer.code == 6
        assert "error: data.bin: 2.9 KB of " in answer.out
        assert "data.bin" in answer.out.split("\n\n")[1]  # the table of sizes


class TestAnswer:
    @pytest.fixture
    def broken(self, sealed):
        """Two variants with one fault in common, and one of its own."""
        other = sealed.parent / "torch-rocm"
        shutil.copytree(sealed, other)
        metadata = json.loads((other / "metadata.json").read_text())
        metadata["backend"] = {"type": "rocm"}
        (other / "metadata.json").write_text(json.dumps(metadata))
        for folder in (sealed, other):
            (folder / "old.pyc").write_bytes(b"")
        if sys.version_info < (3, 11):
            pytest.skip("this Python reads nothing that is newer than the floor")
        (other / "new.py").write_text("x[*y]\n")
        return sealed.parent

    def test_a_name_cannot_steer_the_terminal(self, kbuild, sealed):
        (sealed / "x\x1b[2J.pyc").write_bytes(b"")
        answer = kbuild("check-builds", "demo", "--no-load")
        assert "\x1b" not in answer.out
        assert "\\x1b" in answer.out

    def test_json(self, kbuild, broken):
        answer = kbuild("check-builds", "demo", "--no-load", "--json")
        assert answer.json["ok"] is False
        (target,) = answer.json["targets"]
        assert set(target) == {"target", "kind", "path", "ok", "sources", "outputs"}
        output = target["outputs"][0]
        assert set(output) == {"name", "variant", "path", "ok", "checks", "facts", "findings"}
        assert output["facts"]["size"]["files"]["__init__.py"] == 8
        assert {"check", "severity", "where", "what", "hint"} <= set(output["findings"][0])

    def test_sizes_per_arch(self, kbuild, sealed):
        (sealed / "x.so").write_bytes(elf({".nv_fatbin": fatbin((MACHINE, "90a"))}))
        arguments = ("check-builds", "demo", "--only", "size")
        (output,) = kbuild(*arguments, "--json").json["targets"][0]["outputs"]
        (code,) = output["facts"]["size"]["archs"]
        assert (code["library"], code["arch"], code["size"]) == ("x.so", "9.0a", 128)
        assert re.search(
            r"^ +x.so +\S+ \w+\n +9.0a +128 bytes$", kbuild(*arguments).out, re.MULTILINE
        )
