"""kbuild packages compute kernels: from `build.toml` to artefacts that any PyTorch user can load.

The pipeline is a row of frozen values, each stage a function from one to the next:

    build.toml -> Project -> [Variant] -> VariantPlan -> FileSet -> Output -> build/<variant>/
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbuild.loading.load import load
    from kbuild.system.errors import BuildError, KbuildError

__version__ = "0.2.0"
__all__ = ["BuildError", "KbuildError", "__version__", "load"]

_MODULES = {
    "BuildError": "kbuild.system.errors",
    "KbuildError": "kbuild.system.errors",
    "load": "kbuild.loading.load",
}
"""Where the names for users are; a command that needs none of them imports none."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module `kbuild` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


REPOSITORY = "kbuild/kbuild"
"""kbuild's repository on GitHub. kbuild is installed from it, and is on no package index yet.

The manual, the schema, the flakes of new projects and the workflows name it; they need the network.
"""


def manual_page(path: str) -> str:
    """Return the address of a page of the manual: wheels have no `docs/`."""
    return f"https://github.com/{REPOSITORY}/blob/main/docs/{path}"
