from __future__ import annotations

import sys
from pathlib import Path

from kbuild.system.processes import KEPT_CHARACTERS, LocalRunner, canonical_interpreter

_LONG = "import sys; [print(f'{n:07} ' + 'x' * 91) for n in range(100_000)]; sys.exit(3)"
"""Prints 10 MB."""


def test_an_interpreter_has_one_name(tmp_path: Path) -> None:
    real = tmp_path / "python3.11"
    real.write_text("")
    (tmp_path / "python").symlink_to(real)
    assert canonical_interpreter(real) == tmp_path / "python"
    (tmp_path / "python3").symlink_to("python")
    names = {canonical_interpreter(tmp_path / name) for name in ("python", "python3", "python3.11")}
    assert names == {tmp_path / "python3"}


def test_of_a_long_output_the_log_has_everything_and_memory_the_ends(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "long.log"
    heard: list[str] = []
    done = LocalRunner().run((sys.executable, "-c", _LONG), log=log, listen=heard.append)
    assert done.returncode == 3
    assert len(heard) == 100_000
    assert len(done.output) < 2 * KEPT_CHARACTERS + 100
    lines = done.output.splitlines()
    assert lines[0].startswith("0000000")
    assert lines[-1].startswith("0099999")
    (gap,) = [line for line in lines if "left out" in line]
    assert int(gap.split()[0].strip("[")) + len(lines) - 1 == 100_000
    first, *said, empty, last = log.read_text().splitlines()
    assert first.startswith(f"$ {sys.executable} -c ")
    assert said == heard
    assert empty == ""
    assert last.startswith("[exit 3, ")


def test_a_process_may_print_before_it_reads() -> None:
    """Both pipes would be full, and both processes would wait."""
    script = "import sys; print('x' * 300_000, flush=True); print(len(sys.stdin.read()))"
    done = LocalRunner().run((sys.executable, "-c", script), stdin="y" * 300_000)
    assert done.ok
    assert done.output.endswith("300000\n")


def test_a_process_may_end_before_it_reads() -> None:
    # Many times: it is fed beside its end.
    runner = LocalRunner()
    assert {runner.run(("true",), stdin="unread").returncode for _ in range(300)} == {0}
