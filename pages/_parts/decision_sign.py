"""Signing in the browser: off unless the operator named a key; the passphrase is asked for each time.

The key is opened in this process, which never loads torch, and forgotten as soon as it has signed. A
passphrase is sent once, and taken out of its field's state before anything is done with it.
"""

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

import streamlit as st

from recompute_core.errors import InputError, StoreError
from recompute_core.gates import megabytes
from recompute_core.reports.bundle import check_size, zip_of
from recompute_core.reports.evidence import gather
from recompute_core.reports.html import preview
from recompute_core.reports.keys import (
    LONGEST_PASSPHRASE_BYTES,
    check_key_file,
    fingerprint,
    load_key,
    read_public_key,
)
from recompute_core.reports.passphrase import VARIABLE as PASSPHRASE_VARIABLE
from recompute_core.reports.predicate import Predicate
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.release import release
from recompute_core.studies.store import Store

from . import markup
from .data import get_store
from .decision import file_slug
from .words import literal

VARIABLE = "RECOMPUTE_KEY"
"""In the server's environment: the file of the key that signs."""
_FIELD, _SIGNED, _REFUSED = "passphrase", "signed report", "signing refused"


@dataclass(frozen=True)
class Signed:
    """A report that this session has signed."""

    study: str
    plan: str
    fingerprint: str
    data: bytes
    """The .zip."""


def sign_panel(said: Predicate) -> None:
    """What can be taken away: an unsigned preview, and with a key the signed report."""
    st.subheader("Sign", anchor=False)
    path = key_file()
    try:
        known = None if path is None else known_fingerprint(path)
        why_off = "this server has no key." if path is None else None
    except InputError as error:
        known, why_off = None, f"{_without_folder(error, path)}."
    with st.container(border=True):
        if path is None or why_off is not None:
            st.markdown(f"**Signing is off:** {literal(why_off or '')} {_way_to_a_key(path)}")
        else:
            _with_a_key(said, path, known)
        signed = _signed_of(said)
        if signed is not None:
            st.html(_signed_strip(signed))
        _take_away(said, signed)


_MAKE = (
    "`python -m recompute_core keys new --out {}` makes one and asks for a passphrase (where there is "
    f"no terminal it takes that of `{PASSPHRASE_VARIABLE}`, or of `--passphrase-fd N`)"
)


def _way_to_a_key(path: Path | None) -> str:
    """What the operator does, on the server's machine. Key files are looked at on every redraw."""
    if path is None:
        made = _MAKE.format("key.pem")
        return (
            f"On the server's machine {made}. Start the server with `{VARIABLE}=/path/to/key.pem` in "
            "its environment; the file may be made later."
        )
    if not path.exists():
        made = _MAKE.format(path.name)
        where = f"On the server's machine, in the folder that `{VARIABLE}` names,"
        return f"{where} {made}; then reload this page."
    return "Once that is mended, reload this page."


def _without_folder(error: Exception, path: Path | None) -> str:
    """What is wrong with a key; where the server keeps it is nobody's business."""
    return str(error) if path is None else str(error).replace(str(path), path.name)


def key_file() -> Path | None:
    """The key that the operator named, if any."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def known_fingerprint(path: Path) -> str | None:
    """Of the public half that lies beside a key file; None where it does not.

    Raises InputError when the key file cannot be used at all. The key itself tells once it is open.
    """
    check_key_file(path)
    public = _public_file(path)
    return fingerprint(read_public_key(public)) if public.exists() else None


def _public_file(path: Path) -> Path:
    return path.with_name(path.name + ".pub.pem")


def sign(store: Store, study: str, plan: str, path: Path, passphrase: str) -> Signed:
    """The signed report of a plan. Raises InputError in one line, which never holds the passphrase."""
    key = load_key(path, passphrase)
    public = fingerprint(key.public_key())
    if known_fingerprint(path) not in (None, public):
        raise InputError(f"{_public_file(path)}: is not the public half of {path}")
    try:
        released = release(gather(store, study, plan), key)
    except Untrusted as error:
        raise InputError(str(error)) from None
    check_size(released.bundle)
    return Signed(study, plan, public, zip_of(released.bundle))


def _with_a_key(said: Predicate, path: Path, known: str | None) -> None:
    study, plan = said.study.id, said.plan
    st.html(
        markup.facts(
            [
                ("Key", path.name),
                ("Fingerprint", known or "told once the key is open: no .pub.pem lies beside it"),
            ]
        )
    )
    with st.form("sign", clear_on_submit=True, border=False, width=560):
        row = st.container(horizontal=True, vertical_alignment="bottom")
        row.text_input(
            "Passphrase of the key",
            type="password",
            key=_FIELD,
            max_chars=LONGEST_PASSPHRASE_BYTES,
            autocomplete="off",
        )
        row.form_submit_button("Sign", type="primary", on_click=_sign_and_keep, args=(study, plan, path))
    if (refused := st.session_state.pop(_REFUSED, None)) is not None:
        st.error(literal(refused))


def _signed_of(said: Predicate) -> Signed | None:
    """The report on this very plan, if this session has signed it."""
    signed: Signed | None = st.session_state.get(_SIGNED)
    of_this = signed is not None and (signed.study, signed.plan) == (said.study.id, said.plan)
    return signed if of_this else None


def _signed_strip(signed: Signed) -> str:
    return (
        f'<div class="rs-strip rs-strip-plain rs-signed" role="status">{markup.mark("pass", "Signed")}'
        f'<span class="rs-print">{signed.fingerprint}</span></div>'
    )


def _sign_and_keep(study: str, plan: str, path: Path) -> None:
    """What the button does, before the page is drawn anew; first of all the field forgets."""
    passphrase: str = st.session_state[_FIELD]
    del st.session_state[_FIELD]  # with what the field holds on this side,
    st.session_state[_FIELD] = ""  # and this is what the browser's holds from now on
    if not passphrase:
        signed: Signed | None = st.session_state.get(_SIGNED)
        if signed is None or (signed.study, signed.plan) != (study, plan):  # else a second click
            st.session_state[_REFUSED] = "Not signed: type the passphrase."
        return
    try:
        st.session_state[_SIGNED] = sign(get_store(), study, plan, path, passphrase)
    except (InputError, StoreError) as error:
        st.session_state[_REFUSED] = f"Not signed: {_without_folder(error, path)}."


def _preview(said: Predicate) -> bytes:
    """The page; or, as the browser has asked for a file by then, one that says why there is none."""
    try:
        return preview(said, read_evidence(gather(get_store(), said.study.id, said.plan)))
    except (InputError, StoreError, Untrusted) as error:
        return f"<!doctype html><title>No preview</title><p>No preview: {escape(str(error))}.\n".encode()


def _take_away(said: Predicate, signed: Signed | None) -> None:
    study, plan = said.study.id, said.plan
    with st.container(horizontal=True, vertical_alignment="center"):
        if signed is not None:
            st.download_button(
                f"Download the signed report ({megabytes(len(signed.data))} .zip)",
                data=signed.data,
                file_name=f"decision-{file_slug(study, plan)}.zip",
                mime="application/zip",
                type="primary",
                on_click="ignore",
            )
        st.download_button(
            "Download an unsigned preview",
            data=lambda: _preview(said),
            file_name=f"unsigned-{file_slug(study, plan)}.html",
            mime="text/html",
            on_click="ignore",
            help="report.html as it would be signed, with a line above it that it is not: one page that "
            "needs no network. By itself it proves nothing.",
        )
        if signed is not None:
            st.page_link("verify.py", label="Check it as its reader would")
    if signed is not None and (path := key_file()) is not None:
        public = _public_file(path).name if _public_file(path).exists() else "public_key.pem"
        st.caption(
            "To check it there, trust your own key first, on the server's machine: `python -m "
            f"recompute_core keys trust {public} --name WHO` (where there is no terminal, with `--yes` "
            "and the fingerprint above). Then download the report and drop it on that page."
        )
