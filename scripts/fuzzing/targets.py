"""What `fuzz.py` attacks. To add a reader: a function beside those like it, and a line here."""

from __future__ import annotations

import json

from fuzzing import archives, binaries, documents, projects, seeds, sources
from fuzzing.common import BYTES, ELF, JSON, SHA, TEXT, VARIANT, Target, files_of, json_of, texts_of
from fuzzing.mutations import mutate_bytes, mutate_json_lines, mutate_toml


def _errors(*names: str) -> tuple[type[Exception], ...]:
    """Errors of kbuild's own that are no `KbuildError`: their callers give them file and line."""
    from importlib import import_module

    found = (name.rpartition(".") for name in names)
    return tuple(getattr(import_module(f"kbuild.{module}"), name) for module, _, name in found)


TARGETS: tuple[Target, ...] = (
    Target(
        "build.toml",
        projects.build_toml,
        files_of("examples/*/build.toml"),
        (mutate_toml, *TEXT),
        0.5,
    ),
    Target(
        "build.toml-rules",
        projects.build_toml_rules,
        files_of("examples/*/build.toml"),
        (mutate_toml, mutate_toml, *TEXT),
        3,
    ),
    Target(
        "expression",
        projects.expression,
        texts_of(*seeds.EXPRESSIONS),
        TEXT,
        60,
        _errors("ops.expression.ExpressionError"),
    ),
    Target(
        "schema",
        projects.schema,
        texts_of(*seeds.SCHEMAS),
        TEXT,
        60,
        _errors("ops.schema.parser.SchemaError"),
    ),
    Target(
        "variant-name",
        projects.variant_name,
        texts_of(
            VARIANT,
            "torch-stable-abi211-cu130-x86_64-linux",
            "tvm-ffi01-cpu-aarch64-darwin",
            "torch-cuda",
            "x86_64-linux",
        ),
        TEXT,
        70,
    ),
    Target(
        "hub-spec",
        projects.hub_spec,
        texts_of("hub:org/kernel@v1", "hub:o/k@" + "a" * 40),
        TEXT,
        70,
    ),
    Target(
        "version", projects.version, texts_of("13.0", "2.13.1", "2026"), TEXT, 70, (ValueError,)
    ),
    Target("arch", projects.arch, texts_of("9.0a+PTX", "12.1", "gfx942", "10.0f"), TEXT, 70),
    Target("metadata", documents.metadata, json_of(seeds.METADATA), JSON, 4),
    Target("hash", documents.digest, json_of(seeds.METADATA), JSON, 12),
    Target(
        "created-files",
        documents.created_files,
        json_of({"files": {"setup.py": SHA, "a/b": SHA}}),
        JSON,
        40,
    ),
    Target(
        "lock",
        documents.lock,
        json_of(
            {
                "format": 1,
                "cuda": {"13.0": seeds.TOOLKIT},
                "torch": {"2.13": seeds.RELEASE},
                "runtimes": {"13.0": seeds.TOOLKIT},
                "tvm_ffi": {"0.1": seeds.RELEASE},
            }
        ),
        JSON,
        20,
    ),
    Target(
        "project-entries",
        documents.project_entries,
        json_of(
            {
                "answer": {
                    "plan": "p",
                    "variant": "v",
                    "module": "m",
                    "output": "/nix/store/x",
                    "target": "t",
                    "sandbox": "",
                },
                "observed": {"a": seeds.LOOK},
                "kbuild": "k",
                "until": None,
            },
        ),
        JSON,
        25,
    ),
    Target("entry", documents.entry, documents.entry_seeds, BYTES, 20),
    Target(
        "image-cache",
        documents.images,
        lambda: [
            *json_of(
                {
                    "code": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                    "image": None,
                    "reason": "r",
                }
            )(),
            b'{"functions": {}}',
        ],
        JSON,
        12,
    ),
    Target(
        "units",
        documents.units,
        lambda: [
            b"\n".join(
                json.dumps(one).encode() for one in (seeds.UNIT, {"warning": "w"}, seeds.UNIT)
            )
        ],
        (mutate_json_lines, mutate_json_lines, mutate_bytes),
        20,
    ),
    Target(
        "store",
        documents.store,
        json_of(
            {"recipe": {"kind": "cuda", "version": "13.0", "inputs": {}}, "size": 1, "files": 2},
            {"a": SHA},
        ),
        JSON,
        15,
    ),
    Target("tuned-table", documents.tuned, json_of(seeds.TABLE), JSON, 30),
    Target(
        "shapes",
        documents.shapes,
        lambda: [b'{"gemm": {"cases": [{"M": 1}], "sizes": {"M": [1, 2]}}}', b"gemm = [{M = 1}]\n"],
        JSON,
        10,
    ),
    Target(
        "journal",
        documents.journal,
        lambda: [
            b"\n".join(
                json.dumps(one).encode()
                for one in (
                    {"done": "a", **seeds.OUTCOME},
                    {"crashed": "a", "candidate": 1, "reason": "r"},
                )
            )
        ],
        (mutate_json_lines, mutate_json_lines, mutate_bytes),
        30,
    ),
    Target("results", documents.results, json_of(seeds.RESULTS), JSON, 5),
    Target("aot.json", documents.description, seeds.description_seeds, JSON, 5),
    Target("image", documents.image, seeds.image_seeds, JSON, 30, (ValueError,)),
    Target(
        "bundle",
        documents.bundle,
        json_of(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {"certificate": {"rawBytes": "YQ=="}, "tlogEntries": []},
                "messageSignature": {
                    "messageDigest": {"algorithm": "SHA2_256", "digest": "YQ=="},
                    "signature": "YQ==",
                },
            }
        ),
        JSON,
        5,
    ),
    Target(
        "direct-url", documents.direct_url, json_of({"vcs_info": {"commit_id": "A" * 40}}), JSON, 15
    ),
    Target("hub-account", documents.account, json_of(seeds.ACCOUNT), JSON, 30),
    Target(
        "nix-output", documents.nix_output, texts_of(*seeds.NIX), (*TEXT, mutate_json_lines), 15
    ),
    Target(
        "depfile", documents.depfile, texts_of("a.o: a.cpp \\\n b\\ c.h \\\n $$d.h\n"), TEXT, 15
    ),
    Target(
        "hash-memory",
        documents.hashes,
        texts_of("1\t2\t3\t4\tabcd\ta.h\n5\t6\t7\t8\tef\tb.h"),
        TEXT,
        12,
    ),
    Target(
        "ninja",
        documents.ninja,
        texts_of(
            "[1/3] Building CXX object a.dir/r/a.cpp.o\nFAILED: [code=1] a.o\ng++ a\n"
            "a.cpp:1:2: error: no\nninja: build stopped: subcommand failed.\n"
        ),
        TEXT,
        20,
    ),
    Target(
        "pip-settings",
        documents.pip_settings,
        texts_of("global.index-url='https://x/simple'\n:env:.timeout='9'\nglobal.cert='/a'\n"),
        TEXT,
        25,
    ),
    Target("tune-answer", documents.tune_answer, json_of({"done": "a", **seeds.OUTCOME}), JSON, 20),
    Target("elf", binaries.elf, binaries.elf_seeds, ELF, 10),
    Target("elf-checks", binaries.checked_elf, binaries.elf_seeds, ELF, 2),
    Target("device-code", binaries.device_code, binaries.elf_seeds, ELF, 10),
    Target("fatbin", binaries.carried(".nv_fatbin"), binaries.device_seeds("fatbin"), BYTES, 10),
    Target("hip-bundle", binaries.carried(".hip_fatbin"), binaries.device_seeds("hip"), BYTES, 5),
    Target(
        "loose-images",
        binaries.carried(".kbuild_images"),
        binaries.device_seeds("loose"),
        (*ELF, *TEXT),
        10,
    ),
    Target("mach-o", binaries.macho, binaries.macho_seeds, BYTES, 15),
    Target("object-archive", binaries.object_archive, binaries.archive_seeds, (*BYTES, *TEXT), 15),
    Target("wheel", archives.wheel, archives.wheel_seeds, BYTES, 8),
    Target(
        "object-inputs",
        archives.object_inputs,
        texts_of(
            "kbuild-inputs 1\n6\t1\t1\t1\tab\tROOT/CMakeFiles/a.dir/a.cpp.o\n"
            "1\t2\t3\t4\tcd\tROOT/a.h\n0\t0\t0\t0\t-\tROOT/b.h"
        ),
        TEXT,
        12,
    ),
    Target(
        "cache-record",
        archives.cache_record,
        lambda: [f"{SHA}\nfirst\ta.h\t{SHA}\t<root>/a.h".encode()],
        TEXT,
        12,
        (ValueError,),
    ),
    Target(
        "memory-ledger",
        archives.ledger,
        texts_of("PID r 10 1.000 5 1\nPID w 10 2.000 0 2\n"),
        TEXT,
        12,
    ),
    Target(
        "c++",
        sources.cxx,
        lambda: [*texts_of(*seeds.CXX)(), *files_of("examples/*/torch-ext/*.cpp")()],
        TEXT,
        4,
    ),
    Target("includes", sources.includes, texts_of(*seeds.CXX), TEXT, 15),
    Target(
        "python",
        sources.python,
        lambda: [*texts_of(*seeds.PYTHON)(), *files_of("examples/*/torch-ext/*/*.py", most=8)()],
        TEXT,
        1.5,
    ),
    Target("docstring", sources.docstring, texts_of(*seeds.DOCS), TEXT, 15),
    Target("card", sources.card, files_of("examples/*/CARD.md", "templates/**/CARD.md"), TEXT, 15),
    Target(
        "version.py",
        sources.version_file,
        texts_of("__version__ = '2.13.0+cpu'\ncuda: str | None = None\nhip = None\n"),
        TEXT,
        25,
        (SyntaxError,),
    ),
)
