"""Where built variants say they come from, against what went in; the client on what is signed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_project import CommandProject

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

LISTED = """
from pathlib import Path
from kernels.variants import get_variants_local
print(*(variant.variant_str for variant in get_variants_local(Path({path!r}))))
"""
METADATA = """
from pathlib import Path
from kernels._rust import Digest, Metadata
metadata = Metadata.from_bytes(Path({path!r}, "metadata.json").read_bytes())
metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, Path({path!r})))
print("valid")
"""
VERIFIED = """
from pathlib import Path
from kernels.verify import verify_variant
from sigstore.models import ClientTrustConfig
from sigstore.verify import Verifier, policy
root = ClientTrustConfig.from_json(Path({trust!r}).read_text()).trusted_root
Verifier.production = classmethod(lambda cls: cls(trusted_root=root))
wanted = [policy.Identity(identity="me@example.org", issuer={issuer!r})]
print(type(verify_variant(Path({path!r}), wanted)).__name__)
"""
INCLUDED = '#include "local_only.h"\n'


@pytest.fixture(scope="module")
def relu(example: Callable[[str], CommandProject]) -> CommandProject:
    bench = example("relu", kept=True)
    bench.built("--backend", "cpu", "--provenance")
    return bench


def variant_of(bench: CommandProject) -> Path:
    (folder,) = [path for path in (bench.root / "build").iterdir() if path.is_dir()]
    return folder


def beside(bench: CommandProject, suffix: str) -> Path:
    folder = variant_of(bench)
    return folder.with_name(folder.name + suffix)


def statement(bench: CommandProject) -> dict[str, Any]:
    return json.loads(beside(bench, ".intoto.json").read_text())


def dependencies(bench: CommandProject) -> dict[str, dict[str, Any]]:
    listed = statement(bench)["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {entry["name"]: entry for entry in listed}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.quick
def test_the_subjects_are_the_files(relu: CommandProject) -> None:
    folder = variant_of(relu)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {entry["name"]: entry["digest"]["sha256"] for entry in statement(relu)["subject"]} == {
        f"{folder.name}/{path.relative_to(folder).as_posix()}": sha256(path) for path in files
    }


@pytest.mark.quick
def test_the_source_is_the_commit(relu: CommandProject) -> None:
    metadata = json.loads((variant_of(relu) / "metadata.json").read_text())
    commit = metadata["provenance"]["kernel"]["commit"]
    found = dependencies(relu)
    assert found["source"]["digest"] == {"gitCommit": commit}
    for path in ("build.toml", "torch-ext/torch_binding.cpp", "relu_cpu/relu_cpu.cpp"):
        assert found[f"source/{path}"]["digest"]["sha256"] == sha256(relu.root / path)


def test_the_toolchain_is_the_one_that_built(relu: CommandProject) -> None:
    import torch

    found = dependencies(relu)
    assert found["torch"]["annotations"]["version"] == torch.__version__
    assert "c++" in found["compiler of CXX"]["annotations"]["version"].lower()
    assert {"cmake", "ninja", "python headers"} <= set(found)


def test_no_path_and_no_host(relu: CommandProject) -> None:
    import platform

    host = rf"\b{re.escape(platform.node())}\b"
    for suffix in (".intoto.json", ".cdx.json"):
        text = beside(relu, suffix).read_text()
        assert not re.search(rf"/(tmp|usr|home|root|opt|Users)/|{host}", text)
        assert str(relu.root.parent) not in text


def test_the_list_is_named_by_the_statement(relu: CommandProject) -> None:
    (listed,) = statement(relu)["predicate"]["runDetails"]["byproducts"]
    assert listed["digest"]["sha256"] == sha256(beside(relu, ".cdx.json"))


def test_the_same_from_another_folder(relu: CommandProject, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere" / "relu"
    left = shutil.ignore_patterns("build", ".kbuild")
    shutil.copytree(relu.root, root, ignore=left)
    other = CommandProject(root, relu.cache)
    other.built("--backend", "cpu", "--provenance")
    for suffix in (".intoto.json", ".cdx.json"):
        assert beside(other, suffix).read_bytes() == beside(relu, suffix).read_bytes()


def test_it_can_be_asked_for_later(relu: CommandProject) -> None:
    first = beside(relu, ".intoto.json").read_bytes()
    beside(relu, ".intoto.json").unlink()
    entry = relu.built("--backend", "cpu", "--provenance")
    assert entry["status"] == "up-to-date"
    assert beside(relu, ".intoto.json").read_bytes() == first
    assert entry["provenance"] == [
        str(beside(relu, ".intoto.json")),
        str(beside(relu, ".cdx.json")),
    ]


def test_the_client_sees_the_variant_alone(relu: CommandProject) -> None:
    listed = relu.python(LISTED.format(path=str(relu.root / "build")))
    assert listed.split() == [variant_of(relu).name]
    assert "valid" in relu.python(METADATA.format(path=str(variant_of(relu))))


def test_the_client_accepts_what_is_signed(relu: CommandProject, tmp_path: Path) -> None:
    pytest.importorskip("sigstore")
    from tests.support.sigstore_server import ISSUER, LocalSigstore, served, token

    trust = tmp_path / "trust.json"
    with served(LocalSigstore()) as sigstore:
        trust.write_text(sigstore.trust_config())
        raw = token("me@example.org")
        relu.kbuild("sign", "--trust-config", str(trust), "--identity-token", raw)
    wanted = ("--identity", "me@example.org", "--issuer", ISSUER)
    answer = relu.kbuild("verify", "--trust-config", str(trust), *wanted, "--json")
    assert json.loads(answer.stdout)[0]["provenance"] == "signed"
    folder = variant_of(relu)
    script = VERIFIED.format(trust=str(trust), issuer=ISSUER, path=str(folder))
    assert relu.python(script).split() == ["Success"]
    assert relu.kbuild("check-builds", "--no-load").returncode == 0
    (folder / "metadata.json.sigstore").rename(tmp_path / "bundle")
    assert relu.python(script).split() == ["SignatureBundleMissing"]


def test_a_header_that_no_commit_holds(
    example: Callable[[str], CommandProject], relu: CommandProject
) -> None:
    """Found where the compiler says what it read; an older build's statement does not stay."""
    bench = CommandProject(example("relu").root, relu.cache)
    bench.built("--backend", "cpu", "--provenance")
    source = bench.root / "relu_cpu" / "relu_cpu.cpp"
    source.write_text(INCLUDED + source.read_text())
    (bench.root / ".gitignore").write_text("local_only.h\n")
    bench.git("add", "-A")
    bench.git("commit", "-qm", "includes what is not there")
    (bench.root / "relu_cpu" / "local_only.h").write_text("#define LOCAL_ONLY 1\n")

    done = bench.kbuild("build", "--backend", "cpu")
    assert "`relu_cpu/local_only.h`, which is in no commit" in done.stderr
    assert re.search(r"removed .*\.intoto\.json.* of an older build", done.stderr)
    assert not beside(bench, ".intoto.json").exists()
    metadata = json.loads((variant_of(bench) / "metadata.json").read_text())
    assert metadata["provenance"]["kernel"]["dirty"] is True
    bench.built("--backend", "cpu", "--provenance")
    told = dependencies(bench)["source"]["annotations"]
    assert told == {"dirty": True, "notInTheCommit": ["relu_cpu/local_only.h"]}
