"""Files that other people and programs wrote, damaged in every way that the fuzzer found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.build.unit_log import read_log
from kbuild.dsl.tune.cases import read_shapes
from kbuild.dsl.tune.host import parse_answer
from kbuild.dsl.tune.results import Journal, RaceOutcome
from kbuild.ops.manifest import read_manifest as read_op_manifest
from kbuild.ops.tuned_tables import read_table_files
from kbuild.pipeline.nix.flake import _parse_answer, evaluation_error, read_event
from kbuild.pipeline.nix.program import _settings
from kbuild.pipeline.package import is_variant
from kbuild.pipeline.running_builder import _installed_from
from kbuild.plan.digest import recorded_files
from kbuild.plan.metadata import MetadataError, parse_metadata, read_metadata
from kbuild.publish.card.benchmarks import read_results
from kbuild.publish.card.model import CardError
from kbuild.publish.hub.huggingface import HubClient, account_of
from kbuild.publish.hub.repository import Repo
from kbuild.publish.signing.verify import _signed_digest
from kbuild.sources.includes import IncludeGraph
from kbuild.system.errors import (
    ConfigError,
    DamagedFileError,
    HubError,
    KbuildError,
    ToolchainError,
    UsageError,
)
from kbuild.system.files import MANIFEST, read_manifest
from kbuild.system.processes import ProcessResult
from kbuild.system.sourcetree import SourceTree
from kbuild.system.store import Store
from kbuild.system.untrusted import (
    MAX_DOCUMENT_BYTES,
    parse_json,
    read_bytes,
    read_cache_file,
    read_json,
    reading,
)
from kbuild.toolchains.probe import assignments
from kbuild.toolchains.wheels.lock import read_lock
from kbuild.toolchains.wheels.settings import settings_from

DEEP = '{"a":' * 1000 + "1" + "}" * 1000
DAMAGED = {
    "empty": "",
    "no JSON": "{",
    "no object": "[1]",
    "a text": '"format"',
    "a number": "1",
    "nothing in it": "{}",
    "nested": DEEP,
    "nested lists": "[" * 100_000,
    "half a character": '{"format": "\\ud800"}',
    "not a number": '{"format": NaN}',
    "a number that Python refuses": '{"format": ' + "9" * 5000 + "}",
}
NOT_UTF8 = b'{"format": "\xff"}'
ALL = {**{name: text.encode() for name, text in DAMAGED.items()}, "not UTF-8": NOT_UTF8}


@pytest.fixture(params=ALL.values(), ids=ALL)
def damaged(request: pytest.FixtureRequest) -> bytes:
    return request.param


def put(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


class TestHelpers:
    def test_the_error_names_the_file_and_the_reason(self, tmp_path):
        path = put(tmp_path, "a.json", "[]")
        with pytest.raises(DamagedFileError) as raised:
            read_json(path, "a lock")
        assert str(path) in raised.value.message
        assert "not a JSON object" in raised.value.message
        assert raised.value.hint

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (RecursionError(), "nested too deeply"),
            (MemoryError(), "asks for more memory than there is"),
            (KeyError("files"), "has no 'files'"),
            (ValueError("x" * 10_000), "x..."),
            (ValueError("\ud800"), "\\ud800"),
            (OverflowError(), "OverflowError"),
        ],
    )
    def test_whatever_goes_wrong(self, error, words):
        with pytest.raises(DamagedFileError) as raised, reading("a.bin", "a library"):
            raise error
        assert words in raised.value.message
        assert len(raised.value.message) < 1000
        raised.value.message.encode()

    def test_only_regular_files_are_opened(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
            with pytest.raises(DamagedFileError, match="not a regular file"):
                read_bytes(path, "a lock")

    def test_large_files_are_refused_before_they_are_read(self, tmp_path):
        with (tmp_path / "large").open("wb") as file:
            file.truncate(MAX_DOCUMENT_BYTES + 1)
        with pytest.raises(DamagedFileError, match="more than 32 MiB"):
            read_bytes(tmp_path / "large", "a lock")

    def test_damage(self, damaged):
        if damaged == b"{}":
            return
        with pytest.raises(DamagedFileError):
            parse_json(damaged, "a.json", "a lock")

    def test_remembered(self, tmp_path):
        path = put(tmp_path, "a.json", '{"a": 1}')
        assert read_cache_file(path, lambda told: told["a"]) == 1
        assert read_cache_file(path, lambda told: told["b"]) is None
        assert read_cache_file(tmp_path / "none", lambda told: told) is None


class TestCaches:
    """What is remembered and damaged is asked again, and never an error."""

    def test_files_that_kbuild_wrote(self, tmp_path, damaged):
        put(tmp_path, MANIFEST, damaged)
        assert read_manifest(tmp_path) == {}

    def test_commit_that_pip_recorded(self, tmp_path, damaged):
        put(tmp_path, "kbuild-1.dist-info/direct_url.json", damaged)
        assert _installed_from(tmp_path / "kbuild") is None

    def test_log_of_units(self, tmp_path, damaged):
        good = '{"unit": "a", "variant": "v", "language": "CXX", "start": 1, "end": 2, '
        good += '"status": 0, "cache": "hit"}'
        odd = good.replace('"start": 1', '"start": []')
        long = good.replace('"end": 2', '"end": 1e999')
        path = put(tmp_path, "units.jsonl", b"\n".join([damaged, odd.encode(), long.encode()]))
        with path.open("a") as file:
            file.write(f'\n{{"unit": "b"}}\n{{"warning": []}}\n{good}\n')
        log = read_log(path)
        assert [unit.unit for unit in log.units] == ["a"]
        assert log.warnings == ("[]",)

    def test_journal(self, tmp_path, damaged):
        lines = [
            damaged,
            b'{"done": "a", "times": {"x": 1}}',
            b'{"done": "a", "times": []}',
            b'{"done": "a", "default": []}',
            b'{"crashed": "a"}',
            b'{"crashed": "a", "candidate": 1e999, "reason": ""}',
            b'{"done": "b", "times": {"0": 1.5}}',
        ]
        journal = Journal(put(tmp_path, "journal.jsonl", b"\n".join(lines)))
        assert journal.outcome("a") is None
        assert journal.contenders("a", [0]) == [0]
        outcome = journal.outcome("b")
        assert outcome is not None
        assert outcome.times == {0: 1.5}

    def test_store_entry(self, tmp_path, damaged):
        for name in ("entry.json", "members.json"):
            put(tmp_path, f"cuda-13.0-0/{name}", damaged)
        (entry,) = Store(tmp_path).entries()
        with pytest.raises(DamagedFileError, match=r"(?s)cuda-13\.0-0.*toolchain prune"):
            _ = entry.version


class TestDocuments:
    """What is asked for by name and damaged is an error of kbuild's with the file's name."""

    @pytest.mark.parametrize(
        ("name", "read", "kind"),
        [
            ("torch-cpu/metadata.json", lambda p: read_metadata(p.parent), MetadataError),
            ("lock.json", read_lock, ToolchainError),
            (
                "tuned/x.json",
                lambda p: read_table_files(p.parents[1], ("tuned/x.json",)),
                ConfigError,
            ),
            ("results/x.json", lambda p: read_results(p.parent), CardError),
            ("v/aot.json", lambda p: read_op_manifest(p.parent), UsageError),
        ],
    )
    def test_damage(self, tmp_path, damaged, name, read: Callable[[Path], object], kind):
        with pytest.raises(KbuildError) as raised:
            read(put(tmp_path, name, damaged))
        assert isinstance(raised.value, kind)

    @pytest.mark.parametrize("name", ["a.json", "a.toml"])
    @pytest.mark.parametrize("data", [NOT_UTF8, b"a = " + b"[" * 5000, DEEP.encode()])
    def test_shapes(self, tmp_path, name, data):
        with pytest.raises(ConfigError):
            read_shapes(put(tmp_path, name, data), ())

    def test_integers_without_end(self, tmp_path):
        with pytest.raises(ConfigError, match="an integer has more than 64 bits"):
            read_shapes(put(tmp_path, "a.toml", f"a = [{{M = 0x{'f' * 5000}}}]".encode()), ())

    def test_times_that_no_chart_can_show(self, tmp_path):
        for mean in (1e-300, 1e300, float("inf"), "1e999", -1):
            timing = {"workload": "a", "timingResults": {"mean_ms": mean}}
            put(tmp_path, "a.json", json.dumps({"results": [timing]}))
            with pytest.raises(CardError):
                read_results(tmp_path)

    def test_a_deviation_of_one_measurement(self, tmp_path):
        timing = {"mean_ms": 1, "std_ms": float("nan"), "iterations": "many"}
        document = {"results": [{"workload": "a", "timingResults": timing}]}
        put(tmp_path, "a.json", json.dumps(document))
        (run,) = read_results(tmp_path)
        assert (run.timings[0].deviation, run.timings[0].iterations) == (None, None)

    @pytest.mark.parametrize(
        "wheel",
        [
            {"filename": "../a-1.whl", "sha256": "0" * 64, "size": 1},
            {"filename": 1, "sha256": "0" * 64, "size": 1},
            {"filename": "a-1.whl", "sha256": "x", "size": 1},
            {"filename": "a-1.whl", "sha256": "0" * 64, "size": "1"},
            {"filename": "a-1.whl", "sha256": "0" * 64, "size": 1, "more": 1},
        ],
    )
    def test_wheels_of_a_lock(self, tmp_path, wheel):
        release = {"2.13": {"version": "2.13.0", "wheels": [wheel]}}
        path = put(tmp_path, "l.json", json.dumps({"format": 1, "cuda": {}, "torch": release}))
        with pytest.raises(ToolchainError, match=r"l\.json"):
            read_lock(path)

    @pytest.mark.parametrize("key", ["cuda", "torch", "runtimes", "tvm_ffi"])
    @pytest.mark.parametrize("value", [[], None, {"1": 1}, {"1": {}}])
    def test_shapes_of_a_lock(self, tmp_path, key, value):
        lock = {"format": 1, "cuda": {}, "torch": {}, key: value}
        path = put(tmp_path, "l.json", json.dumps(lock))
        with pytest.raises(ToolchainError, match=re.escape(str(path))):
            read_lock(path)

    @pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
    def test_metadata_is_none(self, tmp_path, text):
        put(tmp_path, "metadata.json", text)
        assert recorded_files(tmp_path) == frozenset()
        assert not is_variant(tmp_path)
        with pytest.raises(MetadataError):
            parse_metadata(text)


class TestOtherPrograms:
    @pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
    def test_nix(self, text):
        assert _settings(text) == {}
        assert _settings(f"{{{text}") == {}
        assert read_event(f"@nix {text}") is None
        assert (
            _parse_answer(ProcessResult((), 0, f'x\n{{"offered"{text}\n{{"offered": {DEEP}}}', 0.0))
            is None
        )

    @pytest.mark.parametrize("offered", ["[]", "1", '{"a": 1}', '{"a": {}}'])
    def test_offers_of_another_shape(self, offered):
        assert (
            _parse_answer(ProcessResult((), 0, f'{{"offered": {offered}, "refused": {{}}}}', 0.0))
            is None
        )

    @pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
    def test_answers_of_the_tuner(self, text):
        assert parse_answer(text) == {}

    @pytest.mark.parametrize(
        "answer", [{"times": 1}, {"times": {"a": 1}}, {"failed": []}, {"default": "0"}]
    )
    def test_outcomes(self, answer):
        with pytest.raises(DamagedFileError):
            RaceOutcome.from_json(answer)

    @pytest.mark.parametrize("value", ["(" * 500, "[" * 5000, "-" * 5000 + "1", "{[]}", "'"])
    def test_settings_of_pip(self, value):
        assert settings_from(f"global.timeout={value}\nglobal.cert={value}").cert == value

    @pytest.mark.parametrize(
        "source", [b"\xff", b"x = " + b"(" * 5000, b"x = " + b"-" * 5000 + b"1", b"\0", b"def ("]
    )
    def test_versions_of_a_damaged_installation(self, tmp_path, source):
        assert assignments(str(put(tmp_path, "version.py", source))) == {}

    def test_bundles(self, tmp_path, damaged):
        assert _signed_digest(put(tmp_path, "m.sigstore", damaged)) is None


class TestHub:
    @pytest.mark.parametrize(
        "answer",
        [
            {"orgs": 1},
            {"orgs": [{}]},
            {"orgs": ["a"]},
            {"auth": [1]},
            {"auth": {"accessToken": "a"}},
            {"auth": {"accessToken": {"role": "fineGrained", "fineGrained": [1]}}},
            {"auth": {"accessToken": {"role": "fineGrained", "fineGrained": {"scoped": [1]}}}},
        ],
    )
    def test_accounts_of_another_shape(self, answer):
        with pytest.raises(DamagedFileError, match="whoami"):
            account_of(answer)

    @pytest.mark.parametrize("path", ["../a", "a/../../b", "/etc/passwd", "", "."])
    def test_a_listing_that_leads_out_of_the_repository(self, path):
        pytest.importorskip("huggingface_hub")
        from huggingface_hub import RepoFile

        class Api:
            def list_repo_tree(self, *_, **__):
                return [RepoFile(path=path, size=1, oid="a")]

        with pytest.raises(HubError):
            HubClient(Api()).tree(Repo("o/k"), "a")

    def test_a_library_that_stumbles_over_an_answer(self):
        class Api:
            def list_repo_refs(self, *_, **__):
                return {}["branches"]

        with pytest.raises(HubError, match=r"asking the Hub .* failed"):
            HubClient(Api()).refs(Repo("o/k"))


class TestNames:
    """Names that a file tells, and no file system can have."""

    LONG = "a" * 5000

    @pytest.mark.parametrize("name", [LONG, "a\0b", "a/" * 3000])
    def test_includes(self, tmp_path, name):
        put(tmp_path, "a.cpp", f'#include "{name}.h"\n')
        tree = SourceTree(tmp_path)
        assert IncludeGraph(tree).reachable(["a.cpp"], ("include",)) == ("a.cpp",)
        assert not tree.is_dir(name)

    @pytest.mark.parametrize(
        "message",
        [
            f"error: path '/nix/store/{'a' * 32}-source/{LONG}' does not exist",
            f"{LONG}:1: no",
            f"error: at /x/flake.nix:{'9' * 5000}:1: no",
        ],
    )
    def test_errors_of_nix(self, tmp_path, message):
        line = json.dumps({"action": "msg", "level": 0, "msg": message, "raw_msg": message})
        assert str(evaluation_error(f"@nix {line}", tmp_path))
