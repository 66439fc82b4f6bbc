"""Variants as derivations: built in the sandbox, tested, and the same however they are built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbuild.checks.readers.elf import read_elf
from tests.support.command_project import GIT, ROOT, CommandProject, run
from tests.support.nix.sandbox import NIX, SYSTEM, Sandbox, why_not

pytestmark = [
    pytest.mark.nix,
    pytest.mark.compile,
    pytest.mark.network,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
CPU = "torch213-cxx11-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
STABLE_CPU = "torch-stable-abi213-cpu-x86_64-linux"
STABLE_CUDA = "torch-stable-abi213-cu130-x86_64-linux"
PACKAGES = (
    *("default", "bundle", "redistributable", "backendBundle", "ci", "ci-test", "ciTests"),
    *("build-and-copy", "build-and-upload", "kernels"),
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    made = Sandbox(tmp_path_factory.mktemp("nix"))
    made.prepare()
    return made


@pytest.fixture(scope="module")
def relu(sandbox: Sandbox) -> Path:
    return sandbox.project("relu", sandbox.folder / "relu")


@pytest.fixture(scope="module")
def stable(sandbox: Sandbox) -> Path:
    return stable_abi(sandbox, sandbox.folder)


@pytest.fixture(scope="module")
def cpu(sandbox: Sandbox, relu: Path) -> Path:
    return sandbox.build(relu, f"redistributable.{CPU}")[0]


@pytest.fixture(scope="module")
def stable_cuda(sandbox: Sandbox, stable: Path) -> Path:
    return sandbox.build(stable, f"redistributable.{STABLE_CUDA}")[0]


def stable_abi(sandbox: Sandbox, folder: Path) -> Path:
    """The example for the stable ABI of the one Torch release that all tests here fetch.

    Two architectures are enough to be compiled at a time.
    """
    project = sandbox.project("relu-stable-abi", folder / "relu-stable-abi")
    text = (project / "build.toml").read_text()
    for old, new in (
        ('stable-abi = "2.11"', 'stable-abi = "2.13"'),
        ('backend = "cuda"', 'backend = "cuda"\ncuda-capabilities = ["9.0", "12.0+PTX"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    (project / "build.toml").write_text(text)
    return project


def library_of(variant: Path) -> Path:
    (found,) = variant.glob("*.so")
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class TestEvaluation:
    """What needs no build."""

    def test_a_project_shows_every_output(self, sandbox, relu) -> None:
        shown = sandbox.nix(relu, ("flake", "show", "--json")).stdout
        outputs = json.loads(shown)
        assert set(PACKAGES) <= set(outputs["packages"][SYSTEM])
        assert set(outputs["devShells"][SYSTEM]) == {"default", "devShells", "test", "testShells"}
        assert "ci-test" in outputs["apps"][SYSTEM]
        assert set(outputs["packages"]) == {SYSTEM, "aarch64-linux", "aarch64-darwin"}

    def test_variants_are_those_that_can_be_built_and_the_others_have_reasons(
        self, sandbox, relu
    ) -> None:
        variants = sandbox.eval(relu, "variants")
        unsupported = sandbox.eval(relu, "unsupported")
        assert CPU in variants
        assert CUDA in variants
        listed = run(
            (sys.executable, "-m", "kbuild", "list-variants", "--all", "--json", str(relu)),
            cwd=ROOT,
        )
        known = {entry["variant"] for entry in json.loads(listed.stdout)}
        here = {name for name in known if name.endswith(SYSTEM)}
        assert set(variants) | set(unsupported) == here
        assert "rocm compiler" in unsupported["torch213-cxx11-rocm71-x86_64-linux"]
        assert "CUDA 12.6" in unsupported["torch213-cxx11-cu126-x86_64-linux"]

    def test_kernels_in_python_dsls_have_a_reason(self, sandbox, tmp_path) -> None:
        project = stable_abi(sandbox, tmp_path)
        build = project / "build.toml"
        section = '[kernel.dsl]\nbackend = ["cuda"]\nlanguage = "triton"\nsrc = ["dsl.py"]\n'
        build.write_text(f"{build.read_text()}\n{section}")
        (project / "dsl.py").write_text("")
        unsupported = sandbox.eval(project, "unsupported")
        assert "kernels in triton are compiled by its wheels" in unsupported[STABLE_CUDA]
        assert STABLE_CUDA.replace("cu130", "cpu") not in unsupported

    def test_another_system_has_reasons_instead_of_variants(self, sandbox, relu) -> None:
        place = "legacyPackages.aarch64-linux"
        assert sandbox.eval(relu, f"{place}.variants") == []
        assert set(sandbox.eval(relu, f"{place}.unsupported").values()) == {
            "wheels of compilers, and of what kbuild needs, are not pinned for aarch64-linux"
        }


class TestProcessorVariant:
    def test_it_names_nothing_in_the_store(self, sandbox, cpu) -> None:
        assert sandbox.references(cpu) == []
        assert all(b"/nix/store" not in data for data in files_of(cpu).values())
        assert read_elf(library_of(cpu)).search_paths == ()

    def test_its_metadata_says_what_it_is(self, cpu) -> None:
        metadata = json.loads((cpu / "metadata.json").read_text())
        assert metadata["backend"]["type"] == "cpu"
        used = metadata["provenance"]["kernel-builder"]["toolchain"]
        assert used["versions"]["torch"] == "2.13.0"
        checked = run((sys.executable, "-m", "kbuild", "hash", "--check", str(cpu)), cwd=ROOT)
        assert checked.returncode == 0, checked.stderr

    def test_its_tests_pass(self, sandbox, relu, cpu) -> None:
        done = sandbox.nix(relu, ("run",), "ci-test")
        assert f"testing {CPU}" in done.stderr
        assert re.search(r"\d+ passed", done.stdout)

    def test_tests_may_import_more(self, sandbox, tmp_path, cpu) -> None:
        project = sandbox.project("relu", tmp_path / "relu")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        extra = project / "extra" / "lib" / f"python{version}" / "site-packages"
        extra.mkdir(parents=True)
        (extra / "more.py").write_text("ANSWER = 42\n")
        flake = project / "flake.nix"
        given = "path = ./.; pythonCheckInputs = _: [ ./extra ];"
        flake.write_text(flake.read_text().replace("path = ./.;", given))
        (project / "tests" / "test_relu.py").write_text(
            "import more, pytest\n\n"
            "@pytest.mark.kernels_ci\ndef test_more():\n    assert more.ANSWER == 42\n"
        )
        assert "1 passed" in sandbox.nix(project, ("run",), "ci-test").stdout

    def test_a_failing_test_fails_the_check(self, sandbox, tmp_path, cpu) -> None:
        project = sandbox.project("relu", tmp_path / "relu")
        tests = project / "tests" / "test_relu.py"
        tests.write_text("import pytest\n\n@pytest.mark.kernels_ci\ndef test_no():\n    assert 0\n")
        done = sandbox.nix(project, ("run",), "ci-test", expect=1)
        assert "1 failed" in done.stdout
        check = f"checks.{SYSTEM}.tests-{CPU}"
        done = sandbox.nix(project, ("build", "--no-link"), check, expect=1)
        assert "1 failed" in done.stderr


class TestSameBytes:
    """With a stable ABI, since it compiles in seconds; for CUDA, which has host code as well."""

    def test_the_local_driver_gives_the_same(self, sandbox, stable_cuda, tmp_path) -> None:
        """Bit by bit, with the toolchains that Nix installed."""
        built = stable_cuda
        assert sandbox.references(built) == []
        project = stable_abi(sandbox, tmp_path)
        cache = tmp_path / "cache"
        (cache / "store").mkdir(parents=True)
        for entry in installations(sandbox, built):
            (cache / "store" / entry.name).symlink_to(entry)
        unique = json.loads((built / "metadata.json").read_text())["id"].rpartition("_")[2]
        options = ("--toolchain", "wheels", "--variant", STABLE_CUDA, "--unique-id", unique)
        done = run(
            (sys.executable, "-m", "kbuild", "build", str(project), *options),
            cwd=ROOT,
            env={"KBUILD_CACHE_DIR": str(cache), "PIP_NO_INDEX": "1"},
        )
        assert done.returncode == 0, done.stderr
        local, nix = files_of(project / "build" / STABLE_CUDA), files_of(built)
        assert described(local.pop("metadata.json")) == described(nix.pop("metadata.json"))
        assert local == nix


def described(metadata: bytes) -> dict[str, Any]:
    """Without the commit of kbuild itself, which only a checkout knows."""
    read: dict[str, Any] = json.loads(metadata)
    for key in ("commit", "dirty"):
        read["provenance"]["kernel-builder"].pop(key, None)
    return read


def installations(sandbox: Sandbox, variant: Path) -> list[Path]:
    """kbuild's store entries that a variant was built with."""
    asked = ("nix-store", "--query", "--requisites", deriver(sandbox, variant))
    done = run(asked, cwd=sandbox.folder, env=sandbox.environment())
    made = re.compile(r"-kbuild-(torch|cuda)-.*\.drv$")
    drvs = [line for line in done.stdout.split() if made.search(line)]
    outs = run(("nix-store", "--query", "--outputs", *drvs), cwd=sandbox.folder).stdout.split()
    return [entry for out in outs for entry in Path(out).iterdir()]


def deriver(sandbox: Sandbox, output: Path) -> str:
    asked = ("nix-store", "--query", "--deriver", str(output))
    return run(asked, cwd=sandbox.folder, env=sandbox.environment()).stdout.strip()


@pytest.fixture(scope="module")
def noarch(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = sandbox.project("relu-noarch", tmp_path_factory.mktemp("noarch") / "relu-noarch")
    sandbox.lock(project)  # with inputs that are given otherwise, Nix tells no commit
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        assert run((*GIT, *command), cwd=project).returncode == 0
    return project


class TestBundle:
    """Of a kernel that compiles nothing."""

    def test_it_has_the_variants_the_card_and_the_benchmarks(self, sandbox, noarch) -> None:
        bundle, _ = sandbox.build(f"git+file://{noarch}", "bundle")
        assert {path.name for path in bundle.iterdir()} == {
            *("torch-cpu", "torch-cuda", "CARD.md", "benchmarks")
        }
        assert "relu" in (bundle / "CARD.md").read_text()

    def test_the_commit_is_in_the_metadata_and_compiles_nothing_again(
        self, sandbox, noarch
    ) -> None:
        url = f"git+file://{noarch}"
        first, _ = sandbox.build(url, "redistributable.torch-cpu")
        commit = run((*GIT, "rev-parse", "HEAD"), cwd=noarch).stdout.strip()
        metadata = json.loads((first / "metadata.json").read_text())
        assert metadata["provenance"]["kernel"] == {"commit": commit, "dirty": False}
        (noarch / "README.md").write_text("changed\n")
        assert run((*GIT, "commit", "-qam", "two"), cwd=noarch).returncode == 0
        second, said = sandbox.build(url, "redistributable.torch-cpu")
        assert second != first
        assert "built in" not in said
        same = ("__init__.py", "_ops.py")
        assert all((first / name).read_bytes() == (second / name).read_bytes() for name in same)

    def test_build_and_copy_replaces_what_is_there(self, sandbox, noarch) -> None:
        stale = sandbox.folder / "build" / "torch-cpu"
        stale.mkdir(parents=True)
        (stale / "stale.py").write_text("")
        sandbox.nix(f"git+file://{noarch}", ("run",), "build-and-copy")
        assert not (stale / "stale.py").exists()
        copied = stale / "metadata.json"
        assert os.access(copied, os.W_OK)
        assert not copied.is_symlink()


@dataclass(frozen=True)
class NixProject(CommandProject):
    """A project that kbuild builds with the settings of a sandbox."""

    sandbox: Sandbox

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = f"{Path(str(NIX)).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"KBUILD_TOOLCHAIN": "", **self.sandbox.environment(), "PATH": path}
        if arguments[0] == "build":
            overrides = self.sandbox.overrides(self.root)
            arguments = ("build", "--driver", "nix", *arguments[1:], "--", *overrides)
        return super().run(*arguments, env={**own, **(env or {})})


class TestDriver:
    """What Nix says, and recordings of it, are in tests/unit/pipeline/test_nix_build.py."""

    VARIANT = f"torch-stable-abi211-cpu-{SYSTEM}"

    def test_a_variant_is_built_copied_and_up_to_date(self, sandbox, tmp_path) -> None:
        root = sandbox.project("relu-stable-abi", tmp_path / "relu-stable-abi")
        project = NixProject(root, tmp_path / "cache", sandbox)
        project.git("init", "-q")
        project.git("add", "-A")
        assert project.build("--variant", self.VARIANT)[self.VARIANT]["status"] == "built"
        project.kbuild("check-builds", "--skip", "load")
        (project.root / "README.md").write_text("another\n")
        again = project.build("--variant", self.VARIANT)
        assert again[self.VARIANT]["status"] == "up-to-date"


class TestNewProject:
    def test_what_init_writes_is_built_and_tested(self, sandbox, tmp_path, cpu) -> None:
        project = tmp_path / "new"
        options = ("--noarch", "--backends", "cpu", "--name", "me/new")
        made = run((sys.executable, "-m", "kbuild", "init", str(project), *options), cwd=ROOT)
        assert made.returncode == 0, made.stderr
        done = sandbox.nix(f"git+file://{project}", ("run",), "ci-test")
        assert "testing torch-cpu" in done.stderr
        assert re.search(r"\d+ passed", done.stdout)


class TestCompileCache:
    """A folder that `sandbox-paths` lends."""

    @pytest.fixture
    def lending(self, sandbox, tmp_path) -> Path:
        """Settings that lend a folder to builders."""
        lent = tmp_path / "objects"
        lent.mkdir()
        lent.chmod(0o2770)
        os.chown(lent, -1, nixbld())
        conf = tmp_path / "conf"
        sandbox.configure(conf, "--compile-cache", str(lent))
        return conf

    def test_objects_outlive_the_sandbox_and_hashes_do_not_change(
        self, sandbox, lending, tmp_path
    ) -> None:
        project = stable_abi(sandbox, tmp_path)
        touch(project, f"// {tmp_path}\n")
        name = f"redistributable.{STABLE_CPU}.compiled"
        first, said = sandbox.build(project, name, conf=lending)
        assert "0 of 2 objects from cache" in said
        # Another derivation; of its two units one is as it was.
        touch(project, "// another\n")
        second, said = sandbox.build(project, name, conf=lending)
        assert "1 of 2 objects from cache" in said
        assert first != second
        # Nix is asked to prove that the result is what the sources give: nothing comes from there.
        again, said = sandbox.build(project, name, "--rebuild", conf=lending)
        assert "compile cache: not used" in said
        assert "0 of 2 objects from cache" in said
        assert again == second
        # And it is the derivation of those who lend nothing.
        assert sandbox.build(project, name)[0] == second


def nixbld() -> int:
    import grp

    return grp.getgrnam("nixbld").gr_gid


def touch(project: Path, text: str) -> None:
    with (project / "torch-ext" / "torch_binding.cpp").open("a") as file:
        file.write(text)


class TestShells:
    def test_a_shell_has_kbuild_its_toolchains_and_torch(self, sandbox, relu, cpu) -> None:
        script = "kbuild plan RELU --variant CPU --json && python3 -c 'import torch, kernels'"
        script = script.replace("RELU", str(relu)).replace("CPU", CPU)
        done = sandbox.nix(relu, ("develop",), "", "-c", "bash", "-c", script)
        (plan,) = json.loads(done.stdout)
        assert plan["toolchain"]["source"] == "wheels"

    def test_a_test_shell_imports_the_kernel_and_writes_nothing_into_the_store(
        self, sandbox, relu, cpu, monkeypatch
    ) -> None:
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        script = "import torch, relu; print(relu.relu(torch.tensor([-1.0, 2.0])).tolist())"
        done = sandbox.nix(relu, ("develop",), "test", "-c", "python3", "-c", script)
        assert done.stdout.split() == ["[0.0,", "2.0]"]
        assert not list(cpu.rglob("__pycache__"))


class TestFailures:
    def test_what_is_wrong_with_the_project_is_said_in_kbuilds_words(
        self, sandbox, tmp_path
    ) -> None:
        project = sandbox.project("relu", tmp_path / "relu")
        (project / "relu_cpu" / "relu_cpu.cpp").unlink()
        verb = ("build", "--no-link", "--print-build-logs")
        done = sandbox.nix(project, verb, f"redistributable.{CPU}", expect=1)
        assert "`relu_cpu/relu_cpu.cpp` does not exist" in done.stderr
        assert "build.toml:" in done.stderr
