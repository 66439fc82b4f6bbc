"""Commands that start processes, with a runner that only pretends: test, doctor, and init's git."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest

from kbuild.cli import test
from kbuild.pipeline.diagnosis import OPTIONAL_TOOLS, diagnose
from kbuild.project.variant import host_system
from kbuild.system.cache import KINDS
from kbuild.system.cache_folder import cache_folder, foreign_writer, validate_cache_owner
from kbuild.system.errors import TestFailureError, ToolchainError, UsageError
from kbuild.system.processes import ProcessResult
from kbuild.system.services import Services
from kbuild.system.ui import Ui


class Pretend:
    """Answers every process with the same exit code and output; remembers what was asked."""

    def __init__(self, code: int = 0, output: str = "") -> None:
        self.code, self.output = code, output
        self.calls: list[tuple[tuple[str, ...], dict]] = []

    def run(self, argv, **options) -> ProcessResult:
        self.calls.append((tuple(map(str, argv)), options))
        return ProcessResult(tuple(map(str, argv)), self.code, self.output, 0.1)


@pytest.fixture
def run_tests(demo, variant, here, tmp_path, monkeypatch):
    (demo / "tests").mkdir()
    facts = {"python": {"executable": "python", "version": "3.11.7", "purelib": "lib"}}
    facts |= {"torch": {}, "tvm_ffi": None, "kernels": None}
    monkeypatch.setattr(test, "chosen_facts", lambda given, ctx: facts)

    def run(runner, rest=(), variant=(), python=None, json=False, marked=False):
        args = Namespace(
            kernel_dir=Path("demo"),
            variant=list(variant),
            python=python,
            rest=rest,
            json=json,
            marked=marked,
            torch=None,
            executor=None,
            allow_skipped=False,
        )
        return test.execute(args, Services(runner, Ui(), tmp_path, here))

    return run


class TestTests:
    def test_what_is_run(self, run_tests, variant, demo):
        runner = Pretend()
        assert run_tests(runner, rest=("-k", "relu")) == 0
        ((argv, options),) = runner.calls
        assert argv[:3] == ("python", "-m", "pytest")
        assert argv[3:6] == (str(demo / "tests"), "-p", "no:cacheprovider")
        assert argv[-2:] == ("-k", "relu")
        assert options["env"]["LOCAL_KERNELS"] == f"demo={variant}"
        assert options["cwd"] == demo

    def test_the_repository_names_the_kernel(self, run_tests, demo, variant):
        with (demo / "build.toml").open("a") as file:
            file.write('[general.hub]\nrepo-id = "org/demo"\n')
        runner = Pretend()
        run_tests(runner)
        assert runner.calls[0][1]["env"]["LOCAL_KERNELS"] == f"org/demo={variant}"

    def test_several_variants_leave_the_choice_to_the_client(self, run_tests, variant, capsys):
        (variant.parent / "torch-rocm").mkdir()
        runner = Pretend()
        run_tests(runner)
        assert runner.calls[-1][1]["env"]["LOCAL_KERNELS"] == f"demo={variant.parent}"
        assert "`import demo` will find no variant" in capsys.readouterr().err
        with pytest.raises(UsageError, match="matches several"):
            run_tests(runner, variant=["torch-*"])

    def test_failures(self, run_tests):
        with pytest.raises(TestFailureError, match=r"FAILED tests/test_a\.py::test_b") as raised:
            run_tests(Pretend(1, "...F\nFAILED tests/test_a.py::test_b - assert 1\n1 failed\n"))
        assert raised.value.code == 8

    def test_files_that_are_named_take_the_place_of_the_folder(self, run_tests, demo):
        (demo / "tests" / "test_a.py").touch()
        runner = Pretend()
        run_tests(runner, rest=("tests/test_a.py::test_b",))
        assert str(demo / "tests") not in runner.calls[0][0]
        run_tests(runner, rest=("-k", "tests"))
        assert str(demo / "tests") in runner.calls[1][0]

    @pytest.mark.parametrize(
        ("options", "words", "hint"),
        [
            ({}, "found no test in `tests`", "write functions `test_...` in files `test_*.py`"),
            ({"marked": True}, "that is marked `kernels_ci`", "or leave --marked out"),
            ({"rest": ("-k", "x")}, "found no test in `tests`", "check `-k x`, which pytest"),
        ],
    )
    def test_no_tests_is_no_success(self, run_tests, options, words, hint):
        with pytest.raises(TestFailureError) as raised:
            run_tests(Pretend(5), **options)
        assert raised.value.code == 8
        assert words in raised.value.message
        assert hint in raised.value.hint

    def test_a_variant_that_cannot_be_loaded(self, run_tests, variant):
        variant.rename(variant.with_name("tvm-ffi01-cpu-x86_64-linux"))
        runner = Pretend()
        with pytest.raises(ToolchainError, match="`python` has no apache-tvm-ffi") as raised:
            run_tests(runner)
        assert raised.value.hint == "python -m pip install apache-tvm-ffi kernels pytest"
        assert not runner.calls


class TestDoctor:
    FACTS = (
        '{"python": {"executable": "/p/bin/python", "include_dir": "", "version": "3.11.7",'
        ' "purelib": "/p/lib"},'
        ' "torch": {"root": "/nowhere/torch", "version": "2.13.0"}, "tvm_ffi": null,'
        ' "kernels": null}'
    )

    def test_a_bare_machine(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("KBUILD_ACCEPT_LICENSE", raising=False)
        monkeypatch.setattr("kbuild.toolchains.facts._PROBE", tmp_path / "probe.py")
        facts = json.loads(self.FACTS) | {"torch": None}
        monkeypatch.setattr("kbuild.pipeline.diagnosis.choose_python", lambda *_: facts)
        (tmp_path / "os-release").write_text("ID=debian\n")
        found = diagnose(None, tmp_path, Pretend(), tmp_path / "os-release")
        items = {item.name: item for item in found}
        assert items["C++ compiler"].state == "missing"
        assert items["C++ compiler"].mend == "apt-get install g++"
        assert items["torch"].mend == "/p/bin/python -m pip install torch kernels pytest"
        assert items["kernels"].mend == "see torch"
        assert items["git"].state == "optional"
        assert {tool.name for tool in OPTIONAL_TOOLS} <= set(items)
        assert items["CUDA 12"].state == "optional"
        assert "KBUILD_ACCEPT_LICENSE" in items["CUDA 12"].mend
        monkeypatch.setenv("KBUILD_ACCEPT_LICENSE", "nvidia-cuda-eula")
        accepted = {item.name: item for item in diagnose(None, tmp_path, Pretend())}["CUDA 12"]
        assert "KBUILD_ACCEPT_LICENSE" not in accepted.mend

    def test_an_old_compiler(self, tmp_path, monkeypatch):
        compiler = tmp_path / "g++"
        compiler.write_text("")
        compiler.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        facts = json.loads(self.FACTS)
        monkeypatch.setattr("kbuild.pipeline.diagnosis.choose_python", lambda *_: facts)
        runner = Pretend(output="g++ (Debian 8.3.0-6) 8.3.0\n")
        items = {item.name: item for item in diagnose(None, tmp_path, runner)}
        assert (items["C++ compiler"].state, items["torch"].state) == ("missing", "ok")
        assert "too old" in items["C++ compiler"].details

    def test_here(self, kbuild):
        answer = kbuild("doctor", "--json")
        assert answer.code in {0, 4}
        names = [item["name"] for item in answer.json["items"]]
        crossed = ["C++ for aarch64-linux"] if str(host_system()) == "x86_64-linux" else []
        first = ["Python", "C++ compiler", "portable links", *crossed, "cmake"]
        assert names[: len(first)] == first
        assert answer.json["ok"] is (answer.code == 0)


class TestContext:
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({"KBUILD_CACHE_DIR": "/a"}, "/a"),
            ({"XDG_CACHE_HOME": "/b"}, "/b/kbuild"),
            ({"XDG_CACHE_HOME": "/b", "KBUILD_CACHE_DIR": "/a"}, "/a"),
        ],
    )
    def test_cache_folder(self, environ, expected):
        assert cache_folder(environ) == Path(expected)

    @pytest.mark.parametrize("folder", ["", "store", *(kind.name for kind in KINDS)])
    def test_a_cache_that_everybody_can_write_to(self, kbuild, monkeypatch, tmp_path, folder):
        monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path))
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder).chmod(0o1777)
        answer = kbuild("doctor")
        assert answer.code == 12
        assert f"`{tmp_path / folder}` belongs to kbuild's cache, and everybody" in answer.err
        assert "KBUILD_SHARED_CACHE=1" in answer.err
        validate_cache_owner(tmp_path, {"KBUILD_SHARED_CACHE": "1"})
        (tmp_path / folder).chmod(0o755)
        validate_cache_owner(tmp_path, {})

    @pytest.mark.parametrize(
        ("mode", "owner", "group", "who"),
        [
            (0o755, 1000, 1000, ""),
            (0o755, 0, 1000, ""),
            (0o775, 1000, 0, ""),
            (0o755, 4_000_000, 1000, "its owner, the user with the number 4000000,"),
            (0o700, 4_000_000, 4_000_000, "its owner, the user with the number 4000000,"),
            (0o777, 1000, 1000, "everybody"),
            (0o2770, 1000, 4_000_000, "the group with the number 4000000"),
        ],
    )
    def test_who_can_write(self, mode, owner, group, who):
        status = os.stat_result((0o040000 | mode, 0, 0, 0, owner, group, 0, 0, 0, 0))
        assert foreign_writer(status, 1000) == who
