"""More than one machine: remote builders, and binary caches with keys."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.nix.fleet import (
    SYSTEM,
    Fleet,
    fleet,
    served,
    span,
    ssh_machine,
    sshd_program,
    what_is_missing,
)

pytestmark = pytest.mark.nix


@pytest.fixture(scope="module", autouse=True)
def nix() -> None:
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)


@pytest.fixture
def machines() -> Iterator[Fleet]:
    with fleet() as made:
        yield made


def builders(machines: Fleet, *names: str) -> tuple[str, ...]:
    """Options of `nix build` that leave all work to chroot stores of these names, one job each."""
    each = " ; ".join(f"{machines.folder / name} {SYSTEM} - 1 1" for name in names)
    return ("--max-jobs", "0", "--builders", each)


class TestRemoteBuilders:
    def test_two_machines_build_at_once(self, machines: Fleet) -> None:
        paths, _ = machines.build("one", "two", options=builders(machines, "left", "right"))
        spans = [span(machines.real("own", path)) for path in paths]
        assert max(began for began, _ in spans) < min(ended for _, ended in spans)
        held = [
            {path for path in paths if machines.holds(name, path)} for name in ("left", "right")
        ]
        assert sorted(map(len, held)) == [1, 1]
        assert held[0] | held[1] == set(paths)

    def test_without_a_fitting_machine_nothing_is_built(self, machines: Fleet) -> None:
        other = f"{machines.folder / 'left'} armv7l-linux - 1 1"
        options = ("--max-jobs", "0", "--builders", other)
        _, said = machines.build("one", expect=1, options=options)
        assert "Failed to find a machine for remote build" in said
        assert not (machines.folder / "left").exists()

    def test_over_ssh(self, machines: Fleet) -> None:
        if sshd_program() is None or shutil.which("ssh-keygen") is None:
            pytest.skip("needs sshd: apt install openssh-server")
        store = machines.folder / "far"
        far = f"ssh-ng://machine?remote-store={store} {SYSTEM} - 1 1"
        near = f"{machines.folder / 'near'} {SYSTEM} - 1 1"
        with ssh_machine(machines) as options:
            both = ("--max-jobs", "0", "--builders", f"{far} ; {near}")
            paths, _ = replace(machines, ssh=options).build("one", "two", options=both)
        spans = [span(machines.real("own", path)) for path in paths]
        assert max(began for began, _ in spans) < min(ended for _, ended in spans)
        assert sorted(machines.holds("far", path) for path in paths) == [False, True]


class TestBinaryCache:
    """What one machine built is a download for another, if it trusts the key."""

    @pytest.fixture
    def key(self, machines: Fleet) -> tuple[Path, str]:
        return machines.keys("builder")

    @pytest.fixture
    def cache(self, machines: Fleet, key: tuple[Path, str]) -> Path:
        """A folder that holds what `quick` is built to, signed."""
        folder = machines.folder / "served"
        (path,), _ = machines.build("quick")
        self.put(machines, path, f"file://{folder}?secret-key={key[0]}&compression=none")
        return folder

    def put(self, machines: Fleet, path: str, where: str) -> None:
        own = str(machines.folder / "own")
        done = machines.nix("copy", "--from", own, "--to", where, path)
        assert done.returncode == 0, done.stderr

    def get(self, machines: Fleet, cache: str, key: str, expect: int = 0) -> str:
        """What Nix says when an empty store may fetch, and may not build."""
        _, said = machines.build(
            "quick",
            store="empty",
            expect=expect,
            options=(
                *("--max-jobs", "0", "--builders", "", "--substituters", cache),
                *("--trusted-public-keys", key),
            ),
        )
        return said

    def test_over_http(self, machines: Fleet, cache: Path, key: tuple[Path, str]) -> None:
        with served(cache) as address:
            said = self.get(machines, address, key[1])
        assert f"from '{address}'" in said
        (path,), _ = machines.build("quick")
        assert machines.real("empty", path).read_bytes() == machines.real("own", path).read_bytes()

    def test_another_key_is_refused(self, machines: Fleet, cache: Path) -> None:
        _, other = machines.keys("stranger")
        with served(cache) as address:
            said = self.get(machines, address, other, expect=1)
        assert "not signed by any of the keys" in said
        assert not list((machines.folder / "empty" / "nix" / "store").glob("*-kbuild-fleet-quick"))

    def test_without_a_signature_it_is_refused(
        self, machines: Fleet, key: tuple[Path, str]
    ) -> None:
        (path,), _ = machines.build("quick")
        unsigned = f"file://{machines.folder}/unsigned"
        self.put(machines, path, unsigned)
        assert "not signed by any of the keys" in self.get(machines, unsigned, key[1], expect=1)

    def test_changed_bytes_are_refused(
        self, machines: Fleet, cache: Path, key: tuple[Path, str]
    ) -> None:
        """A signature is over the content, so a cache need not be trusted itself."""
        (archive,) = (cache / "nar").iterdir()
        data = archive.read_bytes()
        (path,), _ = machines.build("quick")
        began = machines.real("own", path).read_bytes().partition(b"\n")[0]
        assert data.count(began) == 1
        archive.write_bytes(data.replace(began, began[::-1]))
        with served(cache) as address:
            said = self.get(machines, address, key[1], expect=1)
        assert "hash mismatch" in said
