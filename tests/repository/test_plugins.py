"""kbuild works without each of its plug-ins, and with plug-ins of other distributions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_project import write_files

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("kbuild/plugins/*/__init__.py"))
COMMANDS = {
    "advice": "abi-advice",
    "capture": "capture",
    "cluster": "cluster",
    "migrate": "migrate",
}
PROJECT = {
    "build.toml": """\
[general]
name = "pyonly"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
""",
    "torch-ext/pyonly/__init__.py": '"""Doubles."""\n\n\ndef double(x):\n    return x + x\n',
}
TRITON = """
[kernel.scale]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["scale.py"]
doubled = VALUE
"""
ENTRY_POINTS = """\
[kbuild.commands]
greet = made_up:COMMAND

[kbuild.sections]
doubled = made_up:DOUBLED

[kbuild.executors]
made-up = made_up:Machines
"""
MADE_UP = """\
from contextlib import contextmanager

from kbuild.cli import CommandEntry
from kbuild.project.config.issue import Issue
from kbuild.project.config.section_readers import PackageFiles, PluginReading, PluginSection

COMMAND = CommandEntry("Start", "greet", "Greet somebody", "made_up")


def configure(parser):
    parser.add_argument("name")


def execute(args, ctx):
    ctx.ui.data(f"hello {args.name}")
    return 0


class Reading(PluginReading):
    def package_files(self, kernels, framework, folder):
        return PackageFiles({"_doubled.py": f"KERNELS = {[*kernels]}"}, op_modules=("_doubled",))


class Doubled:
    value_type = str

    def read(self, tables, tree):
        sections, issues = {}, []
        for kernel, table in tables.items():
            value = table["doubled"]
            if not isinstance(value, str):
                path = ("kernel", kernel, "doubled")
                issues.append(Issue(path, "`doubled` takes the name of an op"))
                continue
            op = {
                "schema": f"{value}(Tensor x, float factor) -> Tensor",
                "shapes": {"x": ["..."], "out": "x"},
                "dtypes": ["float32"],
                "contiguous": True,
                "let": {"n": "numel(x)"},
                "configs": [{"BLOCK": 1024, "num_warps": 4}],
                "grid": ["cdiv(n, BLOCK)"],
            }
            sections[kernel] = (PluginSection(kernel, value, {"op": [op]}),)
        return Reading(sections, tuple(issues))


DOUBLED = Doubled()


class Machines:
    @contextmanager
    def fill_cache(self, address, request, run, services):
        services.ui.warn(f"asked {address} for {len(request.plans)} variants")
        yield None
"""
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write_files(folder, PROJECT)
    return folder


def kbuild(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """kbuild in a process, with the modules of `site` before all others."""
    environ = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    command = (sys.executable, "-m", "kbuild", *arguments)
    return subprocess.run(  # noqa: TID251
        command, env=environ, capture_output=True, text=True, check=False, cwd=site.parent
    )


@pytest.mark.full
@pytest.mark.parametrize("plugin", PLUGINS)
def test_kbuild_builds_without(plugin: str, tmp_path: Path, project: Path) -> None:
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kbuild", site / "kbuild", ignore=ignored)
    shutil.copytree(ROOT / "templates", site / "templates", ignore=ignored)
    shutil.rmtree(site / "kbuild/plugins" / plugin)
    listed = kbuild(site, "--help")
    assert listed.returncode == 0
    for name, command in COMMANDS.items():
        assert (f"\n  {command} " in listed.stdout) == (name != plugin)
    built = kbuild(site, "build", str(project))
    assert built.returncode == 0, built.stderr
    checked = kbuild(site, "check", "--no-load", str(project))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert kbuild(site, "doctor").returncode == 0


def test_an_unknown_command_may_be_a_removed_plug_ins(tmp_path: Path) -> None:
    (tmp_path / "gone-1.0.dist-info").mkdir()
    (tmp_path / "gone-1.0.dist-info/entry_points.txt").write_text(
        "[kbuild.commands]\nvanished = gone.plugin:COMMAND\n"
    )
    done = kbuild(tmp_path, "vanished")
    assert done.returncode == 2
    assert "there is no command `vanished`" in done.stderr


class TestOthers:
    """A distribution with an entry point of each kind; toolchains have a test of their own."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        folder = tmp_path / "site"
        (folder / "made_up-1.0.dist-info").mkdir(parents=True)
        (folder / "made_up-1.0.dist-info/entry_points.txt").write_text(ENTRY_POINTS)
        (folder / "made_up.py").write_text(MADE_UP)
        return folder

    def test_a_command(self, site: Path) -> None:
        assert "  greet             Greet somebody\n" in kbuild(site, "--help").stdout
        greeted = kbuild(site, "greet", "you")
        assert (greeted.stdout, greeted.stderr) == ("hello you\n", "")

    @pytest.fixture
    def scaled(self, project: Path) -> Path:
        text = PROJECT["build.toml"].replace('"cpu"', '"cuda"')
        text = text.replace("[torch-noarch]", '[torch]\nstable-abi = "2.11"')
        (project / "build.toml").write_text(text + TRITON)
        (project / "scale.py").write_text(KERNEL)
        return project

    @pytest.mark.parametrize(
        ("value", "code", "said"),
        [
            ('"scale"', 0, ""),
            ("3", 3, "build.toml:16: kernel.scale.doubled: `doubled` takes the name of an op"),
            ('"not an op"', 0, ""),
        ],
    )
    def test_a_section_reader(
        self, site: Path, scaled: Path, value: str, code: int, said: str
    ) -> None:
        file = scaled / "build.toml"
        file.write_text(file.read_text().replace("VALUE", value))
        done = kbuild(site, "check-config", str(scaled))
        assert done.returncode == code, done.stdout + done.stderr
        assert said in done.stdout + done.stderr
        if value == '"not an op"':
            planned = kbuild(site, "plan", str(scaled))
            assert "`not an op` becomes an op that no build takes" in planned.stderr
        elif code == 0:
            (plan, *_) = json.loads(kbuild(site, "plan", "--json", str(scaled)).stdout)
            assert [op["schema"] for kernel in plan["aot"] for op in kernel["section"]["op"]]
            assert [file["target"] for file in plan["generated"]] == ["_doubled.py"]
            assert plan["op_modules"] == ["_doubled"]
        without = kbuild(scaled, "check-config", str(scaled))
        assert "kernel.scale.doubled" in without.stdout + without.stderr

    def test_an_executor(self, site: Path, project: Path) -> None:
        unknown = kbuild(site, "build", "--executor", "nobody:far away", str(project))
        assert unknown.returncode == 2
        assert "names no executor" in unknown.stderr
        built = kbuild(site, "build", "--executor", "made-up:far away", str(project))
        assert built.returncode == 0
        assert "asked far away for 1 variants" in built.stderr
