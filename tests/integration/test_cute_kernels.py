"""A kernel in CuTe DSL from `build.toml` to a loaded op, without a GPU. Fetches 110 MB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kbuild.checks.readers.device_code import read_device_code
from tests.support.command_project import ROOT, CommandProject
from tests.support.dsl.projects import loaded
from tests.support.hub.fixture import HubBench
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
BUILD = ("--variant", VARIANT, "--arch", "9.0")
LICENCE = "nvidia-cutlass-dsl"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where CuTe DSL is installed, once for all tests."""
    return dsl_store("cute-4.8.1", "nvidia-cutlass-dsl", tmp_path_factory)


def bench_in(folder: Path, store: Path) -> CommandProject:
    """The example in a folder for one dtype, and a cache of its own, but for the store."""
    left = shutil.ignore_patterns("build", ".kbuild", "__pycache__", "flake.nix")
    shutil.copytree(ROOT / "examples" / "add-cute", folder / "project", ignore=left)
    build = folder / "project" / "build.toml"
    dtypes = 'x = ["float32", "float16", "bfloat16"]'
    assert build.read_text().count(dtypes) == 2
    build.write_text(build.read_text().replace(dtypes, 'x = ["bfloat16"]'))
    bench = CommandProject(folder / "project", cache_with_store(folder / "cache", store))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "add")):
        bench.git(*arguments)
    return bench


@pytest.fixture(scope="module")
def bench(store: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    made = bench_in(tmp_path_factory.mktemp("add"), store)
    made.built(*BUILD)
    return made


def extension(bench: CommandProject) -> Path:
    (found,) = (bench.root / "build" / VARIANT).glob("*.abi3.so")
    return found


@pytest.mark.quick
def test_what_is_in_the_variant(bench: CommandProject) -> None:
    metadata = json.loads((bench.root / "build" / VARIANT / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0a"]}
    versions = metadata["provenance"]["kernel-builder"]["toolchain"]["versions"]
    assert versions["nvidia-cutlass-dsl"] == "4.8.1"
    assert versions[f"license {LICENCE}"] == "the static runtime of nvidia-cutlass-dsl 4.8.1"
    images = read_device_code(extension(bench)).images
    assert {(image.arch, image.kind) for image in images} == {("9.0a", "machine")}
    assert len(images) == 2 * 2  # ops, aligned and plain
    with extension(bench).open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
    assert {name for name in needed if "cu" in name or "tvm" in name} == {"libcudart.so.13"}
    assert extension(bench).stat().st_size < 5_000_000


def test_nothing_is_exported_and_no_paths_are_inside(bench: CommandProject) -> None:
    done = subprocess.run(  # noqa: TID251
        ("nm", "-D", "--defined-only", str(extension(bench))),
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    foreign = ("_cu", "cu", "__tvm", "__cute", "TVM", "Cute")
    assert not [name for name in names if name.startswith(foreign)]
    data = extension(bench).read_bytes()
    for word in (str(bench.root), str(bench.cache), "site-packages", "nvidia_cutlass_dsl"):
        assert word.encode() not in data, word


@pytest.mark.quick
def test_it_loads_without_the_dsl(bench: CommandProject) -> None:
    code = """
for name in ("cutlass", "tvm_ffi"):
    assert name not in sys.modules
    sys.modules[name] = None
x = torch.empty(3, 5, device="meta", dtype=torch.bfloat16)
assert kernel.add(x, x, alpha=2.0).shape == (3, 5)
out = torch.empty(5, 3, device="meta", dtype=torch.bfloat16).t()
assert kernel.add(x, x, out=out) is out
for bad in (torch.ones(4), torch.ones(4, dtype=torch.int8)):
    try:
        kernel.add(bad, bad)
    except (RuntimeError, NotImplementedError) as error:
        print(str(error).splitlines()[0])
"""
    said = bench.python(loaded(str(bench.root / "build" / VARIANT), code))
    assert len(said.strip().splitlines()) == 2


def test_an_upload_asks_for_the_licence(bench: CommandProject, hub: HubBench) -> None:
    hub.create("org/add")
    target = ("--repo-id", "org/add", "--dry-run", "--allow-dirty", "--allow-noncompliant")
    command = (sys.executable, "-m", "kbuild", "upload", *target)
    env = {"KBUILD_CACHE_DIR": str(bench.cache), "KBUILD_ACCEPT_LICENSE": ""}
    refused = hub.run(*command, cwd=bench.root, env=env)
    assert refused.returncode == 11
    assert "--accept-license nvidia-cutlass-dsl" in refused.stderr
    accepted = hub.run(*command, "--accept-license", LICENCE, cwd=bench.root, env=env)
    assert accepted.returncode == 0, accepted.stderr
