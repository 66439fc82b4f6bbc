"""How commands end when the system refuses something: words, a code of its own, nothing left."""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import sys
from pathlib import Path

from kbuild.pipeline import variant as pipeline_variant


def test_no_home(kbuild, demo, monkeypatch):
    def unknown(_: int) -> None:
        raise KeyError

    for name in ("HOME", "KBUILD_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    answer = kbuild("plan", "demo")
    assert answer.code == 12
    assert "there is no home folder to keep the cache in" in answer.err
    assert "set KBUILD_CACHE_DIR" in answer.err
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(demo / "cache"))
    assert kbuild("check-config", "demo").code == 0


def test_a_file_where_the_result_belongs(kbuild, demo):
    (demo / "build").write_text("mine\n")
    answer = kbuild("build", "demo")
    assert answer.code == 12
    assert f"`{demo / 'build'}`: a file is where a folder belongs" in answer.err
    assert "move it away" in answer.err
    assert (demo / "build").read_text() == "mine\n"


def test_a_file_where_the_workspace_belongs(kbuild, demo):
    (demo / ".kbuild").write_text("mine\n")
    answer = kbuild("build", "demo", "--json")
    assert answer.code == 12
    assert f"`{demo / '.kbuild'}`: a file is where a folder belongs" in answer.err
    assert not (demo / "build").exists()


def test_a_cache_that_cannot_be_written_is_no_failure(kbuild, demo, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    for command in ("check-config", "plan", "build"):
        assert kbuild(command, "demo").code == 0
    assert (tmp_path / "cache").read_text() == "a file"


def test_one_variant_is_refused_something(kbuild, demo, monkeypatch):
    text = (demo / "build.toml").read_text()
    (demo / "build.toml").write_text(text.replace('["cuda"]', '["cuda", "rocm"]'))
    build = pipeline_variant.build_variant

    def refused(site, made, **more):
        if made.backend == "cuda":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(demo / "x"))
        return build(site, made, **more)

    monkeypatch.setattr(pipeline_variant, "build_variant", refused)
    answer = kbuild("build", "demo", "--json")
    assert answer.code == 12
    outcomes = {entry["variant"]: entry["status"] for entry in answer.json["variants"]}
    assert outcomes == {"torch-cuda": "failed", "torch-rocm": "built"}
    assert f"`{demo / 'x'}`: no space is left" in answer.err
    assert (demo / "build" / "torch-rocm" / "metadata.json").is_file()


def test_errors_are_objects_with_json(kbuild, here):
    answer = kbuild("plan", "x" * 300, "--json")
    assert answer.json["error"]["kind"] == "storage"
    assert answer.json["error"]["hint"]


def test_a_folder_whose_name_is_not_utf8(demo, here):
    odd = os.fsencode(demo.rename(here / os.fsdecode(b"de\xffmo")))
    for command, out in (
        (b"build", odd + b"/build/torch-cuda\n"),
        (b"check-builds", b""),
    ):
        done = subprocess.run(  # noqa: TID251
            (sys.executable, "-m", "kbuild", command, odd),
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUTF8": "1"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert out in done.stdout
