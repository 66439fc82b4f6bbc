"""From a compiler's words to places in the project."""

from __future__ import annotations

from pathlib import Path

from kbuild.static.types import SHOWN_ERRORS, diagnostic_findings

ROOT = Path("/srv/demo")


def places(said: str) -> list[tuple[str, str]]:
    return [(found.where, found.what) for found in diagnostic_findings(said, "src/k.cpp", ROOT)]


def test_errors_of_the_project() -> None:
    said = """\
/srv/demo/src/k.cpp: In function 'void f()':
/srv/demo/src/k.cpp:11:8: error: 'quue' is not a member of 'sycl'
   11 |   sycl::quue q;
      |         ^~~~
/srv/demo/src/k.h:3:1: fatal error: gone.h: No such file or directory
compilation terminated.
"""
    assert places(said) == [
        ("src/k.cpp:11", "'quue' is not a member of 'sycl'"),
        ("src/k.h:3", "gone.h: No such file or directory"),
    ]


def test_gcc_leads_to_an_error_in_a_foreign_header() -> None:
    said = """\
In file included from /srv/demo/src/k.h:2,
                 from /srv/demo/src/k.cpp:5:
/opt/sycl/queue.hpp: In instantiation of 'void run(T) [with T = int]':
/srv/demo/src/k.cpp:20:9:   required from here
/opt/sycl/queue.hpp:7:3: error: static assertion failed: no
/opt/sycl/queue.hpp:7:3: note: 'false' evaluates to false
"""
    assert places(said) == [("src/k.cpp:20", "static assertion failed: no (in queue.hpp)")]


def test_clang_leads_there_afterwards() -> None:
    said = """\
/opt/sycl/queue.hpp:7:3: error: static assertion failed: no
/srv/demo/src/k.cpp:20:9: note: in instantiation of function template specialization 'run<int>'
/opt/sycl/other.hpp:9:3: error: other
2 errors generated.
"""
    assert places(said) == [
        ("src/k.cpp:20", "static assertion failed: no (in queue.hpp)"),
        ("src/k.cpp", "other (in other.hpp)"),
    ]


def test_only_the_first_errors_are_shown() -> None:
    said = "".join(f"/srv/demo/src/k.cpp:{n}:1: error: e{n}\n" for n in range(1, SHOWN_ERRORS + 4))
    shown = places(said)
    assert len(shown) == SHOWN_ERRORS + 1
    assert shown[-1] == ("src/k.cpp", "3 more errors")


def test_a_compiler_that_died_is_a_finding() -> None:
    said = "c++: fatal error: Killed signal terminated program cc1plus\n"
    (found,) = diagnostic_findings(said, "src/k.cpp", ROOT)
    assert (found.severity, found.where) == ("error", "src/k.cpp")
    assert "Killed signal" in found.what
