"""A cluster on loopback: what it makes has the bytes of a local build, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clusters import cluster
from tests.support.command_project import CommandProject, write_files

pytestmark = [pytest.mark.compile, pytest.mark.torch]
pytest.importorskip("distributed")
UNITS = 3
BUILD = """\
[general]
name = "many"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.many]
backend = "cpu"
depends = []
include = ["src"]
src = [{sources}]
"""
BINDING = '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
QUICK = """\
#include "number.h"
#include <string>
bool many@(std::string const &text) { return text.size() > NUMBER + @; }
"""
SLOW = f"""\
#include <regex>
{QUICK}
std::regex pattern("[a-z]+");
"""


def write_project(folder: Path) -> Path:
    paths = [f"src/unit{number}.cpp" for number in range(UNITS)]
    files = {
        "build.toml": BUILD.format(sources=", ".join(f'"{path}"' for path in paths)),
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/many/__init__.py": "__all__: list[str] = []\n",
        "src/number.h": "#define NUMBER 100\n",
    }
    for number, path in enumerate(paths):
        files[path] = (SLOW if number == 0 else QUICK).replace("@", str(number))
    write_files(folder, files)
    return folder


def build(
    folder: Path, credentials: Path, *arguments: str, **variables: str
) -> tuple[dict[str, bytes], str]:
    """A cold build of the project in `folder`: its libraries, and what it said."""
    bench = CommandProject(write_project(folder / "project"), folder / "cache")
    bench.cache.mkdir()
    file = str(credentials / "cluster" / "credentials.pem")
    environ = {"KBUILD_CLUSTER_CREDENTIALS": file, **variables}
    done = bench.kbuild("build", "--unique-id", "abc1234", *arguments, env=environ)
    libraries = (bench.root / "build").rglob("*.so")
    return {path.name: path.read_bytes() for path in libraries}, done.stderr


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local")
    libraries, _ = build(folder, folder)
    assert libraries
    return libraries


def test_a_build_on_two_workers_has_the_same_bytes(
    tmp_path: Path, local: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBUILD_CLUSTER_SAMPLE", "0")
    monkeypatch.setenv("GITHUB_TOKEN_OF_TEST", "secret-of-the-user")
    with cluster(tmp_path / "cluster", 2) as (address, _):
        libraries, said = build(tmp_path, tmp_path / "cluster", "--executor", address)
        workers = [path.name for path in (tmp_path / "cluster" / "workers").iterdir()]
        objects = {
            name: len([*(tmp_path / "cluster/workers" / name).glob("cache/objects/*/*/*")])
            for name in workers
        }
    assert libraries == local
    assert f"{UNITS + 1} of {UNITS + 1} objects from cache" in said
    assert len(workers) == 2
    assert sum(objects.values()) == UNITS + 1, objects
    texts = [path for path in (tmp_path / "cluster").rglob("*") if path.is_file()]
    assert not any(b"secret-of-the-user" in path.read_bytes() for path in texts)
