"""Names that a run replaces in libraries."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from kbuild.plugins.capture.worker.replaced_names import libraries_with, names_of, replaced_names


def test_a_library_that_gets_a_name_later_is_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, author = ModuleType("library"), ModuleType("author")
    vars(author)["alias"] = sys.getrefcount
    for module in (library, author):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    functions = {id(sys.getrefcount): abs}
    assert library not in libraries_with(functions, [author])
    vars(library)["alias"] = sys.getrefcount
    searched = libraries_with(functions, [author])
    assert library in searched
    assert author not in searched
    assert [*names_of(functions, [library])] == [(library, "alias", abs)]


def test_names_are_as_before_after_a_run() -> None:
    class Base:
        inherited = 1

    class Derived(Base):
        own = 2

    replacements = [(Derived, "inherited", 3), (Derived, "own", 4), (Derived, "own", 5)]
    with replaced_names(replacements):
        assert (Derived.inherited, Derived.own) == (3, 5)
    assert "inherited" not in vars(Derived)
    assert (Derived.inherited, Derived.own) == (1, 2)


def test_a_name_that_a_library_lacks_is_an_error() -> None:
    module = ModuleType("library")
    with (
        pytest.raises(AttributeError, match="no `missing`"),
        replaced_names([(module, "missing", 1)]),
    ):
        pass
    with replaced_names([(module, "missing", 1)], {"missing"}):
        assert vars(module)["missing"] == 1
    assert "missing" not in vars(module)
