"""The backend of `docs/contributing/add-a-backend.md`, from one Python file outside the package."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject
from tests.support.guide import files_of, install

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The files of the guide, for the Torch that is installed."""
    torch = pytest.importorskip("torch")
    release = ".".join(torch.__version__.split(".")[:2])
    found, versions = files_of("add-a-backend.md"), "kbuild_acme/data/versions.toml"
    assert 'version = "2.13"' in found[versions]
    return {**found, versions: found[versions].replace('"2.13"', f'"{release}"')}


@pytest.fixture(scope="module")
def env(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the distribution is installed."""
    return install(tmp_path_factory.mktemp("site"), files)


@pytest.fixture(scope="module")
def bench(
    env: dict[str, str], tmp_path_factory: pytest.TempPathFactory, warm: Callable[[Path], Path]
) -> CommandProject:
    """A new project for the backend."""
    folder = tmp_path_factory.mktemp("acme")
    parent = CommandProject(folder, warm(folder / "cache"))
    parent.kbuild("init", "demo", "--no-git", "--backends", "acme", env=env)
    return CommandProject(folder / "demo", parent.cache)


def test_what_the_client_cannot_load_is_refused_before_the_compile(
    bench: CommandProject, env: dict[str, str]
) -> None:
    (bench.root / "kbuild.toml").unlink(missing_ok=True)
    [problem] = json.loads(bench.kbuild("check-config", "--json", expect=3, env=env).stdout)[
        "problems"
    ]
    lines = (bench.root / "build.toml").read_text().splitlines()
    assert lines[problem["line"] - 1] == 'backends = ["acme"]'
    assert (problem["file"], problem["key"]) == ("build.toml", "general.backends")
    assert problem["message"].startswith("the `kernels` client does not support the backend `acme`")
    assert "`[allow]` in kbuild.toml" in problem["hint"]
    done = bench.kbuild("build", expect=6, env=env)
    assert "does not support the backend `acme`" in done.stderr
    assert "--allow client" in done.stderr
    assert not (bench.root / "build").exists()
    done = bench.kbuild("check", expect=6, env=env)
    assert "does not support the backend `acme`" in done.stdout + done.stderr


def test_what_its_author_overrules_is_planned_built_and_checked(
    bench: CommandProject, env: dict[str, str], files: dict[str, str]
) -> None:
    (bench.root / "kbuild.toml").write_text(files["kbuild.toml"])
    answer = json.loads(bench.kbuild("check-config", "--json", env=env).stdout)
    assert [problem["severity"] for problem in answer["problems"]] == ["warning"]
    assert "overruled: our users load" in answer["problems"][0]["message"]

    plans = json.loads(bench.kbuild("plan", "--json", env=env).stdout)
    [plan] = [plan for plan in plans if plan["requires"]["system"].startswith(os.uname().machine)]
    assert plan["backend"] == "acme"
    assert plan["archs"] == ["a1", "a2"]

    done = bench.kbuild("build", "--json", env=env)
    [built] = [entry for entry in json.loads(done.stdout)["variants"] if entry["path"]]
    metadata = json.loads((bench.root / built["path"] / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "acme", "archs": ["a1", "a2"]}
    assert [*metadata["provenance"]["kernel-builder"]["overruled"]] == ["client"]
    # Without the client, which refuses the backend: the load itself is what counts.
    found = {finding["check"]: finding for finding in built["findings"]}
    assert "load" not in found, found["load"]
    assert "kbuild cannot read ACME code" in found["archs"]["what"]

    bench.kbuild("check", env=env)
    bench.kbuild("fill-card", env=env)
    assert "ACME" in (bench.root / "build" / "CARD.md").read_text()


def test_an_arch_is_read_as_the_backend_writes_it(
    bench: CommandProject, env: dict[str, str]
) -> None:
    file = bench.root / "build.toml"
    before = file.read_text()
    try:
        file.write_text(before + 'acme-archs = ["b1"]\n')
        done = bench.kbuild("check-config", expect=3, env=env)
        assert "`b1` is not an ACME architecture" in done.stderr
        file.write_text(before + 'acme-archs = ["a9"]\n')
        done = bench.kbuild("plan", expect=3, env=env)
        assert "no GPU that kbuild knows has `a9`" in done.stderr
        assert "the nearest is `a3`" in done.stderr
        file.write_text(before + 'acme-archs = ["a3", "a9"]\n')
        done = bench.kbuild("check-config", env=env)
        assert (
            "warning: kernel.demo-acme.acme-archs: no GPU that kbuild knows has `a9`" in done.stderr
        )
        file.write_text(before + 'acme-archs = ["a3"]\n')
        done = bench.kbuild("plan", "--json", env=env)
        assert {(*plan["archs"],) for plan in json.loads(done.stdout)} == {("a3",)}
    finally:
        file.write_text(before)


def test_its_keys_are_in_the_schema(bench: CommandProject, env: dict[str, str]) -> None:
    schema = bench.kbuild("schema", env=env).stdout
    assert "acme-archs" in schema
    assert "ACME architectures, e.g." in schema
