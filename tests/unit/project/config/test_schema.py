"""The JSON Schema and the reference page say what the models and rules say."""

from __future__ import annotations

from pathlib import Path

from kbuild.plan.project import backend_catalog
from kbuild.project.config.file_model import build_file_type
from kbuild.project.config.schema import field_descriptions, json_schema, models_in

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "build-toml.md"


def test_kernels_are_told_apart_by_their_backend_and_language():
    kernel = json_schema(backend_catalog())["properties"]["kernel"]["additionalProperties"]
    names = {part["$ref"].rpartition("/")[2] for part in kernel["oneOf"]}
    backends = {"CpuSection", "CudaSection", "MetalSection", "RocmSection", "XpuSection"}
    assert names == {*backends, "LanguageSection"}


def test_names_and_choices():
    definitions = json_schema(backend_catalog())["$defs"]
    general = definitions["General"]["properties"]
    assert general["name"]["pattern"] == "^(?:[a-z][-a-z0-9]{0,94}[a-z0-9])$"
    assert "cuda" in general["backends"]["items"]["enum"]
    assert general["edition"]["const"] == 5
    assert "edition" in definitions["General"]["required"]
    assert "cutlass_4_4" in definitions["CudaSection"]["properties"]["depends"]["items"]["enum"]
    assert general["python-depends"]["items"]["enum"] == ["einops", "helion", "tvm-ffi"]


def test_keys_are_kebab_case_and_older_spellings_are_deprecated():
    for name, definition in json_schema(backend_catalog())["$defs"].items():
        for key, entry in definition["properties"].items():
            assert "_" not in key or entry.get("deprecated"), f"{name}.{key}"


def test_every_key_is_described():
    for name, definition in json_schema(backend_catalog())["$defs"].items():
        for key, entry in definition["properties"].items():
            assert entry.get("description"), f"{name}.{key}"


def test_every_scalar_field_has_a_docstring_at_its_source():
    tables = {
        "hub",
        "general",
        "torch",
        "torch_noarch",
        "tvm_ffi",
        *backend_catalog().general_sections,
    }
    for model in models_in(build_file_type(backend_catalog())):
        own = {name for name, field in model.model_fields.items() if not field.description}
        missing = own - field_descriptions(model).keys() - tables
        assert not missing, model


def test_the_reference_page_names_every_key():
    page = PAGE.read_text()
    for definition in json_schema(backend_catalog())["$defs"].values():
        assert all(f"`{key}`" in page for key in definition["properties"])
