"""What comes with a report or stands behind one: measurements, bundles, keys, signers, studies."""

import copy
import io
import json
import os
import shutil
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from recompute_core.comparing.compare import compare
from recompute_core.comparing.imported import read_document, read_file
from recompute_core.errors import InputError
from recompute_core.reports import keys
from recompute_core.reports.bundle import EVIDENCE, PUBLIC_KEY, REPORT, Bundle, write_bundle, zip_of
from recompute_core.reports.evidence import Evidence
from recompute_core.reports.recheck_history import statement_digest
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.signers import load_signers
from recompute_core.reports.strict_json import canonical
from recompute_core.reports.verification import Verification
from recompute_core.reports.verify import verify, verify_path, verify_zip
from recompute_core.results import StudyResult
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from recompute_core.supplied import evidence_of_file, judge_supplied, read_supplied
from recompute_core.words import printable
from tests.pages import studies
from tests.reports import decisions, figures
from tests.reports.signing import ANN, LATER, SIGNERS

from .inputs import NASTY, as_json, mutated, mutated_bytes, texts, values
from .run import Kind

# --- measurements ----------------------------------------------------------------------------

THREE = {
    "plain": {"peak_allocated_mb": 82e3, "median_update_ms": 1300, "largest_gradient_gap": 0},
    "candidate": {"peak_allocated_mb": 41e3, "median_update_ms": 1500, "largest_gradient_gap": 1e-7},
    "thresholds": {"peak_ratio": 0.9},
}
_CSV_TOKENS = (b",", b'"', b"\t", b";", b"1e999", b"nan", b"-1", b"0", b"provenance.x", b"shape", b"=")


def _measurements() -> st.SearchStrategy[tuple[str, bytes, Any]]:
    documents = st.one_of(mutated(figures.measurements), mutated(lambda: THREE), values).map(as_json)
    raw = mutated_bytes(lambda: figures.as_bytes(figures.measurements()))
    return st.tuples(
        st.just("m.json"),
        st.one_of(documents, documents, raw, st.sampled_from(NASTY).map(_utf8)),
        st.one_of(st.none(), st.none(), st.dictionaries(texts, values, max_size=2), values),
    )


def _tables() -> st.SearchStrategy[tuple[str, bytes, Any]]:
    cells = [line.split(",") for line in figures.CSV.splitlines()]
    tables = mutated(lambda: cells).map(
        lambda rows: (
            "\n".join(
                ",".join(map(_text, row if isinstance(row, list) else [row])) for row in rows
            ).encode("utf-8", "surrogatepass")
            if isinstance(rows, list)
            else b""
        )
    )
    return st.tuples(
        st.just("m.csv"),
        st.one_of(tables, mutated_bytes(figures.CSV.encode, _CSV_TOKENS)),
        st.none(),
    )


def _text(cell: Any) -> str:
    try:
        return str(cell)
    except ValueError:  # a number of more digits than Python writes
        return "9" * 5000


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _read_measurements(given: tuple[str, bytes, Any], folder: Path) -> list[str]:
    name, data, settings = given
    path = Path(name)
    path.write_bytes(data)
    found = judge_supplied(read_supplied(path, settings))
    json.dumps(found, allow_nan=False)
    evidence_of_file(path, settings)
    return [printable(found["sentence"]), *(gate["sentence"] for gate in found["gates"])]


# --- bundles ---------------------------------------------------------------------------------


def _said(found: Verification) -> list[str]:
    json.dumps(found.document(), allow_nan=False)
    return [found.sentence, *(check.sentence for check in found.checks), *found.warnings]


def _zips() -> st.SearchStrategy[bytes]:
    whole = mutated_bytes(lambda: zip_of(decisions.honest()), (b"PK\1\2", b"PK\3\4", b"PK\5\6", b"../"))

    @st.composite
    def packed(draw: st.DrawFn) -> bytes:
        """A .zip that is well formed, with other names, links, folders and sizes."""
        files = dict(decisions.honest().files)
        for _ in range(draw(st.integers(1, 3))):
            name = draw(st.one_of(st.sampled_from(sorted(files)), texts, st.sampled_from(_PLACES)))
            files[name] = draw(st.one_of(st.sampled_from(list(files.values())), st.binary(max_size=9)))
        buffer = io.BytesIO()
        kind = draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
        with zipfile.ZipFile(buffer, "w", kind) as archive:
            for name, data in files.items():
                try:
                    about = zipfile.ZipInfo(name)
                    mode = draw(st.sampled_from((0o100644, 0o100644, 0o100644, 0o120777, 0o040755, 0)))
                    about.external_attr = mode << 16
                    archive.writestr(about, data, kind)
                except ValueError:  # names that nothing can write
                    continue
        return buffer.getvalue()

    return st.one_of(whole, packed(), st.binary(max_size=60))


_PLACES = (
    "../outside",
    "evidence/../../outside",
    "/etc/passwd",
    "evidence//x",
    "evidence/",
    "EVIDENCE/cells.json",
    "C:\\x",
    "report.html/x",
    "report.html ",
)


def _read_zip(data: bytes, folder: Path) -> list[str]:
    return _said(verify_zip(data, SIGNERS, LATER))


def _folders() -> st.SearchStrategy[list[tuple[str, str, Any]]]:
    names = st.one_of(
        st.sampled_from(sorted(decisions.honest().files)),
        st.sampled_from(("more", "evidence/more", "evidence/deeper/more", "évidence")),
        st.sampled_from(("a" * 200, "new\nline", "\udcff", "\u202e", ".hidden")),
    )
    targets = st.sampled_from(("../secret", "/etc/passwd", "report.html", "..", "/dev/zero", "nowhere"))
    changes = st.one_of(
        st.tuples(st.just("link"), names, targets),
        st.tuples(st.just("hard"), names, st.sampled_from(("report.html", "public_key.pem"))),
        st.tuples(st.just("pipe"), names, st.none()),
        st.tuples(st.just("folder"), names, st.none()),
        st.tuples(st.just("gone"), names, st.none()),
        st.tuples(st.just("large"), names, st.just(1 << 40)),
        st.tuples(st.just("data"), names, st.binary(max_size=20)),
        st.tuples(st.just("flip"), names, st.integers(0, 10**6)),
        st.tuples(st.just("mode"), names, st.just(0)),
    )
    return st.lists(changes, min_size=1, max_size=3)


def _lay_folder(changes: list[tuple[str, str, Any]], folder: Path) -> None:
    at = folder / "report"
    shutil.rmtree(at, ignore_errors=True)
    (at / "evidence").mkdir(parents=True)
    for name, data in decisions.honest().files.items():
        (at / name).write_bytes(data)
    for what, name, more in changes:
        _change(at, what, name, more)


def _read_folder(changes: list[tuple[str, str, Any]], folder: Path) -> list[str]:
    return _said(verify_path(folder / "report", SIGNERS, LATER))


def _change(at: Path, what: str, name: str, more: Any) -> None:
    path = at / name
    if not path.parent.is_dir() or path.is_dir():
        return
    if what == "mode":
        if path.is_file() and not path.is_symlink():
            path.chmod(more)
        return
    is_small = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24
    data = path.read_bytes() if is_small else b""
    path.unlink(missing_ok=True)
    if what == "link":
        if not str(more).startswith("/"):
            more = "../" * (name.count("/") + 1) + more if more.startswith("..") else more
        path.symlink_to(more)
    elif what == "hard" and (at / more).is_file():
        path.hardlink_to(at / more)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "large":
        with path.open("wb") as file:
            file.truncate(more)
    elif what == "data":
        path.write_bytes(more)
    elif what == "flip" and data:
        number = more % len(data)
        path.write_bytes(data[:number] + bytes([data[number] ^ 1]) + data[number + 1 :])


# --- reports that a trusted key has signed, of evidence that is wrong ------------------------


@cache
def _evidence_names() -> tuple[str, ...]:
    return tuple(name for name in decisions.evidence() if name.endswith(".json"))


def _signed() -> st.SearchStrategy[tuple[str, Any]]:
    def one(name: str) -> st.SearchStrategy[tuple[str, Any]]:
        def make() -> Any:
            return json.loads(decisions.evidence()[name])

        return st.tuples(st.just(name), mutated(make))

    evidence = st.sampled_from(_evidence_names()).flatmap(one)
    said = st.tuples(st.just("said"), mutated(decisions.predicate))
    statement = st.tuples(
        st.just("statement"),
        mutated(lambda: decisions.payload_of(decisions.honest().files[REPORT])),
    )
    return st.one_of(evidence, evidence, said, statement)


def _canonical(value: Any) -> bytes:
    try:
        return canonical(value)
    except (ValueError, TypeError):
        return as_json(value)


def _read_signed(given: tuple[str, Any], folder: Path) -> list[str]:
    name, value = given
    if name == "said":
        bundle = _forged(change=lambda statement: _canonical({**statement, "predicate": value}))
    elif name == "statement":
        bundle = _forged(change=lambda statement: _canonical(value))
    else:
        bundle = _forged(files={**decisions.evidence(), name: _canonical(value)})
    return _said(verify(bundle, SIGNERS, LATER))


def _forged(files: Evidence | None = None, change: Any = lambda statement: statement) -> Bundle:
    """As `decisions.forged`, with the honest page, as nobody writes one of evidence that is wrong."""
    honest = decisions.honest().files
    pages = {name: data for name, data in honest.items() if not name.startswith(EVIDENCE)}
    said = decisions.predicate()
    return decisions.forged(
        said, files, change=change, pages={one: pages[one] for one in ("report.html", "VERIFY.md")}
    )


# --- keys and signers ------------------------------------------------------------------------


def _pem() -> bytes:
    return keys.public_pem(ANN.public_key()).encode()


@cache
def _private() -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from recompute_core.reports import pkcs8

    plain = ANN.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    pem: str | bytes = pkcs8.encrypted_pem(plain, b"correct horse battery")
    return pem if isinstance(pem, bytes) else pem.encode()


def _key_files() -> st.SearchStrategy[tuple[str, bytes, str, int]]:
    tokens = (b"-----BEGIN PUBLIC KEY-----", b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"-----END", b"=")
    public = mutated_bytes(_pem, tokens)
    private = mutated_bytes(_private, tokens)
    return st.tuples(
        st.sampled_from(("file", "file", "file", "link", "pipe", "folder")),
        st.one_of(public, private, st.binary(max_size=40), st.just(b"A" * 70_000), st.just(_private())),
        st.one_of(st.just("correct horse battery"), texts),
        st.sampled_from((0o600, 0o600, 0o644, 0o000)),
    )


def _lay_key(given: tuple[str, bytes, str, int], folder: Path) -> None:
    kind, data, _, mode = given
    path = folder / "key.pem"
    _lay(path, kind, data)
    if kind == "file":
        path.chmod(mode)


def _read_keys(given: tuple[str, bytes, str, int], folder: Path) -> list[str]:
    passphrase, path, said = given[2], folder / "key.pem", []
    readers = (lambda one: keys.load_key(one, passphrase), keys.read_public_key, keys.is_private)
    # A public key may be given by a link; what signs is the file itself.
    for read in readers[:1] if given[0] == "link" else readers:
        try:
            read(path)
        except InputError as error:
            said.append(str(error))
    return said


def _lay(path: Path, kind: str, data: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to("../secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(data)


def _signers() -> st.SearchStrategy[bytes]:
    def many() -> dict[str, Any]:
        found = SIGNERS.document()
        found["signers"] = found["signers"] * 2
        return found

    documents = st.one_of(mutated(SIGNERS.document), mutated(many), values).map(as_json)
    return st.one_of(documents, mutated_bytes(lambda: as_json(SIGNERS.document())))


def _read_signers(data: bytes, folder: Path) -> list[str]:
    path = folder / "signers.json"
    path.write_bytes(data)
    path.chmod(0o600)
    found = load_signers(path)
    return [f"{one.name} {one.state(LATER)}" for one in found.signers]


# --- another's study -------------------------------------------------------------------------


@cache
def _result() -> StudyResult:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        study = studies.filled(store)
        found = assemble(store.study(study), store.cells(study))
        store.close()
    return found


@cache
def _document() -> dict[str, Any]:
    found: dict[str, Any] = _result().document()
    return found


def _studies() -> st.SearchStrategy[bytes]:
    changed = mutated(lambda: copy.deepcopy(_document())).map(as_json)
    return st.one_of(changed, changed, mutated_bytes(lambda: as_json(_document())), values.map(as_json))


def _read_study(data: bytes, folder: Path) -> list[str]:
    from recompute_core.terminal import comparison_table, differences_table

    path = folder / "study.json"
    path.write_bytes(data)
    read_document(data, "the file")
    found = compare(_result(), read_file(path), (False, True))
    json.dumps(found.model_dump(mode="json", by_alias=True), allow_nan=False)
    differences_table(found), comparison_table(found)
    return [printable(one) for one in (*found.sentences, *found.cautions)]


def _envelopes() -> st.SearchStrategy[bytes]:
    envelope = json.loads(decisions.honest().files[REPORT])
    return st.one_of(
        mutated(lambda: envelope).map(as_json), mutated_bytes(lambda: decisions.honest().files[REPORT])
    )


def _read_envelope(data: bytes, folder: Path) -> list[str]:
    files = {**decisions.honest().files, REPORT: data}
    said = _said(verify(Bundle(files), SIGNERS, LATER))
    try:
        statement_digest(data)
    except Untrusted as error:
        said.append(str(error))
    return said


def _prepare(folder: Path) -> None:
    write_bundle(folder / "honest", decisions.honest())
    _result()
    assert PUBLIC_KEY in decisions.honest().files


KINDS = (
    Kind(
        "measurements, JSON",
        _measurements,
        _read_measurements,
        usual=("m.csv", figures.CSV.encode(), None),
    ),
    Kind("measurements, CSV", _tables, _read_measurements, usual=("m.csv", figures.CSV.encode(), None)),
    Kind("reports, .zip", _zips, _read_zip, prepare=_prepare, usual=b""),
    Kind("reports, folders", _folders, _read_folder, _lay_folder, _prepare, [], 0.5),
    Kind("reports, signed", _signed, _read_signed, prepare=_prepare, weight=0.5),
    Kind("envelopes", _envelopes, _read_envelope, prepare=_prepare, usual=b""),
    Kind("keys", _key_files, _read_keys, _lay_key, usual=("file", b"", "", 0o600)),
    Kind("signers", _signers, _read_signers),
    Kind("studies of others", _studies, _read_study, prepare=_prepare),
)
