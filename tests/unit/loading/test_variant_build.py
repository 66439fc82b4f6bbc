"""Which variant is loaded, and what a notebook shows meanwhile."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kbuild.loading import variant_build
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import ProcessResult

GPU_TORCH = {"torch": {"built_for": {"cuda": "13.0", "hip": None}}}
CPU_TORCH = {"torch": {"built_for": {"cuda": None, "hip": None}}}


class Driver:
    """Answers `nvidia-smi`."""

    def __init__(self, *capabilities):
        self.output = "\n".join(capabilities)

    def run(self, argv, **_):
        return ProcessResult(tuple(argv), 0 if self.output else 9, self.output, 0.0)


def project(*backends):
    file = SimpleNamespace(general=SimpleNamespace(backends=backends))
    return SimpleNamespace(name="relu", file=file)


@pytest.mark.parametrize(
    ("facts", "driver", "expected"),
    [
        (GPU_TORCH, Driver("9.0"), "cuda"),
        (GPU_TORCH, Driver(), "cpu"),
        (CPU_TORCH, Driver("9.0"), "cpu"),
        ({"torch": None}, Driver("9.0"), "cpu"),
    ],
)
def test_the_backend_is_that_of_the_devices(facts, driver, expected):
    chosen = variant_build.default_backend(project("cpu", "rocm", "cuda"), facts, driver)
    assert chosen == expected


def test_no_device_and_no_variant_for_the_cpu():
    with pytest.raises(ToolchainError, match="no such device") as caught:
        variant_build.default_backend(project("cuda"), GPU_TORCH, Driver())
    assert 'backend="cuda"' in caught.value.hint


class TestNotebook:
    @pytest.fixture
    def cell(self, monkeypatch):
        """What a cell of a notebook shows, line by line as it is rewritten."""
        shown = []

        class Handle:
            def update(self, data, *, raw):
                shown.append(data["text/plain"])

        def display(data, *, raw, display_id):
            shown.append(data["text/plain"])
            return Handle()

        shell, module = ModuleType("IPython"), ModuleType("IPython.display")
        shell.get_ipython = lambda: SimpleNamespace(kernel=object())
        module.display = display
        monkeypatch.setitem(sys.modules, "IPython", shell)
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        return shown

    def test_progress_is_one_line_that_goes(self, cell):
        ui = variant_build._ui(verbose=False)
        with ui.progress("relu", 0) as progress:
            progress.update(1, 2, "relu.cpp")
        assert cell == ["relu", "relu: 1/2 relu.cpp", ""]

    def test_messages_are_not_printed(self, cell, capsys):
        variant_build._ui(verbose=False).say("built in 3 s")
        assert capsys.readouterr() == ("", "")

    def test_elsewhere_nothing_is_shown(self, monkeypatch, capsys):
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
        ui = variant_build._ui(verbose=False)
        with ui.progress("relu", 0) as progress:
            progress.update(1, 2, "relu.cpp")
        assert capsys.readouterr() == ("", "")
