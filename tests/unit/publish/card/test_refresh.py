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


class CardProject:
    """A project with one built variant, and what is said about its card."""

    def __init__(self, root):
        self.root, self.build = root, root / "build"
        package, variant = root / "torch-ext" / "my_relu", self.build / "torch-cpu"
        for folder in (package, variant, root / ".kbuild"):
            folder.mkdir(parents=True)
        (root / "build.toml").write_text(BUILD)
        (root / "CARD.md").write_text(
            "# {{ name }}\n\n<!-- kbuild:functions -->\n<!-- /kbuild:functions -->\n"
            "<!-- kbuild:benchmarks -->\n<!-- /kbuild:benchmarks -->\n"
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
def card_project(tmp_path):
    return CardProject(tmp_path)


def test_it_is_filled_once(card_project):
    assert card_project.refresh() == f"filled {card_project.card}\n"
    assert card_project.path == card_project.card
    assert "relu(x)" in card_project.card.read_text()
    assert card_project.refresh() == ""
    assert card_project.path == card_project.card


def test_an_unchanged_card_costs_nothing(card_project, monkeypatch):
    card_project.refresh()
    for name in [
        name for name in sys.modules if name.startswith(("kbuild.publish.card", "jinja2"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert card_project.refresh() == ""
    assert not [name for name in sys.modules if name.startswith(("kbuild.publish.card", "jinja2"))]


@pytest.mark.parametrize("what", ["function", "template", "version", "results", "variant", "lost"])
def test_whatever_changes_is_seen(card_project, what):
    card_project.refresh()
    before = card_project.card.read_text()
    if what == "function":
        card_project.init.write_text("def gelu(x): ...\n")
    elif what == "template":
        (card_project.root / "CARD.md").write_text("# Other\n")
    elif what == "version":
        (card_project.root / "build.toml").write_text(BUILD.replace("MIT", "ISC"))
    elif what == "results":
        folder = card_project.root / "benchmarks" / "results"
        folder.mkdir(parents=True)
        (folder / "gpu.json").write_text(
            '{"results": [{"workload": "a", "timingResults": {"mean_ms": 1}}]}'
        )
    elif what == "variant":
        path = card_project.build / "torch-cpu" / "metadata.json"
        path.write_text(json.dumps(METADATA | {"id": "_my_relu_cpu_1a2b3c4_dirty"}))
    else:
        card_project.card.unlink()
    assert card_project.refresh() == f"filled {card_project.card}\n"
    assert (card_project.card.read_text() != before) is (what != "lost")


def test_without_a_template_or_variants_there_is_no_card(card_project):
    (card_project.build / "torch-cpu" / "metadata.json").unlink()
    assert card_project.refresh() == ""
    assert card_project.path is None
    (card_project.build / "torch-cpu" / "metadata.json").write_text(json.dumps(METADATA))
    (card_project.root / "CARD.md").unlink()
    assert card_project.refresh() == ""
    assert not card_project.card.exists()


def test_an_edited_card_is_said_to_be(card_project):
    card_project.refresh()
    card_project.card.write_text(f"{card_project.card.read_text()}Mine.\n")
    assert "was edited by hand" in card_project.refresh()
    assert "Mine.\n" in card_project.card.read_text()
    assert card_project.refresh().startswith("warning: ")


def test_a_card_of_somebody_else_stays(card_project):
    card_project.card.write_text("Mine.\n")
    assert "kbuild did not write it" in card_project.refresh()
    assert card_project.card.read_text() == "Mine.\n"


def test_where_it_will_be_shown(card_project):
    told = CardDestination("me/mine", "next", {"torch-cpu": "it does not load"})
    (card_project.root / "CARD.md").write_text(
        "# T\n<!-- kbuild:usage -->\n<!-- /kbuild:usage -->\n"
    )
    project = open_project(card_project.root)
    text = make_project_card(project, card_project.build, publication=told)
    assert 'get_kernel("me/mine", revision="next")' in text
    assert "> - `torch-cpu`: it does not load\n" in text


def test_no_template_is_an_error_for_those_who_ask_for_a_card(card_project):
    (card_project.root / "CARD.md").unlink()
    with pytest.raises(UsageError, match="does not exist"):
        fill_card(open_project(card_project.root), card_project.build)
