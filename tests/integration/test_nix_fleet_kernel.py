"""A kernel's variants built on two machines at once, and downloaded by a third."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.command_project import run
from tests.support.nix.fleet import Fleet, fleet, served
from tests.support.nix.sandbox import SYSTEM, Sandbox, nix_users, why_not

pytestmark = [
    pytest.mark.nix,
    pytest.mark.compile,
    pytest.mark.network,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
EXAMPLE = "relu-stable-abi"
CPU, CUDA = (f"torch-stable-abi211-{backend}-{SYSTEM}" for backend in ("cpu", "cu130"))
CUDA_KERNEL = 'backend = "cuda"'
FLAKE = """\
{
  inputs.kbuild.url = "github:kbuild/kbuild";
  outputs = { self, kbuild }: kbuild.lib.genKernelFlakeOutputs {
    inherit self;
    path = ./.;
    doGetKernelCheck = false; # loading needs all of Torch on the other machines
  };
}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel that nobody built before, and the machines that may build it."""

    root: Path
    fleet: Fleet
    inputs: tuple[str, ...]
    """kbuild of this tree, and the stand-in for nixpkgs."""

    def store(self, name: str) -> Path:
        return self.fleet.folder / name

    def builders(self, *names: str) -> str:
        return " ; ".join(f"{self.store(name)} {SYSTEM} - 1 1" for name in names)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with fleet() as machines:
        sandbox = Sandbox(machines.folder / "sandbox")
        sandbox.folder.mkdir()
        sandbox.prepare()
        root = sandbox.project(EXAMPLE, machines.folder / EXAMPLE)
        (root / "flake.nix").write_text(FLAKE)
        build = (root / "build.toml").read_text()
        limited = build.replace(CUDA_KERNEL, f'{CUDA_KERNEL}\ncuda-capabilities = ["9.0"]')
        assert limited != build
        (root / "build.toml").write_text(limited)
        for source in (*root.rglob("relu*.cpp"), *root.rglob("relu*.cu")):
            source.write_text(f"{source.read_text()}// {uuid.uuid4()}\n")
        yield Kernel(root, replace(machines, conf=sandbox.conf), sandbox.overrides(root))


class Watch:
    """Notes when all stores had a build going on: it has a root file system then."""

    def __init__(self, stores: list[Path]) -> None:
        self.stores, self.done = stores, threading.Event()
        self.together: list[float] = []
        self.thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self.done.wait(0.2):
            if all(any(store.glob("nix/store/*relu*.chroot")) for store in self.stores):
                self.together.append(time.monotonic())

    def __enter__(self) -> list[float]:
        self.thread.start()
        return self.together

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def toolchains(kernel: Kernel, *machines: str) -> None:
    """Have what variants are built from here and on the machines, which then wait for nothing."""
    names = (f"path:{kernel.root}#redistributable.{name}" for name in (CPU, CUDA))
    argv = ("path-info", "--derivation", "--no-write-lock-file", *kernel.inputs, *names)
    found = kernel.fleet.nix(*argv)
    assert found.returncode == 0, found.stderr
    fetching = json.loads((kernel.fleet.conf / "environment.json").read_text())
    there = {"cwd": kernel.root, "env": {**kernel.fleet.environment, **fetching}}
    needed = run(("nix-store", "--query", "--references", *found.stdout.split()), **there)
    parts = [path for path in needed.stdout.split() if path.endswith(".drv")]
    made = run(("nix-store", "--realise", *parts), **there)
    assert made.returncode == 0, made.stderr
    for name in machines:
        place = str(kernel.store(name))
        copied = kernel.fleet.nix("copy", "--no-check-sigs", "--to", place, *made.stdout.split())
        assert copied.returncode == 0, copied.stderr


@pytest.fixture(scope="module")
def built(kernel: Kernel) -> dict[str, Path]:
    """Variants by name, built by two machines; this one may only do what must be done here."""
    env = kernel.fleet.environment | {
        "KBUILD_CACHE_DIR": str(kernel.fleet.folder / "kbuild-cache"),
        "KBUILD_NIX_ARGS": " ".join(kernel.inputs),
    }
    argv = (
        *(sys.executable, "-m", "kbuild", "build", "--driver", "nix", "--json"),
        *("--variant", CPU, "--variant", CUDA, "--max-jobs", "0", "--cores", "1"),
        *("--builders", kernel.builders("left", "right")),
    )
    toolchains(kernel, "left", "right")
    stores = [kernel.store("left"), kernel.store("right")]
    with nix_users(alone=True), Watch(stores) as together:
        done = run(argv, cwd=kernel.root, env=env)
    assert done.returncode == 0, done.stderr
    assert together, f"the two machines never built at once:\n{done.stderr}"
    return {entry["variant"]: Path(entry["path"]) for entry in json.loads(done.stdout)["variants"]}


def held(kernel: Kernel, store: str) -> set[str]:
    """The variants that a store holds."""
    folder = kernel.store(store) / "nix" / "store"
    return {name for name in (CPU, CUDA) if any(folder.glob(f"*-{name}/metadata.json"))}


def test_two_machines_build_variants_at_once(kernel: Kernel, built: dict[str, Path]) -> None:
    assert set(built) == {CPU, CUDA}
    for path in built.values():
        assert list(path.glob("*.so"))
    assert held(kernel, "left") | held(kernel, "right") == {CPU, CUDA}
    assert not held(kernel, "left") & held(kernel, "right")


def test_a_third_machine_downloads_them(kernel: Kernel, built: dict[str, Path]) -> None:
    secret, public = kernel.fleet.keys("cache")
    cache = kernel.fleet.folder / "served"
    names = [f"path:{kernel.root}#redistributable.{name}" for name in built]
    where = f"file://{cache}?secret-key={secret}&compression=none"
    copied = kernel.fleet.nix("copy", "--to", where, "--no-write-lock-file", *kernel.inputs, *names)
    assert copied.returncode == 0, copied.stderr
    with served(cache) as address:
        third = (
            *("--store", str(kernel.store("third")), "--max-jobs", "0", "--builders", ""),
            *("--substituters", address, "--trusted-public-keys", public),
        )
        flake = ("--no-link", "--no-write-lock-file", *kernel.inputs)
        got = kernel.fleet.nix("build", *third, *flake, *names)
    assert got.returncode == 0, got.stderr
    assert held(kernel, "third") == {CPU, CUDA}
    for name, path in built.items():
        (there,) = (kernel.store("third") / "nix" / "store").glob(f"*-{name}")
        files = {file.name for file in path.iterdir() if file.is_file()}
        assert files == {file.name for file in there.iterdir() if file.is_file()}
        assert all((there / n).read_bytes() == (path / n).read_bytes() for n in files)
