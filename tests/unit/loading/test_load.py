"""Loading variants: what is built again, and what two of one process share."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from kbuild.loading import load as loading
from kbuild.loading.request import VariantRequest
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import identify
from kbuild.system.record import Record


class Builds:
    """Makes packages of the text in `source.py`, and counts them."""

    def __init__(self):
        self.requests = []

    def __call__(self, request, cache):
        self.requests.append(request)
        folder = request.folder / request.unique_id
        folder.mkdir(parents=True, exist_ok=True)
        source = request.root / "source.py"
        package = folder / "__init__.py"
        package.write_text(source.read_text())
        (folder / "metadata.json").write_text("{}")
        answer = {"variant": str(folder), "module": f"kernel_{request.unique_id}"}
        observed = {"source.py": identify(source), str(package): identify(package)}
        return Record(answer, observed, package_digest(cache))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "source.py").write_text("value = 1\n")
    return tmp_path / "project"


def forget(monkeypatch):
    """As a new process: nothing is loaded."""
    monkeypatch.setattr(loading, "_loaded", {})
    for name in [name for name in sys.modules if name.startswith("kernel_")]:
        monkeypatch.delitem(sys.modules, name)


def test_what_is_unchanged_is_not_built_again(project, monkeypatch):
    builds = Builds()
    _, module = loading.load_variant(VariantRequest(project), builds)
    assert module.value == 1
    assert loading.load_variant(VariantRequest(project), builds)[1] is module
    forget(monkeypatch)
    _, again = loading.load_variant(VariantRequest(project), builds)
    assert again.value == 1
    assert len(builds.requests) == 1


def test_an_edit_gives_another_namespace_and_leaves_the_old_module(project):
    builds = Builds()
    _, module = loading.load_variant(VariantRequest(project), builds)
    (project / "source.py").write_text("value = 22\n")
    folder, edited = loading.load_variant(VariantRequest(project), builds)
    assert (module.value, edited.value) == (1, 22)
    assert [request.unique_id for request in builds.requests] == ["dev", "dev_2"]
    assert sys.modules[edited.__name__] is edited
    assert sys.modules[module.__name__] is module
    assert folder != project


@pytest.mark.parametrize("name", ["kernel_dev", "of_the_client._kernel_dev"])
def test_a_namespace_that_the_process_has_gives_another(project, monkeypatch, name):
    """Of a project with the same name, or of what the `kernels` client has loaded."""
    monkeypatch.setitem(sys.modules, name, sys)
    builds = Builds()
    for _ in range(2):
        _, module = loading.load_variant(VariantRequest(project), builds)
        assert module.__name__ == "kernel_dev_2"
    assert [request.unique_id for request in builds.requests] == ["dev", "dev_2"]


@pytest.mark.parametrize("damage", ["removed", "edited", "record"])
def test_a_variant_that_is_not_what_it_was_is_built_again(project, monkeypatch, damage):
    builds = Builds()
    folder, _ = loading.load_variant(VariantRequest(project), builds)
    forget(monkeypatch)
    if damage == "removed":
        (folder / "__init__.py").unlink()
    elif damage == "edited":
        (folder / "__init__.py").write_text("value = 3\n")
    else:
        for record in folder.parent.glob("loaded-*"):
            record.write_text("{}")
    _, module = loading.load_variant(VariantRequest(project), builds)
    assert module.value == 1
    assert len(builds.requests) == 2


def test_threads_build_once(project):
    builds, modules = Builds(), []

    def run():
        modules.append(loading.load_variant(VariantRequest(project), builds)[1])

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds.requests) == 1
    assert len(set(map(id, modules))) == 1


def test_a_package_that_raises_leaves_nothing_behind(project):
    (project / "source.py").write_text("raise ValueError('at import')\n")
    with pytest.raises(ValueError, match="at import"):
        loading.load_variant(VariantRequest(project), Builds())
    assert not [name for name in sys.modules if name.startswith(f"kernel_{project.name}")]


def test_importing_kbuild_is_light():
    code = "import kbuild, sys; print(*sorted(name for name in sys.modules if 'kbuild' in name))"
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["kbuild"]


def test_loading_what_is_unchanged_imports_little(project):
    loading.load_variant(VariantRequest(project), Builds())
    code = (
        "import sys; from pathlib import Path; from kbuild.loading.load import load_variant;"
        "from kbuild.loading.request import VariantRequest;"
        "load_variant(VariantRequest(Path(sys.argv[1])));"
        "print(*sorted(name for name in sys.modules if name.startswith('kbuild')));"
        "assert not {'pydantic', 'rich', 'jinja2', 'torch', 'subprocess'} & {*sys.modules}"
    )
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.split()) <= 13, done.stdout


def test_kernels_that_it_depends_on(tmp_path, monkeypatch):
    """`get_kernel_dep` gives what the client loads, here from the user's own folder."""
    pytest.importorskip("kernels")
    pytest.importorskip("torch")
    other, variant = tmp_path / "other" / "torch-universal", tmp_path / "variant"
    facts = {"name": "other", "id": "other_1", "version": 1, "license": "MIT"}
    facts |= {"python-depends": [], "backend": {"type": "cpu"}}
    depends = {"kernel-depends": [{"repo-id": "org/other", "version": 1}]}
    files = {
        other: ("answer = 42\n", facts),
        variant: (
            "from kernels import get_kernel_dep\nanswer = get_kernel_dep('org/other').answer\n",
            facts | depends,
        ),
    }
    for folder, (text, metadata) in files.items():
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text)
        (folder / "metadata.json").write_text(json.dumps(metadata))
    monkeypatch.setenv("LOCAL_KERNELS", f"org/other={other.parent}")
    assert loading.import_variant(variant, "needs_other").answer == 42
