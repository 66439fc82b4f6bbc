"""Readers of documents: metadata, locks, caches, tables, and what other programs write."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fuzzing.common import EXAMPLES, VARIANT, put, text_of

from kbuild.system.errors import KbuildError


def metadata(data: bytes, folder: Path) -> object:
    """`metadata.json` through every door."""
    from kbuild.checks.base import Output
    from kbuild.checks.report import CheckSelection, run_selected_checks
    from kbuild.pipeline.package import is_variant
    from kbuild.plan.digest import recorded_files
    from kbuild.project.variant import Variant

    root = folder / VARIANT
    put(root, "metadata.json", data)
    recorded_files(root)
    is_variant(root)
    output = Output(root, Variant.parse(VARIANT))
    wanted = CheckSelection(only=("metadata", "layout", "depends"))
    return run_selected_checks(output, wanted.checks(), wanted).to_json()


def digest(data: bytes, folder: Path) -> object:
    """`kbuild sign --hash` reads what it does not know as well."""
    from kbuild.cli.signatures import _update_digest

    root = folder / VARIANT
    put(root, "metadata.json", data)
    _update_digest(root, dry=True)
    return _update_digest(root, dry=False)


def created_files(data: bytes, folder: Path) -> object:
    from kbuild.system.files import MANIFEST, read_manifest

    put(folder, MANIFEST, data)
    return read_manifest(folder)


def lock(data: bytes, folder: Path) -> object:
    from kbuild.toolchains.wheels.lock import read_lock

    lock = read_lock(put(folder, "lock.json", data))
    _ = lock.pinned, lock.dumps()
    return None


def project_entries(data: bytes, folder: Path) -> object:
    """Entries that a project came with: whole, and of any shape."""
    from kbuild.build.state import read_state
    from kbuild.cli.unchanged import repeat_build
    from kbuild.pipeline.nix_build import is_current_copy
    from kbuild.system.cache import LOADED_VARIANT, PROJECT_KINDS, Cache
    from kbuild.system.record import read_record, texts
    from kbuild.system.workspace import Workspace

    space = Workspace(folder, VARIANT)
    for root in (space.root, space.root.parent):
        for kind in PROJECT_KINDS:
            Cache(root, kind).put("", data)
    record = read_record(Cache(space.root, LOADED_VARIANT), parse=texts("variant", "module"))
    return (
        read_state(space.root) is None,
        is_current_copy(space, "/nix/store/x", folder),
        record and record.holds(folder, folder),
        repeat_build(("build", str(folder))),
    )


def entry_seeds() -> list[bytes]:
    from kbuild.system.cache import FACTS, Cache

    return [Cache("", FACTS).pack("abcd", *parts) for parts in ((b"{}",), (b"a", b"", b"bc"), ())]


def entry(data: bytes, folder: Path) -> object:
    """An entry of the cache."""
    from kbuild.system.cache import FACTS, Cache

    cache_ = Cache(folder, FACTS)
    put(folder, f"{FACTS.name}/ab/cd", data)
    return cache_.first_part("abcd"), cache_.get_json("abcd", dict), list(cache_.entries())


def images(data: bytes, folder: Path) -> object:
    """Images that a worker sent, and a description."""
    from kbuild.dsl.image_cache import ImageCache, parse_image_entry
    from kbuild.system.cache import DESCRIPTIONS, Cache

    Cache(folder, DESCRIPTIONS).put("abcd", data)
    return ImageCache(folder).described("abcd"), parse_image_entry(data, b"", name="an image")


def units(data: bytes, folder: Path) -> object:
    from kbuild.build.unit_log import read_log

    log = read_log(put(folder, "units.jsonl", data))
    return log.counts(VARIANT), [(unit.seconds, unit.cpu) for unit in log.units], log.warnings


def store(data: bytes, folder: Path) -> object:
    from kbuild.system.store import Store

    put(folder, "cuda-13.0-0123456789ab/entry.json", data)
    put(folder, "cuda-13.0-0123456789ab/members.json", data)
    entries = list(Store(folder).entries())
    return [(entry.name, entry.version, entry.facts, entry.members) for entry in entries]


def tuned(data: bytes, folder: Path) -> object:
    from kbuild.ops.tuned_tables import read_table_files, table_text

    put(folder, "tuned/gpu.json", data)
    return [table_text(file.table) for file in read_table_files(folder, ("tuned/gpu.json",))]


def shapes(data: bytes, folder: Path) -> object:
    from kbuild.dsl.tune.cases import read_shapes

    for name in ("shapes.json", "shapes.toml"):
        try:
            read_shapes(put(folder, name, data), ops())
        except KbuildError as error:
            str(error)
    return None


@cache
def ops() -> tuple[Any, ...]:
    import tomli

    from kbuild.ops.section import read_section

    document = tomli.loads((EXAMPLES / "gemm-triton/build.toml").read_text())
    return tuple(
        op for name, section in document["kernel"].items() for op in read_section(name, section).ops
    )


def journal(data: bytes, folder: Path) -> object:
    from kbuild.dsl.tune.results import Journal

    journal = Journal(put(folder, "journal.jsonl", data))
    return journal.outcome("a"), journal.contenders("a", [0, 1])


def results(data: bytes, folder: Path) -> object:
    from kbuild.publish.card.facts import read_results

    put(folder, "results/a.json", data)
    return read_results(folder / "results")


def description(data: bytes, folder: Path) -> object:
    from kbuild.ops.manifest import read_manifest

    put(folder, "aot.json", data)
    return read_manifest(folder).measured()


def image(data: bytes, folder: Path) -> object:
    """What a worker of a Python DSL answers of an image."""
    from kbuild.ops.image import KernelImage
    from kbuild.system.untrusted import read_json

    return KernelImage.from_json(read_json(put(folder, "image.json", data), "an image")).to_json()


def bundle(data: bytes, folder: Path) -> object:
    from kbuild.publish.signing import verify

    file = put(folder, "metadata.json.sigstore", data)
    verify._signed_digest(file)  # noqa: SLF001 - what `verify` asks first
    try:
        return verify._read_bundle(file)  # noqa: SLF001
    except verify._VerificationError as refused:  # noqa: SLF001
        return str(refused)


def direct_url(data: bytes, folder: Path) -> object:
    from kbuild.pipeline.package import running_builder
    from kbuild.system.processes import ProcessResult

    class Silent:
        def run(self, *_: object, **__: object) -> ProcessResult:
            return ProcessResult((), 1, "", 0.0)

    put(folder, "kbuild-1.dist-info/direct_url.json", data)
    return running_builder(Silent(), folder / "kbuild")


def account(data: bytes, _folder: Path) -> object:
    from kbuild.publish.hub.huggingface import account_of
    from kbuild.publish.hub.repository import Repo
    from kbuild.system.untrusted import parse_json

    return account_of(parse_json(data, "whoami", "an answer of the Hub")).write_problem(Repo("o/k"))


def nix_output(data: bytes, folder: Path) -> object:
    from kbuild.pipeline.nix.flake import _parse_answer, evaluation_error, read_event
    from kbuild.pipeline.nix.program import _settings
    from kbuild.system.errors import KbuildError
    from kbuild.system.processes import ProcessResult

    text = text_of(data)
    _parse_answer(ProcessResult((), 0, text, 0.0))
    _settings(text)
    for line in text.splitlines():
        read_event(line)
    error = evaluation_error(text, folder)
    return isinstance(error, KbuildError) and str(error)


def depfile(data: bytes, _folder: Path) -> object:
    from kbuild.build.unit.inputs import parse_depfile, parse_plain_depfile

    text = data.decode("utf-8", "surrogateescape")
    return parse_plain_depfile(text), parse_depfile(text)


def hashes(data: bytes, folder: Path) -> object:
    """A memory file of hashes that is damaged."""
    from kbuild.build.unit.inputs import FileHashes

    source = put(folder, "a.h", b"int a;\n")
    hashes = FileHashes(str(folder / "memory"))
    known = hashes.of(str(source))
    hashes.save()
    for file in (path for path in (folder / "memory").rglob("*") if path.is_file()):
        file.write_bytes(data)
    if FileHashes(str(folder / "memory")).of(str(source)) is None:
        raise AssertionError("a file that is there has no hash")
    return known


def ninja(data: bytes, folder: Path) -> object:
    from kbuild.build.ninja import NinjaOutput, first_error_lines

    output = NinjaOutput(lambda *_: None, folder)
    lines = text_of(data).splitlines()
    for line in lines:
        output.listen(line)
    return output.errors.excerpt, first_error_lines(lines)


def pip_settings(data: bytes, _folder: Path) -> object:
    from kbuild.toolchains.wheels.settings import settings_from

    return settings_from(text_of(data))


def tune_answer(data: bytes, _folder: Path) -> object:
    from kbuild.dsl.tune.host import parse_answer
    from kbuild.dsl.tune.results import RaceOutcome

    return RaceOutcome.from_json(parse_answer(text_of(data)))
