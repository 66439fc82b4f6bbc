"""The YAML at the top of cards, read back as the Hub's client reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.publish.card.markdown import hub_license, with_front_matter

huggingface_hub = pytest.importorskip("huggingface_hub")
REST = "# Title\n"


def data(text: str) -> dict:
    return huggingface_hub.ModelCard(text).data.to_dict()


def fill(front: str, license_: str = "Apache-2.0") -> str:
    return with_front_matter(f"---\n{front}---\n{REST}", license_, "\n")


@pytest.mark.parametrize(
    ("front", "tags"),
    [
        ("", ["kernel"]),
        ("tags:\n", ["kernel"]),
        ("tags: # mine\n", ["kernel"]),
        ("tags:\n  - a\n  - b\n", ["a", "b", "kernel"]),
        ("tags:\n- a\n# note\nlanguage: en\n", ["a", "kernel"]),
        ("tags: [a, b]\n", ["a", "b", "kernel"]),
        ("tags: []\n", ["kernel"]),
        ('tags: ["kernel"] # note\n', ["kernel"]),
        ("tags:\n  - 'kernel'\n  - a\n", ["kernel", "a"]),
        ("tags: a\n", ["a", "kernel"]),
        ("tags: kernel\n", ["kernel"]),
    ],
)
def test_the_tag_is_added_to_what_is_there(front, tags):
    found = data(fill(front))["tags"]
    assert (found if isinstance(found, list) else [found]) == tags or "".join(found) == "kernel"


def test_other_lines_stay_as_they_are():
    front = "# a note\nlanguage:   en\nbase_model:\n  - org/model # why\nlicense: mit\nx: {a: 1}\n"
    text = fill(front)
    kept = [line for line in front.splitlines() if not line.startswith("license")]
    assert [line for line in text.splitlines() if line in kept] == kept
    assert data(text)["license"] == "apache-2.0"
    assert data(text)["base_model"] == ["org/model"]


@pytest.mark.parametrize(
    ("spdx", "keys"),
    [
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("GPL-3.0-or-later", {"license": "gpl-3.0"}),
        ("LGPL-2.1-only", {"license": "lgpl-2.1"}),
        ("BSD-3-Clause", {"license": "bsd-3-clause"}),
        (
            "MIT OR Apache-2.0",
            {"license": "other", "license_name": "mit-or-apache-2.0", "license_link": "LICENSE"},
        ),
        (
            "LicenseRef-Ours",
            {"license": "other", "license_name": "licenseref-ours", "license_link": "LICENSE"},
        ),
    ],
)
def test_licences_by_the_hubs_names(spdx, keys):
    assert hub_license(spdx) == keys
    assert data(with_front_matter(REST, spdx, "\n")).items() >= keys.items()


def test_windows_line_ends_and_byte_order_marks():
    text = with_front_matter("\ufeff---\r\nlanguage: en\r\n---\r\nText\r\n", "MIT", "\r\n")
    assert text.startswith("\ufeff---\r\nlanguage: en\r\n")
    assert text.count("\n") == text.count("\r\n")
    assert data(text.lstrip("\ufeff")) == {
        "language": "en",
        "library_name": "kernels",
        "license": "mit",
        "tags": ["kernel"],
    }


KEYS = st.sampled_from(["language", "datasets", "x-y", "pipeline_tag", "tags", "license"])
VALUES = st.one_of(
    st.lists(st.sampled_from(["en", "kernel", "a b", "c"]), min_size=1, max_size=3),
    st.sampled_from(["en", "kernel", "a b"]),
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_front_matter_is_what_the_hub_expects(given_keys):
    lines = []
    for key, value in given_keys.items():
        if isinstance(value, list):
            lines += [f"{key}:", *(f"  - {item}" for item in value)]
        else:
            lines.append(f"{key}: {value}")
    text = fill("".join(f"{line}\n" for line in lines))
    found = data(text)
    assert found["license"] == "apache-2.0"
    assert found["library_name"] == "kernels"
    assert fill(text.removeprefix("---\n").partition("---\n")[0]) == text
    if given_keys.get("tags") != "kernel":
        assert "kernel" in found["tags"]
    for key in given_keys.keys() - {"license", "tags"}:
        assert found[key] == given_keys[key]
