"""Tuned tables: on disk, merged, stale."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbuild.ops.tuned_tables import (
    TunedRow,
    TunedTable,
    merge_tables,
    parse_table,
    read_tables,
    stale_rows,
    table_path,
    table_text,
    write_table,
)
from kbuild.system.errors import ConfigError
from tests.support.sections import op_of, text_of

DTYPES = tuple((name, "float16") for name in ("x", "w", "b", "out"))
ROW = TunedRow("k", "k", 0, DTYPES, (64,), (("BLOCK", 128),), (("num_warps", 4),), 10.0, 20.0)
TABLE = TunedTable(
    "NVIDIA H200",
    "sm_90",
    (ROW, replace(ROW, key=(16,), microseconds=5.0004)),
    "580.159",
    (("torch", "2.13.0"), ("kbuild", "1")),
)


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_table(text, "tuned/x.json")
    assert all(problem.hint for problem in caught.value.problems)
    return [str(problem).split("\n")[0] for problem in caught.value.problems]


def changed(**fields) -> str:
    """The table's text with fields of its second row changed."""
    data = json.loads(table_text(TABLE))
    data["rows"][1] |= fields
    rows = ",\n".join(json.dumps(row) for row in data.pop("rows"))
    return "{\n" + json.dumps(data)[1:-1] + ',\n"rows": [\n' + rows + "]}"


class TestFile:
    def test_there_and_back(self, tmp_path):
        path = write_table(tmp_path, TABLE)
        assert path == "tuned/nvidia-h200.json"
        (read,) = read_tables(tmp_path, (path,))
        assert [row.key for row in read.rows] == [(16,), (64,)]
        assert read == replace(
            TABLE,
            rows=(replace(ROW, key=(16,), microseconds=5.0), ROW),
            versions=(("kbuild", "1"), ("torch", "2.13.0")),
        )

    def test_how_far_apart_processes_were(self):
        """It is in a row where it is known; tables of earlier releases have none."""
        assert '"spread"' not in table_text(TABLE)
        text = table_text(replace(TABLE, rows=(replace(ROW, spread=0.01234),)))
        assert '"default_us": 20.0, "spread": 0.0123}' in text
        assert parse_table(text, "t.json").table.rows[0].spread == 0.0123
        assert refused(changed(spread="wide")) == [
            "tuned/x.json:5: rows[1]: `spread` is not a share"
        ]

    def test_one_row_per_line_sorted(self):
        lines = table_text(TABLE).splitlines()
        rows = [line for line in lines if '"us"' in line]
        assert len(rows) == 2
        assert '"key": [16]' in rows[0]
        assert json.loads(rows[1])["constants"] == {"BLOCK": 128}

    def test_nothing_is_written_when_nothing_changes(self, tmp_path):
        path = tmp_path / write_table(tmp_path, TABLE)
        before = path.stat().st_ino
        write_table(tmp_path, TABLE)
        assert path.stat().st_ino == before

    def test_rows_of_the_file_stay(self, tmp_path):
        write_table(tmp_path, TABLE)
        newer = replace(ROW, constants=(("BLOCK", 256),), microseconds=9.0)
        write_table(
            tmp_path, TunedTable("NVIDIA H200", "sm_90", (newer,), "590.1", (("torch", "3"),))
        )
        (read,) = read_tables(tmp_path, ("tuned/nvidia-h200.json",))
        assert [row.constants for row in read.rows] == [(("BLOCK", 128),), (("BLOCK", 256),)]
        assert (read.driver, dict(read.versions)) == ("590.1", {"torch": "3", "kbuild": "1"})

    def test_another_device_with_the_same_file_name(self, tmp_path):
        write_table(tmp_path, TABLE)
        with pytest.raises(ConfigError, match="is for NVIDIA H200"):
            write_table(tmp_path, replace(TABLE, device="NVIDIA-H200"))

    @pytest.mark.parametrize(
        ("device", "path"),
        [
            ("NVIDIA GeForce RTX 4090", "tuned/nvidia-geforce-rtx-4090.json"),
            ("AMD Instinct MI300X / OAM", "tuned/amd-instinct-mi300x-oam.json"),
            ("../..", "tuned/device.json"),
        ],
    )
    def test_names(self, device, path):
        assert table_path(device) == path


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('{\n "format": 1,\n oops }', "tuned/x.json:3: cannot be read: not JSON"),
            ('{"format": NaN}', "`NaN` is not a number"),
            ('{"format": 2}', "this kbuild reads 1"),
        ],
    )
    def test_a_file_that_is_no_table(self, text, words):
        assert words in refused(text)[0]

    def test_all_that_the_head_lacks(self):
        said = refused('{"format": 1, "rows": {}, "arch": "sm_90a"}')
        assert [line.split(": ")[1] for line in said] == ["device", "rows", "arch"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"launch": "0"},
            {"launch": -1},
            {"launch": True},
            {"key": ["a"]},
            {"dtypes": {"x": 1}},
            {"constants": {"B": [1]}},
            {"us": "fast"},
            {"us": -1},
            {"kernel": None},
        ],
        ids=str,
    )
    def test_a_row_with_its_line(self, fields):
        (said,) = refused(changed(**fields))
        assert said.startswith("tuned/x.json:5: rows[1]: `")

    def test_every_file_at_once(self, tmp_path):
        (tmp_path / "a").write_text("{")
        with pytest.raises(ConfigError) as caught:
            read_tables(tmp_path, ("a", "b"))
        assert {problem.file for problem in caught.value.problems} == {"a", "b"}


class TestMerge:
    def test_the_newer_row_wins_and_others_stay(self):
        newer = replace(TABLE, rows=(replace(ROW, microseconds=1.0),))
        other = TunedTable("NVIDIA H100", "sm_90", (ROW,))
        merged = merge_tables([TABLE, other, newer])
        assert [table.device for table in merged] == ["NVIDIA H100", "NVIDIA H200"]
        assert [row.microseconds for row in merged[1].rows] == [5.0004, 1.0]

    def test_the_order_of_dtypes_is_no_difference(self):
        turned = replace(ROW, dtypes=tuple(reversed(DTYPES)))
        (merged,) = merge_tables([TABLE, replace(TABLE, rows=(turned,))])
        assert len(merged.rows) == 2

    def test_of_different_devices(self):
        with pytest.raises(ValueError, match="is not NVIDIA H200"):
            TABLE.merged(replace(TABLE, device="NVIDIA B200"))


class TestStale:
    OPS = (op_of(text_of(key='["N"]')),)

    def of(self, **fields):
        text = table_text(replace(TABLE, rows=(replace(ROW, **fields),)))
        file = parse_table(text, "tuned/x.json")
        return [problem.message for problem in stale_rows(file, self.OPS)]

    def test_what_is_there(self):
        assert self.of() == []

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"kernel": "kk"}, "there is no kernel `kk`"),
            ({"op": "l"}, "`k` has no op `l`"),
            ({"launch": 1}, "`k` has no launch 1"),
            ({"key": (1, 2)}, "its key has 2 values, that of `k` 1"),
            ({"dtypes": (("x", "float64"),)}, "`k` is not compiled for these dtypes"),
            ({"constants": (("BLOCK", 64),)}, "no candidate is { BLOCK = 64, num_warps = 4 }"),
            ({"options": ()}, "no candidate is { BLOCK = 128 }"),
        ],
        ids=str,
    )
    def test_what_is_not(self, fields, words):
        assert self.of(**fields) == [words]

    def test_it_is_a_warning_with_its_line(self):
        file = parse_table(table_text(replace(TABLE, rows=(replace(ROW, op="l"),))), "t.json")
        (problem,) = stale_rows(file, self.OPS)
        assert problem.severity == "warning"
        assert (
            '"op": "l"'
            in table_text(TABLE).replace('"op": "k"', '"op": "l"').splitlines()[problem.line - 1]
        )

    def test_candidates_that_only_the_kernel_knows(self):
        ops = (op_of(text_of(configs='"autotune"', key='["N"]')),)
        assert stale_rows(parse_table(table_text(TABLE), "t.json"), ops) == ()
