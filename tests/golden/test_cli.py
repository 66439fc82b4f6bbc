"""What the command line prints: the overview, a bad command, and the reference page."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.__main__ import main
from kbuild.cli.generate_docs import commands_markdown
from tests.support.projects import BINDING, kernel, write_project

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("help", ["--help"]),
        ("no_command", []),
        ("unknown_command", ["biuld"]),
        ("option_first", ["--json", "build"]),
        ("unknown_option", ["build", "--varaint", "x", "--json"]),
        ("no_builds", ["check-builds", "."]),
    ],
)
@pytest.mark.usefixtures("_elsewhere")
def test_words(golden, capsys, tmp_path, name, argv):
    code = main(argv)
    out, err = capsys.readouterr()
    text = f"$ kbuild {' '.join(argv)}\n-- exit code {code}\n-- stdout\n{out}-- stderr\n{err}"
    golden(f"cli/{name}.txt", text.replace(str(tmp_path), "<folder>"))


def test_an_opt_in_names_its_licence(golden, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("KBUILD_ACCEPT_LICENSE", raising=False)
    project = write_project(tmp_path, BINDING, kernel("cuda"), backends=("cuda",))
    asked = ("--toolchain", "debian-nvcc", "--variant", "torch213-*-cu1*-x86_64-linux")
    assert main(["list-variants", str(project), *asked, "--reasons"]) == 0
    golden("cli/debian_nvcc.txt", capsys.readouterr().out)


SOURCE = """\
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

void scale(torch::Tensor x, const at::Tensor &by) { // not an at::Half
  TORCH_CHECK(x.is_cuda() && by.is_contiguous(), "at::Tensor");
  auto stream = at::cuda::getCurrentCUDAStream();
  auto y = x.contiguous().mul_(by);
  launch(y.data_ptr<float>(), by.data_ptr<float>(), stream);
}
"""


def test_abi_advice(golden, capsys, tmp_path):
    project = write_project(tmp_path, BINDING, kernel("cuda"), backends=("cuda",))
    (project / "src/k.cu").write_text(SOURCE)
    assert main(["abi-advice", str(project)]) == 0
    golden("cli/abi_advice.txt", capsys.readouterr().out)


def test_the_reference_is_fresh():
    assert DOCS.read_text("utf-8") == commands_markdown(), (
        "run kbuild generate-docs docs/reference/cli.md"
    )
