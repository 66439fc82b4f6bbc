"""From two states of a branch to commits."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kbuild.publish.hub.changes import conflicting_paths, split_into_commits, version_changes
from kbuild.publish.hub.layout import UploadLayout, variant_of
from kbuild.publish.hub.repository import RemoteFile, RemoteFiles, read_upload_file

CPU, CUDA, XPU = "torch-cpu", "torch-cuda", "torch-xpu"


def layout_of(files: Mapping[str, bytes], card: bytes | None = None) -> UploadLayout:
    """A layout whose variants are those of the paths."""
    found: dict[str, list[str]] = {}
    for path in sorted(files):
        found.setdefault(variant_of(path), []).append(path)
    rest = found.pop("", None)
    variants = {
        name: tuple(read_upload_file(path, files[path]) for path in paths)
        for name, paths in found.items()
    }
    benchmarks = tuple(read_upload_file(path, files[path]) for path in rest) if rest else None
    shown = (read_upload_file("README.md", card),) if card is not None else ()
    return UploadLayout(variants, benchmarks, shown)


def tree_of(files: Mapping[str, bytes]) -> RemoteFiles:
    entries = (read_upload_file(path, data) for path, data in files.items())
    return {e.path: RemoteFile(e.size, e.blob) for e in entries}


def files_of(*names: str, content: bytes = b"x") -> dict[str, bytes]:
    paths = [f"build/{n}/{f}" for n in names for f in ("__init__.py", "_ops.py", "metadata.json")]
    return dict.fromkeys(paths, content)


class TestChanges:
    def test_only_what_differs(self) -> None:
        layout = layout_of({**files_of(CPU), f"build/{CPU}/new.py": b"n"})
        remote = {**files_of(CPU), f"build/{CPU}/_ops.py": b"old", f"build/{CPU}/gone.py": b"g"}
        found = version_changes(layout, tree_of(remote), is_new=False)
        assert [entry.path for entry in found.adds] == [
            f"build/{CPU}/_ops.py",
            f"build/{CPU}/new.py",
        ]
        assert found.replaced == {f"build/{CPU}/_ops.py"}
        assert found.deletes == (f"build/{CPU}/gone.py",)
        assert len(found.unchanged) == 2
        assert found.size == 2
        assert not version_changes(layout_of(remote), tree_of(remote), is_new=False)

    def test_a_new_branch_gets_the_card_one_that_exists_does_not(self) -> None:
        layout = layout_of(files_of(CPU), card=b"# card")
        new = version_changes(layout, {}, is_new=True)
        assert "README.md" in [entry.path for entry in new.adds]
        assert "README.md" not in [e.path for e in version_changes(layout, {}, is_new=False).adds]


class TestBatches:
    def test_a_variant_is_never_spread(self) -> None:
        wanted = version_changes(layout_of(files_of(CPU, CUDA, XPU)), {}, is_new=True)
        for limit in range(1, 12):
            for batch in split_into_commits(wanted, limit):
                names = {variant_of(entry.path) for entry in batch.adds}
                own = [e.path for e in batch.adds]
                assert all(len([p for p in own if variant_of(p) == n]) == 3 for n in names)

    def test_adds_before_what_only_goes_and_the_card_last(self) -> None:
        layout = layout_of({**files_of(CPU), "benchmarks/benchmark.py": b"b"}, card=b"#")
        wanted = version_changes(layout, tree_of(files_of(CUDA)), is_new=True)
        parts = split_into_commits(wanted, limit=1)
        told = [[e.path for e in part.adds] + list(part.deletes) for part in parts]
        assert [len(part) for part in told] == [3, 1, 3, 1]
        assert told[1] == ["benchmarks/benchmark.py"]
        assert all(path.startswith(f"build/{CUDA}/") for path in told[2])
        assert told[3] == ["README.md"]

    @given(
        st.dictionaries(
            st.sampled_from([f"build/v{n}/f{m}" for n in range(4) for m in range(4)] + ["other"]),
            st.sampled_from([b"a", b"b"]),
        ),
        st.dictionaries(
            st.sampled_from([f"build/v{n}/f{m}" for n in range(4) for m in range(4)] + ["other"]),
            st.sampled_from([b"a", b"b"]),
        ),
        st.integers(1, 9),
        st.booleans(),
    )
    def test_after_all_commits_the_branch_is_as_wanted(
        self, wanted: dict[str, bytes], remote: dict[str, bytes], limit: int, is_new: bool
    ) -> None:
        wanted.pop("other", None)
        layout, tree = layout_of(wanted), dict(tree_of(remote))
        found = version_changes(layout, tree, is_new=is_new)
        for batch in split_into_commits(found, limit):
            tree |= tree_of({e.path: e.source for e in batch.adds if isinstance(e.source, bytes)})
            for path in batch.deletes:
                del tree[path]
        assert not version_changes(layout, tree, is_new=is_new)
        for path, entry in {e.path: e for e in layout.entries}.items():
            assert entry.is_in(tree[path])
        kept = {p for p in remote if variant_of(p) not in layout.variants}
        assert is_new or kept <= {*tree}


class TestOvertaken:
    LAYOUT = layout_of({**files_of(CPU), "benchmarks/benchmark.py": b"b"})

    def test_the_same_variant_with_another_content_does(self) -> None:
        now = tree_of(files_of(CPU, content=b"theirs"))
        assert len(conflicting_paths(self.LAYOUT, {}, now)) == 3
        extra = tree_of({f"build/{CPU}/theirs.py": b"t"})
        assert conflicting_paths(self.LAYOUT, {}, extra) == (f"build/{CPU}/theirs.py",)
