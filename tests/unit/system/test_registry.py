"""Registries: everything is there for whoever asks, also while another thread imports it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from kbuild.system.registry import Registry

SLOW = """
import threading
from {package} import ITEMS, ENTERED, GO

ENTERED.set()
assert GO.wait(30)


@ITEMS.add
class {name}:
    name = "{name}"
"""


def test_a_thread_that_asks_while_another_imports_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "slow_registry"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(
        "import threading\nfrom kbuild.system.registry import Registry\n"
        f"ITEMS = Registry('{package}')\nENTERED, GO = threading.Event(), threading.Event()\n"
    )
    for name in ("a", "b"):
        text = SLOW.format(package=package, name=name)
        (tmp_path / package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(package)
    items: Registry[object] = module.ITEMS
    found: list[tuple[str, ...]] = []

    def ask() -> None:
        found.append(items.load().names())

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert module.ENTERED.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    module.GO.set()
    for thread in threads:
        thread.join(30)
    assert found == [("a", "b"), ("a", "b")]
    for name in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[name]
