"""The pytest plug-in: `--kbuild` builds the kernel that tests import, `kernel` is its module."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTION = "--kbuild"
_loaded: dict[Path, ModuleType] = {}
_FOR_CLIENT = """\
import {name} as _kernel


def __getattr__(name):
    return getattr(_kernel, name)


def __dir__():
    return dir(_kernel)
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    parser.getgroup("kbuild").addoption(
        _OPTION,
        nargs="?",
        const="",
        metavar="PATH",
        help="build the kernel of the project PATH (default: the folder of build.toml above the "
        "tests) for this interpreter and machine, and have tests import that build",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build and import the kernel, when asked, before test files are imported.

    Raises:
        pytest.UsageError: the kernel cannot be built.
    """
    if session.config.getoption(_OPTION) is not None:
        _load(session.config)


@pytest.fixture(scope="session")
def kernel(pytestconfig: pytest.Config) -> Iterator[Any]:
    """The project's kernel, built for this interpreter and machine if anything has changed."""
    yield _load(pytestconfig)  # noqa: PT022 - a generator is finished before the session ends


def _load(config: pytest.Config) -> ModuleType:
    from kbuild.system.errors import KbuildError

    try:
        root = _project_folder(config)
        if root not in _loaded:
            _loaded[root] = _import_kernel(root)
        return _loaded[root]
    except KbuildError as error:
        raise pytest.UsageError(f"{_OPTION}: {error}") from None


def _project_folder(config: pytest.Config) -> Path:
    """The folder of the option, or the nearest one with a `build.toml`.

    Raises:
        pytest.UsageError: there is none.
    """
    given = config.getoption(_OPTION)
    if given:
        root = Path(os.path.abspath(given))  # noqa: PTH100 - keeps links
        if (root / "build.toml").is_file():
            return root
        raise pytest.UsageError(
            f"{_OPTION}: `{given}` has no build.toml; write {_OPTION}=PATH, or {_OPTION} last"
        )
    starts = (config.invocation_params.dir, config.rootpath)
    for start in map(Path, starts):
        for folder in (start, *start.parents):
            if (folder / "build.toml").is_file():
                return folder
    raise pytest.UsageError(f"no build.toml above `{starts[0]}`; write {_OPTION}=PATH")


def _import_kernel(root: Path) -> ModuleType:
    """The kernel, importable by its name, and by its repository through the `kernels` client.

    Raises:
        KbuildError: see `kbuild.load`.
    """
    import tomli

    from kbuild.loading.load import load_variant
    from kbuild.loading.request import VariantRequest
    from kbuild.pipeline.testing import local_kernels
    from kbuild.system.errors import UsageError
    from kbuild.system.files import FileSet

    try:
        general = tomli.loads((root / "build.toml").read_text("utf-8")).get("general", {})
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"`{root / 'build.toml'}` is not TOML: {error}") from None
    name = str(general.get("name", "kernel"))
    request = VariantRequest(root, module_name=name.replace("-", "_"))
    folder, module = load_variant(request)
    # The client imports what it loads itself: ops and fake kernels would be registered twice.
    for_client = request.folder / "client" / folder.name
    text = _FOR_CLIENT.format(name=request.module_name)
    metadata = (folder / "metadata.json").read_bytes()
    FileSet({"__init__.py": text, "metadata.json": metadata}).write(for_client, force=True)
    repository = general.get("hub", {}).get("repo-id") or name
    os.environ["LOCAL_KERNELS"] = local_kernels(repository, for_client, os.environ)
    return module
