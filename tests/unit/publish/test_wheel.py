"""Wheels of variants: versions, requirements, and the choice at import as the client makes it."""

from __future__ import annotations

import itertools
import platform
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import KernelDependency, Metadata
from kbuild.project.variant import Variant
from kbuild.publish.wheel import (
    DistributionFacts,
    PackagedVariant,
    framework_requirement,
    local_version,
    plan_wheels,
)
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.rendering import render

LINUX = "x86_64-linux"
NAMES = (
    f"torch212-cxx11-cpu-{LINUX}", f"torch213-cxx11-cpu-{LINUX}",
    "torch213-cxx11-cpu-aarch64-linux",
    f"torch213-cxx11-cu126-{LINUX}", f"torch213-cxx11-cu128-{LINUX}",
    f"torch213-cxx11-cu130-{LINUX}", f"torch213-cxx11-rocm70-{LINUX}",
    f"torch213-cxx11-xpu20253-{LINUX}", f"torch-stable-abi210-cu128-{LINUX}",
    f"torch-stable-abi211-cu128-{LINUX}", f"torch-stable-abi210-cu126-{LINUX}",
    f"torch-stable-abi214-cpu-{LINUX}", "torch213-metal-aarch64-darwin",
    "torch213-cpu-aarch64-darwin", "torch213-cpu-x86_64-windows", f"tvm-ffi01-cpu-{LINUX}",
    f"tvm-ffi01-cu128-{LINUX}", "torch-cuda", "torch-cpu", "torch-npu", "torch-universal",
)  # fmt: skip


def packaged(name: str, /, **metadata) -> PackagedVariant:
    backend = Variant.parse(name).backend
    facts = {"name": "demo", "version": 1, "license": "MIT", "id": f"_demo_{backend}_1"} | metadata
    return PackagedVariant(Path(name), Variant.parse(name), Metadata(backend=backend, **facts))


@pytest.mark.parametrize(
    ("name", "local"),
    [
        (f"torch213-cxx11-cu130-{LINUX}", "torch213.cu130"),
        (f"torch-stable-abi210-cpu-{LINUX}", "torch.stable.abi210.cpu"),
        (f"tvm-ffi01-cu128-{LINUX}", "tvm.ffi01.cu128"),
        ("torch-cuda", "torch.cuda"),
    ],
)
def test_the_local_version_is_the_variant_without_its_system(name, local):
    assert local_version(Variant.parse(name)) == local


@pytest.mark.parametrize(
    ("names", "requirement"),
    [
        ([f"torch213-cxx11-cu130-{LINUX}"], "torch==2.13.*"),
        ([f"torch-stable-abi210-cpu-{LINUX}"], "torch>=2.10"),
        (["torch-cuda"], "torch"),
        ([f"tvm-ffi01-cpu-{LINUX}"], "apache-tvm-ffi==0.1.*"),
        ([f"torch211-cxx11-cpu-{LINUX}", f"torch213-cxx11-cpu-{LINUX}"],
         "torch>=2.11,<2.14,!=2.12.*"),
        ([f"torch208-cxx11-cpu-{LINUX}".replace("208", "28"), f"torch-stable-abi210-cpu-{LINUX}"],
         "torch>=2.8,!=2.9.*"),
        ([f"torch213-cxx11-cpu-{LINUX}", "torch-cuda"], "torch"),
    ],
)  # fmt: skip
def test_requirements(names, requirement):
    assert framework_requirement([Variant.parse(name) for name in names]) == requirement


def test_one_wheel_for_each_system_holds_all_variants():
    variants = [packaged(name) for name in (NAMES[1], NAMES[2], "torch-cuda")]
    wheels = plan_wheels(variants, DistributionFacts(), combined=True)
    assert [[v.folder.name for v in wheel.variants] for wheel in wheels] == [
        [NAMES[2], "torch-cuda"],
        [NAMES[1], "torch-cuda"],
    ]


def test_variants_of_two_kernels_do_not_go_together():
    with pytest.raises(UsageError, match=r"demo 1 \(MIT\), other 1"):
        plan_wheels(
            [packaged("torch-cpu"), packaged("torch-cuda", name="other")],
            DistributionFacts(), combined=False,
        )  # fmt: skip


class TestReading:
    @pytest.fixture
    def variant(self, tmp_path):
        folder = tmp_path / "torch-cpu"
        folder.mkdir()
        (folder / "__init__.py").write_text("value = 1\n")
        self.describe(folder)
        return folder

    def describe(self, folder, **facts):
        text = Metadata(
            "demo", "_demo_1", 1, "MIT", "cpu", digest=digest_variant(folder), **facts
        ).to_json_text()
        (folder / "metadata.json").write_text(text)

    def test_python_only(self, variant, tmp_path):
        (variant / "__pycache__").mkdir()
        (variant / "__pycache__" / "x.pyc").touch()
        facts = DistributionFacts("Demo.Kernel", "1.2.0", "# Demo\n", {"LICENSE": b"MIT\n"})
        (wheel,) = plan_wheels([PackagedVariant.read(variant)], facts, combined=False)
        path = wheel.write(tmp_path / "dist")
        assert path.name == "demo_kernel-1.2.0+torch.cpu-py3-none-any.whl"
        before = path.read_bytes()
        (variant / "__init__.py").touch()
        assert wheel.write(tmp_path / "dist").read_bytes() == before
        archive = zipfile.ZipFile(path)
        assert archive.testzip() is None
        assert archive.namelist() == [
            "demo/__init__.py",
            "demo/torch-cpu/__init__.py",
            "demo/torch-cpu/metadata.json",
            "demo_kernel-1.2.0+torch.cpu.dist-info/licenses/LICENSE",
            "demo_kernel-1.2.0+torch.cpu.dist-info/METADATA",
            "demo_kernel-1.2.0+torch.cpu.dist-info/WHEEL",
            "demo_kernel-1.2.0+torch.cpu.dist-info/RECORD",
        ]

    def test_other_kernels_need_the_client(self, variant):
        self.describe(variant, kernel_depends=(KernelDependency("org/other", 1),))
        with pytest.raises(UsageError, match="`org/other`"):
            PackagedVariant.read(variant)

    def test_changed_files(self, variant):
        (variant / "__init__.py").write_text("value = 2\n")
        with pytest.raises(CheckError, match=r"`__init__.py` differs from the digest"):
            PackagedVariant.read(variant)


def loader(*names: str) -> dict:
    """The functions of a wheel's `__init__.py`, which is not asked to load anything."""
    builds = [repr(packaged.choice) for packaged in wheel_variants(names)]
    text = render("wheel/__init__.py.j2", name="demo", builds=builds)
    functions = {"__name__": "demo", "__file__": "demo/__init__.py"}
    exec(text.removesuffix("_load(*_choose())\n"), functions)  # noqa: S102
    return functions


def wheel_variants(names):
    return sorted(map(packaged, names), key=lambda packaged: packaged.preference)


class TestChoice:
    """Beside the client, on every system that it tells apart."""

    kernels = pytest.importorskip("kernels")

    @pytest.mark.parametrize("torch", [None, "2.9.1", "2.10.0", "2.12.1+cpu", "2.13.0+cu130"])
    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    @pytest.mark.parametrize("tvm", [None, "0.1.9"])
    def test_as_the_client(self, torch, machine, tvm, monkeypatch):
        from kernels.backends import parse_backend
        from kernels.variants import _resolve_variant_for_system, parse_variant
        from packaging.version import Version

        choose, variants = loader(*NAMES), [parse_variant(name) for name in NAMES]
        module = torch and SimpleNamespace(__version__=torch, compiled_with_cxx11_abi=lambda: True)
        release = lambda text: text and Version(".".join(text.split(".")[:2]))  # noqa: E731
        choose["_torch"] = lambda: module
        choose["_tvm_ffi"] = lambda: tvm and tuple(map(int, tvm.split(".")[:2]))
        monkeypatch.setattr(platform, "machine", lambda: machine)
        answers = set()
        computes = ("cpu", "cu126", "cu128", "cu129", "cu130", "cu132", "rocm70", "rocm71",
                    "xpu20253", "metal", "cann82", "neuron", "tpu")  # fmt: skip
        systems = (("Linux", ""), ("Windows", ""), *(("Darwin", v) for v in ("", "15.6", "26.1")))
        for (system, macos), compute in itertools.product(systems, computes):
            choose["_compute"] = lambda _, compute=compute: compute
            monkeypatch.setattr(platform, "system", lambda system=system: system)
            monkeypatch.setattr(platform, "mac_ver", lambda macos=macos: (macos, ("",) * 3, ""))
            accepted = [
                variant
                for backend in (compute, "cpu")  # which the client does not fall back to
                for variant in _resolve_variant_for_system(
                    variants, parse_backend(backend), machine, system.lower(), release(torch),
                    True if system == "Linux" else None,
                    release(tvm), Version(macos) if macos else None,
                )[0]
            ]  # fmt: skip
            try:
                answer = choose["_choose"]()[0]
            except ImportError:
                answer = None
            assert answer == (accepted[0].variant_str if accepted else None), (system, compute)
            answers.add(answer)
        assert len(answers) > 2

    @pytest.mark.parametrize(
        ("asked", "answer"),
        [
            ("", "torch213-cxx11-cu130-x86_64-linux"),
            ("cuda", "torch213-cxx11-cu130-x86_64-linux"),
            ("cu132", "torch213-cxx11-cu130-x86_64-linux"),
            ("cpu", "torch213-cxx11-cpu-x86_64-linux"),
            ("rocm", None),
            ("cu129", None),
        ],
    )
    def test_a_variable_chooses(self, asked, answer, monkeypatch):
        choose = loader("torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux")
        module = SimpleNamespace(__version__="2.13.0+cu130", compiled_with_cxx11_abi=lambda: True)
        choose["_torch"], choose["_compute"] = lambda: module, lambda _: "cu130"
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setenv("KBUILD_BACKEND", asked)
        if answer:
            assert choose["_choose"]()[0] == answer
            return
        with pytest.raises(ImportError, match=rf"{asked} \(by KBUILD_BACKEND\)"):
            choose["_choose"]()

    @pytest.mark.parametrize(
        ("facts", "compute"),
        [
            ({"cuda": "13.0"}, "cu130"),
            ({"hip": "7.0.51831-a3e329ad8"}, "rocm70"),
            ({"xpu": "20250300"}, "xpu20253"),
            ({"mps": True}, "metal"),
            ({"privateuse": "npu"}, "cann82"),
            ({"privateuse": "privateuseone"}, "cpu"),
            ({"tpu": True, "cuda": "13.0"}, "tpu"),
            ({"neuron": True, "cuda": "13.0"}, "neuron"),
        ],
    )
    def test_what_torch_is_made_for(self, facts, compute, monkeypatch):
        mps = SimpleNamespace(is_available=lambda: "mps" in facts)
        torch = SimpleNamespace(
            __version__="2.13.0",
            version=SimpleNamespace(**{key: facts.get(key) for key in ("cuda", "hip", "xpu")}),
            backends=SimpleNamespace(mps=mps, **{key: 1 for key in ("tpu",) if key in facts}),
            _C=SimpleNamespace(_get_privateuse1_backend_name=lambda: facts.get("privateuse")),
            **{key: 1 for key in ("neuron",) if key in facts},
        )
        cann = SimpleNamespace(get_cann_version=lambda: "8.2.RC1")
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(utils=None))
        monkeypatch.setitem(sys.modules, "torch_npu.utils", SimpleNamespace(collect_env=cann))
        monkeypatch.setitem(sys.modules, "torch_npu.utils.collect_env", cann)
        from kernels import backends

        monkeypatch.setattr(backends, "has_torch", True)
        assert loader("torch-cpu")["_compute"](torch) == compute == backends._backend().variant_str
