"""The source that a variant names, its digest, and its signature, as the client sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

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
    bench.built("--backend", "cpu")
    return bench


def variant_of(bench: CommandProject) -> Path:
    (folder,) = [path for path in (bench.root / "build").iterdir() if path.is_dir()]
    return folder


def test_the_client_accepts_the_digest(relu: CommandProject) -> None:
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
    relu.kbuild("verify", "--trust-config", str(trust), *wanted)
    folder = variant_of(relu)
    script = VERIFIED.format(trust=str(trust), issuer=ISSUER, path=str(folder))
    assert relu.python(script).split() == ["Success"]
    assert relu.kbuild("check-builds", "--no-load").returncode == 0
    (folder / "metadata.json.sigstore").rename(tmp_path / "bundle")
    assert relu.python(script).split() == ["SignatureBundleMissing"]


def test_a_header_that_no_commit_holds(
    example: Callable[[str], CommandProject], relu: CommandProject
) -> None:
    """Found where the compiler says what it read."""
    bench = CommandProject(example("relu").root, relu.cache)
    source = bench.root / "relu_cpu" / "relu_cpu.cpp"
    source.write_text(INCLUDED + source.read_text())
    (bench.root / ".gitignore").write_text("local_only.h\n")
    bench.git("add", "-A")
    bench.git("commit", "-qm", "includes what is not there")
    (bench.root / "relu_cpu" / "local_only.h").write_text("#define LOCAL_ONLY 1\n")

    done = bench.kbuild("build", "--backend", "cpu")
    assert "`relu_cpu/local_only.h`, which is in no commit" in done.stderr
    metadata = json.loads((variant_of(bench) / "metadata.json").read_text())
    assert metadata["provenance"]["kernel"]["dirty"] is True
