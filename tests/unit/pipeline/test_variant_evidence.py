"""Provenance of a variant whose sources were edited since it was built."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.pipeline.variant import write_evidence
from kbuild.system.cache import BUILD_STATE, Cache
from kbuild.system.errors import BuildError
from kbuild.system.file_state import identify
from kbuild.system.record import Record
from kbuild.system.workspace import Workspace

VARIANT = "torch-cuda"


@pytest.mark.parametrize("edited", [False, True])
def test_nothing_is_told_about_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, edited: bool
) -> None:
    source, written = tmp_path / "a.cpp", tmp_path / "torch-cuda.intoto.json"
    source.write_text("int a;\n")
    record = Record({"plan": "", "output": ""}, {"a.cpp": identify(source)}, "kbuild")
    record.write(Cache(Workspace(tmp_path, VARIANT).root, BUILD_STATE))

    def write(*_: object) -> tuple[Path, ...]:
        written.touch()
        if edited:
            source.write_text("int b;\n")
        return (written,)

    monkeypatch.setattr("kbuild.pipeline.provenance.attestation.Attestation.write", write)
    monkeypatch.setattr("kbuild.pipeline.variant.recorded_options", lambda _: {})
    site: Any = SimpleNamespace(
        options=SimpleNamespace(provenance=True),
        project=SimpleNamespace(root=tmp_path),
        services=SimpleNamespace(cache=None, runner=None),
        target_of=lambda _: tmp_path / "build" / VARIANT,
    )
    made: Any = SimpleNamespace(variant=VARIANT, inputs=("a.cpp",))
    if not edited:
        assert write_evidence(site, made, None) == (written,)  # type: ignore[arg-type]
        return
    with pytest.raises(BuildError, match="one of its sources has changed since"):
        write_evidence(site, made, None)  # type: ignore[arg-type]
    assert not written.exists()
