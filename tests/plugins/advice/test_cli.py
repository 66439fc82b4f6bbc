"""`kbuild abi-advice`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.sources.cxx import cxx_tokens

EXAMPLES = Path(__file__).parents[3] / "examples"
RELU, STABLE, NOARCH = (EXAMPLES / f"relu{tail}" for tail in ("", "-stable-abi", "-noarch"))


@pytest.fixture
def migrated(here):
    """relu-stable-abi's sources in a project that does not say `stable-abi` yet."""
    folder = here / "kernel"
    for source in STABLE.rglob("*"):
        if source.suffix in {".cpp", ".h", ".cu", ".toml"}:
            target = folder / source.relative_to(STABLE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.read_text())
    (folder / "torch-ext/relu_stable_abi").mkdir()
    (folder / "torch-ext/relu_stable_abi/__init__.py").write_text("")
    return folder


def rewrite(folder, old, new):
    path = folder / "build.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_relu(kbuild):
    answer = kbuild("abi-advice", RELU)
    assert (answer.code, answer.err) == (0, "")
    assert "47:9 53:9" in answer.out
    assert "torch::stable::accelerator::DeviceGuard" in answer.out
    assert "only for cuda, rocm" in answer.out
    last = answer.out.splitlines()[-5:]
    assert [line.partition(":")[0] for line in last] == ["cpu", "cuda", "rocm", "xpu", "metal"]
    assert "3 files" in last[1]
    assert "a stable replacement from Torch 2.12 on (at::Tag::pt2_compliant_tag)" in last[1]
    assert last[1].endswith("at::assert_no_partial_overlap")


def test_one_backend(kbuild):
    out = kbuild("abi-advice", RELU, "--backend", "cpu").out
    assert "relu_cpu.cpp" in out
    assert "relu_cuda" not in out
    assert "only for" not in out


def test_an_unknown_backend(kbuild):
    answer = kbuild("abi-advice", STABLE, "--backend", "metal")
    assert answer.code == 2
    assert "no backend `metal`" in answer.err
    assert "hint: it has cpu, cuda" in answer.err


def test_json(kbuild):
    found = kbuild("abi-advice", RELU, "--backend", "cuda", "--json").json
    assert set(found) == {"torch-headers", "backends"}
    (cuda,) = found["backends"]
    assert {key: cuda[key] for key in ("backend", "stable-abi", "stable", "replaceable")} == {
        "backend": "cuda",
        "stable-abi": None,
        "stable": False,
        "replaceable": False,
    }
    assert (cuda["floor"], cuda["floor-due-to"]) == ("2.12", ["at::Tag::pt2_compliant_tag"])
    assert cuda["uses"][0] == {
        "file": "torch-ext/torch_binding.cpp",
        "line": 1,
        "column": 10,
        "use": "<torch/library.h>",
        "kind": "header",
        "stable": "<torch/csrc/stable/library.h>",
        "since": "2.9",
        "header": "torch/csrc/stable/library.h",
        "note": None,
    }


def test_praise(kbuild):
    answer = kbuild("abi-advice", STABLE)
    assert answer.code == 0
    assert answer.out == (
        "relu-stable-abi: only the stable ABI is used; it runs on Torch 2.10 and later, "
        "and build.toml declares 2.11\n"
    )


def test_a_promise_that_is_too_old(kbuild, migrated):
    rewrite(migrated, 'stable-abi = "2.11"', 'stable-abi = "2.9"')
    assert kbuild("abi-advice", migrated).out.endswith("but build.toml declares 2.9\n")


def test_nothing_is_compiled(kbuild):
    answer = kbuild("abi-advice", NOARCH)
    assert (answer.code, answer.out) == (0, "relu-noarch compiles nothing against Torch\n")
    assert kbuild("abi-advice", NOARCH, "--json").json["backends"] == []


def project_of(folder: Path, sources: int) -> Path:
    """Sources that share two headers, one of which includes the other."""
    names = [f"csrc/k{number}.cu" for number in range(sources)]
    code = "at::Tensor {0}(at::Tensor x) {{ auto y = x.contiguous(); return y; }}\n"
    files = {
        "csrc/a.h": '#include "b.h"\n' + code.format("a") * 9,
        "csrc/b.h": code.format("b") * 9,
        **{name: '#include "a.h"\n' + code.format("k") * 9 for name in names},
        "torch-ext/many/__init__.py": "",
        "build.toml": (
            '[general]\nname = "many"\nversion = 1\nlicense = "MIT"\nedition = 5\n'
            'backends = ["cuda", "rocm"]\n[torch]\nsrc = ["csrc/k0.cu"]\n'
            '[kernel.k]\nbackend = "cuda"\ndepends = ["torch"]\n'
            f"src = {names}\n"
            '[kernel.r]\nbackend = "rocm"\ndepends = ["torch"]\n'
            f"src = {names}\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_each_file_is_read_once(tmp_path, kbuild, monkeypatch):
    read: list[str] = []

    def counted(text):
        read.append(text)
        return cxx_tokens(text)

    monkeypatch.setattr("kbuild.plugins.advice.survey.cxx_tokens", counted)
    assert kbuild("abi-advice", project_of(tmp_path, 5)).code == 0
    assert len(read) == 7
