"""The DSL of `docs/contributing/add-a-dsl.md`: one module outside the package, and its worker."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, CommandProject, write_files
from tests.support.dsl.projects import loaded
from tests.support.wheel_index import make_wheel

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
GUIDE = ROOT / "docs" / "contributing" / "add-a-dsl.md"
_BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CALL = """\
x = torch.arange(7, dtype=torch.float32)
assert torch.equal(kernel.scale(x, 2.5), x * 2.5)
assert kernel.scale(x[::2], 2.0).tolist() == [0.0, 4.0, 8.0, 12.0]
"""


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    """The files of the guide."""
    return dict(_BLOCK.findall(GUIDE.read_text("utf-8")))


@pytest.fixture(scope="module")
def env(blocks: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A kbuild beside which the distribution is installed, and where pip finds the DSL alone."""
    site, wheels = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("wheels")
    registration = blocks["pyproject.toml"].partition('"kbuild.languages"]\n')[2].replace('"', "")
    info = "kbuild_abacus-1.0.dist-info"
    files = {name: text for name, text in blocks.items() if name.startswith("kbuild_abacus/")}
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: kbuild-abacus\nVersion: 1.0\n"
    files[f"{info}/entry_points.txt"] = f"[kbuild.languages]\n{registration}"
    write_files(site, files)
    make_wheel(wheels, "abacus", "1.0", {"abacus.py": blocks["abacus.py"].encode()})
    path = os.pathsep.join(filter(None, [str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@pytest.fixture(scope="module")
def bench(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    """A new project in the DSL."""
    folder = tmp_path_factory.mktemp("abacus")
    CommandProject(folder, folder / "cache").kbuild(
        "init", "demo", "--no-git", "--language", "abacus", env=env
    )
    return CommandProject(folder / "demo", folder / "cache")


def test_a_section_is_judged_by_the_dsl(bench: CommandProject, env: dict[str, str]) -> None:
    file = bench.root / "build.toml"
    before = file.read_text()
    try:
        for old, new, message in (
            ("abacus==1.0", "abacus==1", "pins no exact release"),
            ('"abacus==1.0"', '"other==1.0"', "does not say which version of `abacus` compiles"),
            ("contiguous = true", 'contiguous = true\nfallback = "jit"', "cannot launch `abacus`"),
            (
                "contiguous = true",
                'contiguous = true\nconfigs = "autotune"',
                "do not define candidates",
            ),
        ):
            file.write_text(before.replace(old, new))
            assert message in bench.kbuild("check-config", expect=3, env=env).stderr
    finally:
        file.write_text(before)


def test_without_the_distribution_the_language_is_unknown(
    bench: CommandProject, env: dict[str, str]
) -> None:
    bench.kbuild("check-config", env=env)
    done = bench.kbuild("check-config", expect=3, env={"PYTHONPATH": str(ROOT)})
    assert "`abacus` is not a language" in done.stderr


def test_the_op_is_built_checked_and_called(bench: CommandProject, env: dict[str, str]) -> None:
    done = bench.kbuild("build", "--json", env=env)
    [built] = [entry for entry in json.loads(done.stdout)["variants"] if entry["path"]]
    assert [one for one in built["findings"] if one["severity"] != "info"] == []
    bench.python(loaded(str(bench.root / built["path"]), CALL))
    metadata = json.loads((bench.root / built["path"] / "metadata.json").read_text())
    versions = metadata["provenance"]["kernel-builder"]["toolchain"]["versions"]
    assert versions["abacus"] == "1.0"


def test_another_worker_makes_another_image(
    bench: CommandProject, env: dict[str, str], blocks: dict[str, str]
) -> None:
    """The file of a worker is part of what an image is kept under."""
    worker = Path(env["PYTHONPATH"].partition(os.pathsep)[0]) / "kbuild_abacus" / "worker.py"
    try:
        worker.write_text(blocks["kbuild_abacus/worker.py"].replace(" = {code};", " = 2 * {code};"))
        built = json.loads(bench.kbuild("build", "--json", env=env).stdout)["variants"][0]
        code = "assert kernel.scale(torch.ones(3), 2.0).tolist() == [4.0, 4.0, 4.0]\n"
        bench.python(loaded(str(bench.root / built["path"]), code))
    finally:
        worker.write_text(blocks["kbuild_abacus/worker.py"])
