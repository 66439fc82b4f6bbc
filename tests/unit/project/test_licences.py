"""Licences of others' code in a kernel: found in its metadata, accepted or not, on its card."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.plan.metadata import Builder, Metadata, Provenance, UsedToolchain
from kbuild.project.licences import accepted_licences, metadata_entry, spdx_doubt
from kbuild.publish.hub.candidate import UploadCandidate, unaccepted_licences

NAME = "nvidia-cutlass-dsl"
PART = "the static runtime of nvidia-cutlass-dsl 4.8.1"


def candidate(name: str, *entries: tuple[str, str]) -> UploadCandidate:
    used = UsedToolchain("wheels", {"c++": "12", "license": "other words", **dict(entries)})
    made = Provenance(Builder("0.1.0", toolchain=used))
    return UploadCandidate(Path(name), Metadata("k", "_k", 1, "MIT", "cuda", provenance=made))


@pytest.mark.parametrize(
    ("given", "environ", "names"),
    [
        ((), {}, set()),
        ((NAME,), {}, {NAME}),
        ((), {"KBUILD_ACCEPT_LICENSE": f"nvidia-cuda-eula, {NAME}"}, {"nvidia-cuda-eula", NAME}),
        ((), {"KBUILD_ACCEPT_LICENSE": " , "}, set()),
    ],
)
def test_accepted(given, environ, names):
    assert accepted_licences(given, environ) == names


def test_one_reason_for_all_variants():
    several = [candidate(name, (metadata_entry(NAME), PART)) for name in ("a", "b", "c")]
    (reason,) = unaccepted_licences([candidate("plain"), *several], frozenset({"other"}))
    assert reason.message == f"{PART} is linked into a and 2 more: its terms bind the publisher"
    assert "--accept-license nvidia-cutlass-dsl" in reason.hint
    assert "KBUILD_ACCEPT_LICENSE=nvidia-cutlass-dsl" in reason.hint
    assert "https://" in reason.hint
    assert list(unaccepted_licences(several, frozenset({NAME}))) == []
    assert list(unaccepted_licences([candidate("plain")], frozenset())) == []


def test_a_licence_that_nobody_knows_is_asked_for_as_well():
    (reason,) = unaccepted_licences(
        [candidate("a", (metadata_entry("own"), "a part"))], frozenset()
    )
    assert "read own; then give --accept-license own" in reason.hint


@pytest.mark.parametrize(
    "text",
    [
        *("MIT", "apache-2.0", "bsd-3-clause", "GPL-3.0-only", "Apache-2.0 OR MIT"),
        *("mit and Apache-2.0", "Apache-2.0 WITH LLVM-exception", "LicenseRef-NVIDIA"),
    ],
)
def test_spdx_expressions_in_any_case(text):
    assert spdx_doubt(text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("Apache 2.0", "Apache-2.0"), ("Apache License, Version 2.0", "Apache-2.0")),
        *(("BSD", "BSD-3-Clause"), ("GPLv3", "GPL-3.0-only"), ("MIT License", "MIT")),
    ],
)
def test_usual_licences_by_other_names(text, meant):
    message, hint = spdx_doubt(text)
    assert message == f"`{text}` is not an SPDX expression"
    assert f"did you mean `{meant}`?" in hint
    assert spdx_doubt(meant) is None


@pytest.mark.parametrize("text", ["other", "(" * 300, '"', "MIT AND", "a\nb", "x" * 5000])
def test_what_is_no_licence_of_the_list(text):
    _, hint = spdx_doubt(text)
    assert "`LicenseRef-`" in hint
