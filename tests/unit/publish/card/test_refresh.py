"""The card of a build: refreshed when something changed, and never in a build's way."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kbuild.plan.project import open_project
from kbuild.publish.card.refresh import CardDestination, fill_card, make_project_card, refresh_card
from kbuild.system.errors import UsageError
from kbuild.system.ui import Ui

BUILD = """\
[general]
name = "my-relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[general.hub]
repo-id = "org/my-relu"

[torch-noarch]
"""
METADATA = {
    "name": "my-relu",
    "id": "_my_relu_cpu_1a2b3c4",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
}


class Site:
    """A project with one built variant, and what is said about its card."""

    def __init__(self, root):
        self.root, self.build = root, root / "build"
        package, variant = root / "torch-ext" / "my_relu", self.build / "torch-cpu"
        for folder in (package, variant, root / ".kbuild"):
            folder.mkdir(parents=True)
        (root / "build.toml").write_text(BUILD)
        (root / "CARD.md").write_text(
            "# {{ name }}\n\n<!-- kbuild:functions -->\n<!-- /kbuild:functions -->\n"
        )
        self.init = package / "__init__.py"
        self.init.write_text("def relu(x): ...\n")
        (variant / "metadata.json").write_text(json.dumps(METADATA))

    @property
    def card(self):
        return self.build / "CARD.md"

    def refresh(self):
        """Everything that is said."""
        err = io.StringIO()
        ui = Ui(color="never", err=err, out=io.StringIO())
        self.path = refresh_card(open_project(self.root), self.build, ui)
        return err.getvalue()


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_it_is_filled_once(site):
    assert site.refresh() == f"filled {site.card}\n"
    assert site.path == site.card
    assert "relu(x)" in site.card.read_text()
    assert site.refresh() == ""
    assert site.path == site.card


def test_an_unchanged_card_costs_nothing(site, monkeypatch):
    site.refresh()
    for name in [
        name for name in sys.modules if name.startswith(("kbuild.publish.card", "jinja2"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert site.refresh() == ""
    assert not [name for name in sys.modules if name.startswith(("kbuild.publish.card", "jinja2"))]


@pytest.mark.parametrize("what", ["function", "template", "version", "results", "variant", "lost"])
def test_whatever_changes_is_seen(site, what):
    site.refresh()
    before = site.card.read_text()
    if what == "function":
        site.init.write_text("def gelu(x): ...\n")
    elif what == "template":
        (site.root / "CARD.md").write_text("# Other\n")
    elif what == "version":
        (site.root / "build.toml").write_text(BUILD.replace("MIT", "ISC"))
    elif what == "results":
        folder = site.root / "benchmarks" / "results"
        folder.mkdir(parents=True)
        (folder / "gpu.json").write_text(
            '{"results": [{"workload": "a", "timingResults": {"mean_ms": 1}}]}'
        )
    elif what == "variant":
        path = site.build / "torch-cpu" / "metadata.json"
        path.write_text(json.dumps(METADATA | {"id": "_my_relu_cpu_1a2b3c4_dirty"}))
    else:
        site.card.unlink()
    assert site.refresh() == f"filled {site.card}\n"
    assert (site.card.read_text() != before) is (what not in {"results", "lost"})
    assert (site.build / "CARD-gpu.svg").is_file() is (what == "results")


def test_without_a_template_or_variants_there_is_no_card(site):
    (site.build / "torch-cpu" / "metadata.json").unlink()
    assert site.refresh() == ""
    assert site.path is None
    (site.build / "torch-cpu" / "metadata.json").write_text(json.dumps(METADATA))
    (site.root / "CARD.md").unlink()
    assert site.refresh() == ""
    assert not site.card.exists()


def test_a_fault_is_a_warning_each_time(site):
    (site.root / "CARD.md").write_text("TODO\n")
    for _ in range(2):
        assert site.refresh().startswith("warning: the card was not filled: CARD.md:1:")
        assert site.path is None
    (site.root / "CARD.md").write_text("Done.\n")
    assert site.refresh() == f"filled {site.card}\n"


def test_an_edited_card_is_said_to_be(site):
    site.refresh()
    site.card.write_text(f"{site.card.read_text()}Mine.\n")
    assert "was edited by hand" in site.refresh()
    assert "Mine.\n" in site.card.read_text()
    assert site.refresh().startswith("warning: ")


def test_a_card_of_somebody_else_stays(site):
    site.card.write_text("Mine.\n")
    assert "kbuild did not write it" in site.refresh()
    assert site.card.read_text() == "Mine.\n"


def test_where_it_will_be_shown(site):
    told = CardDestination("me/mine", "next", {"torch-cpu": "it does not load"})
    (site.root / "CARD.md").write_text("# T\n<!-- kbuild:usage -->\n<!-- /kbuild:usage -->\n")
    project = open_project(site.root)
    text = make_project_card(project, site.build, publication=told).text
    assert 'get_kernel("me/mine", revision="next")' in text
    assert "> - `torch-cpu`: it does not load\n" in text
    assert fill_card(project, site.build, publication=told).path.read_text() == text


def test_one_dirty_variant_alone(site):
    path = site.build / "torch-cpu" / "metadata.json"
    path.write_text(json.dumps(METADATA | {"id": "_my_relu_cpu_1a2b3c4_dirty"}))
    site.refresh()
    assert "The source of `torch-cpu` differed from the commit" in site.card.read_text()


def test_no_template_is_an_error_for_those_who_ask_for_a_card(site):
    (site.root / "CARD.md").unlink()
    with pytest.raises(UsageError, match="does not exist"):
        fill_card(open_project(site.root), site.build)
