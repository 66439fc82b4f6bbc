"""The arguments of a type check are those of the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kbuild.backends.base import TypeCheck
from kbuild.identity import Identity
from kbuild.project import Project
from kbuild.selection import project_variants
from kbuild.static.types import IncludeFolders, compiler_arguments
from tests.support.projects import BINDING, kernel, plan_variant

CHECK = TypeCheck(headers=("sycl",), definitions=("LANGUAGE=1",))


def made(project: Project, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The binding's arguments, and the kernel's, with `/t`, `/s` and `/p` as headers' places."""
    plan = plan_variant(project, project_variants(project)[-1], Identity("check"))
    (folder / "torch-ext").mkdir(parents=True)
    folders = IncludeFolders(
        project.root,
        folder,
        Path("/stand-ins"),
        Path("/p"),
        {"torch": (Path("/t"), Path("/t/api"))},
        {"sycl": (Path("/s"),)},
    )
    binding, section = plan.components
    return compiler_arguments(plan, binding, CHECK, folders), compiler_arguments(
        plan, section, CHECK, folders
    )


def test_macros_standard_and_folders(project: Callable[..., Project], tmp_path: Path) -> None:
    opened = project(BINDING, kernel("xpu", 'include = ["src"]'), backends=("xpu",))
    binding, section = made(opened, tmp_path / "generated")
    assert "-std=gnu++20" in binding
    assert {"-DXPU_KERNEL", "-DUSE_XPU", "-DLANGUAGE=1"} <= {*binding} & {*section}
    assert "-DTORCH_EXTENSION_NAME=_my_kernel_xpu_check" in binding
    assert "-DTORCH_EXTENSION_NAME=_my_kernel_xpu_check" not in section
    root = opened.root
    own = [word for word in binding if word.startswith("-I")]
    assert own == [f"-I{root}/torch-ext", f"-I{tmp_path}/generated/torch-ext"]
    assert [word for word in section if word.startswith("-I")] == [f"-I{root}/src"]
    system = [word for at, word in enumerate(section) if section[at - 1] == "-isystem"]
    assert system == ["/p", "/t", "/t/api", "/s", "/stand-ins"]
    assert f"-ffile-prefix-map={root}=/kernel" in section
    assert "-ffile-prefix-map=/t=/torch" in section


def test_only_flags_that_decide_what_is_parsed(
    project: Callable[..., Project], tmp_path: Path
) -> None:
    flags = 'sycl-flags = ["-fsycl-unnamed-lambda", "-DOWN=2", "-U", "OTHER", "-Wall"]'
    _, section = made(
        project(BINDING, kernel("xpu", flags), backends=("xpu",)), tmp_path / "generated"
    )
    assert section[-3:] == ("-DOWN=2", "-U", "OTHER")
    assert not [word for word in section if "sycl-" in word or word in ("-fPIC", "-Wall")]
