"""The examples in `infra/`, and the shell scripts: as far as they can be proved without a cloud."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbuild.cli import find_command
from kbuild.cli.generate_docs import describe_command

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install '.[lint]'")

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
WORKFLOWS = sorted((INFRA / "github-actions").glob("*.yml"))
CLOUD = INFRA / "cloud-init" / "build-machine.yml"
COMMAND = re.compile(r"(?:^|&& )kbuild (?P<words>[a-z-]+[^#|&>\n]*)", re.MULTILINE)
KEY = re.compile(r"^#?([a-z-]+) = ", re.MULTILINE)

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def said(*argv: str, text: str | None = None) -> str:
    """What a program says against a file: nothing when it is content."""
    done = subprocess.run(  # noqa: TID251
        argv, input=text, capture_output=True, text=True, check=False
    )
    out = done.stdout + done.stderr
    assert bool(done.returncode) == bool(out.strip()), out
    return out


def shellcheck(text: str, shell: str) -> str:
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}") or shutil.which(
        "shellcheck"
    )
    if program is None:
        pytest.skip("needs shellcheck: pip install '.[lint]'")
    return said(program, f"--shell={shell}", "-", text=text)


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return loaded


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load(path)["jobs"]
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


def scripts(path: Path) -> list[str]:
    return [step["run"] for step in steps(path) if "run" in step]


@pytest.mark.skipif(importlib.util.find_spec("yamllint") is None, reason="needs yamllint")
def test_yaml_is_tidy() -> None:
    config = str(ROOT / ".yamllint")
    assert said(sys.executable, "-m", "yamllint", "-c", config, "--strict", str(INFRA)) == ""


@pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None, reason="needs check-jsonschema"
)
class TestSchema:
    ARGV = ("-m", "check_jsonschema", "--quiet", "--builtin-schema", "vendor.github-workflows")

    @each_workflow
    def test_workflows_have_the_form_that_github_asks_for(self, path: Path) -> None:
        assert said(sys.executable, *self.ARGV, str(path)) == ""


@each_workflow
class TestWorkflows:
    def test_scripts_are_sound(self, path: Path) -> None:
        for script in scripts(path):
            assert shellcheck(f"set -e\n{script}", "bash") == ""

    def test_nobody_can_write_into_scripts(self, path: Path) -> None:
        """Expressions are pasted into a script before a shell reads it; variables are not."""
        assert [script for script in scripts(path) if "${{" in script] == []

    def test_commands_exist(self, path: Path) -> None:
        found = [match["words"] for text in scripts(path) for match in COMMAND.finditer(text)]
        assert len(found) >= 2
        for name, *rest in map(str.split, found):
            verb = find_command(name)
            assert verb is not None, name
            known = {flag for option in describe_command(verb).options for flag in option.flags}
            assert {word for word in rest if word.startswith("-")} <= known, name

    def test_jobs_have_few_rights_and_an_end(self, path: Path) -> None:
        assert load(path)["permissions"] == {"contents": "read"}
        assert all("timeout-minutes" in job for job in jobs(path).values())
        asked = [set(job["permissions"]) for job in jobs(path).values() if "permissions" in job]
        assert all(rights <= {"contents", "id-token"} for rights in asked)
        checkouts = [s for s in steps(path) if s.get("uses", "").startswith("actions/checkout@")]
        assert checkouts
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)

    def test_actions_have_versions(self, path: Path) -> None:
        used = [step["uses"] for step in steps(path) if "uses" in step]
        assert all(re.fullmatch(r"actions/[a-z-]+(/[a-z]+)?@v\d+", name) for name in used), used

    def test_only_the_upload_sees_the_token(self, path: Path) -> None:
        holders = {name for name, job in jobs(path).items() if "HF_TOKEN" in json.dumps(job)}
        assert holders == {"upload"}
        upload = jobs(path)["upload"]
        assert upload["environment"] == "hub"
        assert upload["if"] == "startsWith(github.ref, 'refs/tags/v')"


class TestCloudInit:
    def content(self, name: str) -> str:
        (found,) = (f["content"] for f in load(CLOUD)["write_files"] if f["path"].endswith(name))
        return str(found)

    @pytest.mark.skipif(shutil.which("cloud-init") is None, reason="needs cloud-init")
    def test_schema(self) -> None:
        done = subprocess.run(  # noqa: TID251
            ("cloud-init", "schema", "--config-file", str(CLOUD)), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout

    def test_the_script_is_sound(self) -> None:
        script = self.content("set-up-build-machine")
        assert shellcheck(script, "sh") == ""
        assert 'install.sh" --with-nix' in script

    def test_only_known_settings(self) -> None:
        keys = KEY.findall(self.content("fleet.conf"))
        assert {"max-jobs", "trusted-users", "extra-substituters"} <= set(keys)
        nix = shutil.which("nix")
        if nix is None:
            pytest.skip("needs nix: apt install nix-bin")
        listing = subprocess.run(  # noqa: TID251
            (nix, "--extra-experimental-features", "nix-command", "show-config", "--json"),
            capture_output=True,
            text=True,
            check=True,
        )
        known = set(json.loads(listing.stdout))
        assert {key.removeprefix("extra-") for key in keys} <= known


@pytest.mark.parametrize(("script", "shell"), [("install.sh", "sh"), (".ci/run", "bash")])
def test_shell_scripts_are_sound(script: str, shell: str) -> None:
    assert shellcheck((ROOT / script).read_text("utf-8"), shell) == ""
