"""What others use besides commands: releases, an action, hooks, a container, types, the schema."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import tomli

from kbuild import REPOSITORY
from kbuild.cli import find_command
from kbuild.cli.scaffold import Scaffold, scaffold_files
from kbuild.project.config.schema import SCHEMA_ID
from kbuild.system.errors import install_command
from tests.repository.test_infra import COMMAND, said, shellcheck

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install '.[lint]'")

ROOT = Path(__file__).parents[2]
RELEASE, ACTION = ROOT / ".github" / "workflows" / "release.yml", ROOT / "action.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


def scripts(path: Path) -> list[str]:
    document = yaml.safe_load(path.read_text("utf-8"))
    parts = [document["runs"]] if "runs" in document else document["jobs"].values()
    return [step["run"] for part in parts for step in part["steps"] if "run" in step]


@pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None, reason="needs check-jsonschema"
)
@pytest.mark.parametrize(
    ("path", "schema"), [(RELEASE, "github-workflows"), (ACTION, "github-actions")]
)
def test_github_accepts_the_form(path: Path, schema: str) -> None:
    argv = ("-m", "check_jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}")
    assert said(sys.executable, *argv, str(path)) == ""


@pytest.mark.skipif(importlib.util.find_spec("yamllint") is None, reason="needs yamllint")
def test_yaml_is_tidy() -> None:
    config, files = str(ROOT / ".yamllint"), map(str, (RELEASE, ACTION, HOOKS))
    assert said(sys.executable, "-m", "yamllint", "-c", config, "--strict", *files) == ""


@pytest.mark.parametrize("path", [RELEASE, ACTION], ids=lambda path: path.stem)
class TestScripts:
    def test_they_are_sound(self, path: Path) -> None:
        for script in scripts(path):
            assert shellcheck(f"set -e\n{script}", "bash") == ""

    def test_nobody_can_write_into_them(self, path: Path) -> None:
        assert [script for script in scripts(path) if "${{" in script] == []

    def test_commands_exist(self, path: Path) -> None:
        words = [match["words"] for text in scripts(path) for match in COMMAND.finditer(text)]
        assert all(find_command(text.split()[0]) for text in words)


def test_only_the_job_that_publishes_has_rights() -> None:
    document = yaml.safe_load(RELEASE.read_text("utf-8"))
    assert document["permissions"] == {"contents": "read"}
    assert [name for name, job in document["jobs"].items() if "permissions" in job] == ["publish"]
    publish = document["jobs"]["publish"]
    assert publish["environment"] == "release"
    assert publish["if"] == "github.ref_type == 'tag'"
    assert not any("run" in step and "pip" in step["run"] for step in publish["steps"])


def test_hooks_call_commands() -> None:
    for hook in yaml.safe_load(HOOKS.read_text("utf-8")):
        program, command, *_ = hook["entry"].split()
        assert program == "kbuild"
        assert find_command(command), hook["id"]
        assert hook["language"] == "python"
        assert re.search(hook["files"], "kernels/build.toml")


class TestMetadata:
    PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def test_classifiers_agree_with_the_python_that_is_required(self) -> None:
        pattern = r"Programming Language :: Python :: 3\.(\d+)"
        minors = [int(m[1]) for c in self.PROJECT["classifiers"] if (m := re.fullmatch(pattern, c))]
        assert self.PROJECT["requires-python"] == f">=3.{min(minors)}"
        assert not any(text.startswith("License ::") for text in self.PROJECT["classifiers"])

    def test_types_are_for_others_too(self) -> None:
        assert (ROOT / "kbuild" / "py.typed").is_file()


class TestInstallation:
    """kbuild is on no package index: whoever took its name there would run code for our users."""

    SHOWN = (
        *(ROOT / "kbuild").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md",
        *(ROOT / "infra").rglob("*.yml"), *(ROOT / "templates").rglob("*"), ACTION, RELEASE,
        *(ROOT / "examples").rglob("*.md"), ROOT / "install.sh",
    )  # fmt: skip

    def test_nothing_installs_kbuild_from_an_index(self) -> None:
        command = re.compile(
            r"""\b(?:pip|pipx|uv tool) install (?:-[a-z]+ |--quiet )*["']?kbuild(?![\w@/ ]*@)"""
        )
        named = [p for p in self.SHOWN if p.is_file() and command.search(p.read_text("utf-8"))]
        assert named == []
        assert command.search("pip install 'kbuild[hub]'")
        assert command.search("pip install -q kbuild")

    def test_one_constant_names_the_repository(self) -> None:
        pattern = re.compile(
            r"(?:github:|(?:github|githubusercontent)\.com/|uses: )([\w-]+/kbuild)\b"
        )
        named = {
            name
            for p in self.SHOWN
            if p.is_file()
            for name in pattern.findall(p.read_text("utf-8"))
        }
        assert named == {REPOSITORY}
        urls = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
        assert all(url.startswith(f"https://github.com/{REPOSITORY}") for url in urls.values())

    def test_the_hint_is_for_the_python_that_runs_kbuild(self) -> None:
        assert install_command("huggingface_hub>=1.10").startswith(
            (f"{sys.executable} -m pip install", f"uv pip install --python {sys.executable}")
        )
        assert install_command("huggingface_hub>=1.10").endswith(" 'huggingface_hub>=1.10'")


class TestSchema:
    def test_init_names_it_in_the_first_line(self) -> None:
        scaffold = Scaffold("demo", "org", "org/demo", "MIT", ("cpu",), ("cpu",))
        text = dict(scaffold_files(scaffold, ROOT / "templates" / "init").items())["build.toml"]
        assert text.decode().splitlines()[0] == f"#:schema {SCHEMA_ID}"

    def test_its_id_is_where_it_lies(self) -> None:
        path = ROOT / "docs" / "reference" / "build.schema.json"
        assert SCHEMA_ID.endswith(f"/main/{path.relative_to(ROOT).as_posix()}")
        assert json.loads(path.read_text("utf-8"))["$id"] == SCHEMA_ID
