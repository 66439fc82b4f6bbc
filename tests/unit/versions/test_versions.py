"""Versions from different places, and what differs between two."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from kbuild.errors import UsageError
from kbuild.hub.repository import RemoteFile
from kbuild.mirror.layout import VersionPaths
from kbuild.runtime.processes import ProcessResult
from kbuild.versions.compatibility import VariantCompatibility, check_compatibility
from kbuild.versions.difference import VersionDifference, compare_versions, difference_lines
from kbuild.versions.sources import (
    BuiltVersions,
    KernelVersion,
    MirrorVersions,
    has_same_content,
    sort_versions,
)
from tests.support.mirrors import CPU, CUDA, NOON, PLACE, Room, built, layout, metadata, room

API = "__all__ = ['relu']\ndef relu(x):\n    return x\n"


def version(root: Path, variants: dict[str, dict[str, str]], name: str = "v1") -> KernelVersion:
    files = {v: {"__init__.py": API, **own} for v, own in variants.items()}
    source = BuiltVersions(built(root, files), None, str(root))
    return source.version(source.names()[0]) if name == "v1" else source.version(name)


def diff(old: KernelVersion, new: KernelVersion) -> VersionDifference:
    return compare_versions(old, new, titles=("old", "new"))


class TestSources:
    def test_built(self, tmp_path: Path) -> None:
        found = version(tmp_path, {CPU: {"a.so": "12345"}})
        assert (found.kernel, found.name, found.variants) == ("relu", "v1", (CPU,))
        assert found.size() == len(API) + 5 + len(metadata())
        assert found.dates()[CPU].tzinfo == timezone.utc
        assert json.loads(found.read(f"build/{CPU}/metadata.json"))["license"] == "MIT"

    def test_built_of_two_versions(self, tmp_path: Path) -> None:
        files = {CPU: {}, CUDA: {"metadata.json": metadata(2)}}
        with pytest.raises(UsageError, match="variants of versions 1 and 2"):
            BuiltVersions(built(tmp_path, files), None, "x").names()

    def test_mirror(self, tmp_path: Path) -> None:
        found = self.mirror(tmp_path)
        source = MirrorVersions(found.store, PLACE.repo, retry())
        assert source.names() == ("v1", "v2", "v10")
        assert source.version("v1").variants == (CPU,)
        assert source.version("v1").dates() == {CPU: NOON}
        assert source.has("v2")
        assert not source.has("v3")
        with pytest.raises(UsageError, match="no version `v3`") as raised:
            source.version("v3")
        assert raised.value.hint == "there are: v1, v2, v10"

    def test_the_same_wherever_it_is(self, tmp_path: Path) -> None:
        found = self.mirror(tmp_path)
        there = MirrorVersions(found.store, PLACE.repo, retry()).version("v1")
        here = BuiltVersions(built(tmp_path, {CPU: {"__init__.py": API}}), None, "x").version("v1")
        assert not diff(there, here)

    def mirror(self, tmp_path: Path) -> Room:
        found = room("folder", tmp_path)
        for name in ("v10", "v2", "v1"):
            found.publish(
                layout(tmp_path, {CPU: {"__init__.py": API}}), VersionPaths(PLACE.repo, name)
            )
        return found


def retry() -> Any:
    from kbuild.hub.repository import RetryPolicy

    return RetryPolicy(tries=1)


def test_order() -> None:
    assert sort_versions(["v10", "main", "v9", "v1"]) == ("main", "v1", "v9", "v10")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (RemoteFile(1, "pointer", "s"), RemoteFile(1, "blob", "s"), True),
        (RemoteFile(1, "pointer", "s"), RemoteFile(1, "pointer", "t"), False),
        (RemoteFile(1, "blob"), RemoteFile(1, "blob", "s"), True),
        (RemoteFile(1, "blob"), RemoteFile(1, "other", "s"), False),
        (None, RemoteFile(1, "blob"), False),
    ],
)
def test_contents_are_compared_by_what_both_know(
    one: RemoteFile | None, other: RemoteFile | None, same: bool
) -> None:
    assert has_same_content(one, other) is same
    assert has_same_content(other, one) is same


class TestDifferences:
    def test_none(self, tmp_path: Path) -> None:
        told = diff(version(tmp_path / "1", {CPU: {}}), version(tmp_path / "2", {CPU: {}}))
        assert not told
        assert list(difference_lines(told)) == ["old -> new", "  no difference"]
        assert told.to_json()["different"] is False

    def test_variants(self, tmp_path: Path) -> None:
        old = version(tmp_path / "1", {CPU: {"a.so": "x" * 1000}, "torch-cuda": {}, CUDA: {}})
        new = version(tmp_path / "2", {CPU: {"a.so": "x" * 1500}, "torch-xpu": {}, CUDA: {}})
        text = "\n".join(difference_lines(diff(old, new)))
        assert f"    ~ {CPU}, 1.1 KiB -> 1.6 KiB (+43.1 %)\n" in text
        assert f"        ~ build/{CPU}/a.so, 1000 B -> 1.5 KiB (+50.0 %)" in text
        assert f"    - torch-cuda, {old.size('torch-cuda')} B\n" in text
        assert "    + torch-xpu, " in text
        assert text.endswith("    = 1 variant unchanged")

    def test_what_variants_say_of_themselves(self, tmp_path: Path) -> None:
        made = {"kernel-builder": {"version": "1", "name": "kbuild"}}
        made["kernel-builder"]["toolchain"] = {"source": "wheels", "versions": {"cuda": "13.0"}}  # type: ignore[assignment]
        later = json.loads(json.dumps(made).replace("13.0", "13.2"))
        gpu = {"type": "cuda", "archs": ["8.0"]}
        more = {"type": "cuda", "archs": ["8.0", "9.0"]}
        old = {"metadata.json": metadata(backend=gpu, provenance=made)}
        new = {"metadata.json": metadata(backend=more, provenance=later, license="BSD")}
        told = diff(version(tmp_path / "1", {CUDA: old}), version(tmp_path / "2", {CUDA: new}))
        lines = [line.strip() for line in difference_lines(told)]
        assert "licence: MIT -> BSD" in lines
        assert "archs: 8.0 -> 8.0 9.0" in lines
        assert "toolchain cuda: 13.0 -> 13.2" in lines

    def test_what_all_variants_share_is_said_once(self, tmp_path: Path) -> None:
        new = {"metadata.json": metadata(license="BSD")}
        variants = [{CPU: own, CUDA: own} for own in ({}, new)]
        told = diff(version(tmp_path / "1", variants[0]), version(tmp_path / "2", variants[1]))
        lines = [line.strip() for line in difference_lines(told)]
        assert lines.count("licence: MIT -> BSD") == 0
        assert lines.count("in all changed ones: licence: MIT -> BSD") == 1

    def test_only_some_variants(self, tmp_path: Path) -> None:
        old = version(tmp_path / "1", {CPU: {"a": "x"}, CUDA: {}})
        new = version(tmp_path / "2", {CPU: {"a": "y"}, CUDA: {}})
        assert diff(old, new)
        assert not diff(old.only(["*cu130*"]), new.only(["*cu130*"]))


class TestInterface:
    def told(self, tmp_path: Path, code: str, *, number: int = 1, **more: Any) -> VersionDifference:
        old = version(tmp_path / "1", more.get("old", {CPU: {}}))
        own = {"__init__.py": code, "metadata.json": metadata(number)}
        return diff(old, version(tmp_path / "2", {CPU: own}))

    def test_a_break_asks_for_a_new_version(self, tmp_path: Path) -> None:
        told = self.told(tmp_path, "__all__ = []\n")
        assert told.bump.state == "needed"
        assert told.to_json()["version"]["at_least"] == 2
        lines = [line.strip() for line in difference_lines(told)]
        assert "- `relu` is gone (breaks callers)" in lines
        assert (
            "the version must be raised to at least 2: `relu` is gone, which breaks callers"
            in lines
        )

    def test_a_break_with_a_new_version(self, tmp_path: Path) -> None:
        told = self.told(tmp_path, "__all__ = []\n", number=2)
        assert (told.bump.state, told.bump.old, told.bump.new) == ("done", 1, 2)

    def test_something_new_asks_for_nothing(self, tmp_path: Path) -> None:
        told = self.told(tmp_path, f"{API}__all__ += ['gelu']\ndef gelu(x): ...\n")
        assert told.bump.state == "none"
        assert [str(change) for change in told.interface] == ["`gelu` is new"]

    def test_unless_a_variant_would_lack_it(self, tmp_path: Path) -> None:
        more = f"{API}__all__ += ['gelu']\ndef gelu(x): ...\n"
        told = self.told(tmp_path, more, old={CPU: {}, CUDA: {}})
        assert told.bump.state == "needed"
        assert f"{CUDA} would stay without it" in told.bump.reason

    def test_a_package_that_cannot_be_read(self, tmp_path: Path) -> None:
        told = self.told(tmp_path, "def broken(:\n")
        assert told.unread.startswith("relu@v1: ")
        assert any("not compared" in line for line in difference_lines(told))


class Says:
    """A runner whose probes all say the same."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def run(self, argv: Any, *, stdin: str, inherit: Sequence[int], **_: Any) -> ProcessResult:
        self.argv = tuple(map(str, argv))
        said = f'={{"started": true}}\n>{stdin.strip()} {self.answer}\n={{"ended": 0}}\n'
        os.write(inherit[0], said.encode())
        return ProcessResult(self.argv, 0, "", 0.0)


class TestFitting:
    def test_the_client_decides(self) -> None:
        told = [
            {"chosen": CPU, "refused": {CUDA: "no CUDA"}},
            {"chosen": None, "refused": {CUDA: "no CUDA"}},
        ]
        runner = Says(json.dumps({"state": "ok", "reason": "", "groups": told}))
        versions = [(CPU, CUDA, "torch-cpu"), (CUDA,)]
        first, second = check_compatibility(versions, Path("python"), runner)  # type: ignore[arg-type]
        assert runner.argv[runner.argv.index("fit_probe") + 1 :] == (
            CPU,
            CUDA,
            "torch-cpu",
            "--",
            CUDA,
        )
        words = [first.label(name) for name in (CPU, CUDA, "torch-cpu")]
        assert words == ["loaded here", "no CUDA", "fits"]
        assert second.chosen is None

    def test_no_client(self) -> None:
        runner = Says(json.dumps({"state": "absent", "reason": "No module named 'kernels'"}))
        (found,) = check_compatibility([(CPU,)], Path("python"), runner)  # type: ignore[arg-type]
        assert found.label(CPU) == "?"
        assert "No module named" in found.unknown

    def test_no_variants_no_question(self) -> None:
        assert check_compatibility([(), ()], Path("python"), Says("")) == (
            VariantCompatibility(),
            VariantCompatibility(),
        )  # type: ignore[arg-type]

    def test_the_probe_answers_by_group(self) -> None:
        from kbuild.checks.probes.fit_probe import groups_of

        assert groups_of(["a", "b", "--", "--", "c"]) == [["a", "b"], [], ["c"]]
