"""VERIFY.md: how anybody checks a report without us, with OpenSSL, sha256sum, coreutils and a shell.

The envelopes and statements of a report are in the one form in which `canonical` writes JSON, and
`verify` refuses any other: so these commands and a JSON parser find the same bytes in them.
"""

from .keys import PublicKey, fingerprint, kind_of

NAME = "VERIFY.md"

_CHECKS = {
    "p256": 'openssl dgst -sha256 -verify public_key.pem -signature "$work/signature" "$work/signed"',
    "ed25519": "openssl pkeyutl -verify -pubin -inkey public_key.pem -rawin "
    '-in "$work/signed" -sigfile "$work/signature"',
}

_TEXT = """# How to check this report

With Recompute Studio, which also computes every gate again from the raw samples:

    python -m recompute_core verify . --signers FILE

Without it: the blocks below, one after the other, in this folder, in one shell (sh, coreutils,
OpenSSL 3). A block that finds something wrong ends there, and your shell goes on. Nothing below is to be
believed because it stands here: this file is covered by the signature that it tells you to check, and
you can read what each command does.

## 1. Whose key it is

```sh
openssl pkey -pubin -in public_key.pem -outform DER | sha256sum
```

Compare the digest with the one that the signer gave you over another channel. This report came with

    {fingerprint}

but a forger would have written his own here. Anybody can sign; only a fingerprint that you have from
the signer says who did.

## 2. The signatures

Both envelopes (DSSE v1) sign the text `DSSEv1`, the payload's type and length, and the payload; each
names its key by the fingerprint above. Each must answer `{answer}`.

```sh
work=$(mktemp -d)
(
set -eu
for name in tests report; do
    cut -d '"' -f 4 $name.intoto.jsonl | base64 -d > "$work/$name"
    cut -d '"' -f 18 $name.intoto.jsonl | base64 -d > "$work/signature"
    size=$(wc -c < "$work/$name" | tr -d ' ')
    printf 'DSSEv1 28 application/vnd.in-toto+json %s ' "$size" > "$work/signed"
    cat "$work/$name" >> "$work/signed"
    {check}
done
)
```

`report.sigstore.json` must be the envelope of `report.intoto.jsonl` once more, as a Sigstore bundle v0.3
that names the key. This must print nothing:

```sh
(
set -eu
key=sha256:$(openssl pkey -pubin -in public_key.pem -outform DER | sha256sum | cut -c -64)
again=$({{
    printf '{{"dsseEnvelope":'
    tr -d '\\n' < report.intoto.jsonl
    printf ',"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json",'
    printf '"verificationMaterial":{{"publicKey":{{"hint":"%s"}},"tlogEntries":[]}}}}\\n' "$key"
}} | sha256sum)
if [ "$again" != "$(sha256sum < report.sigstore.json)" ]; then
    echo "report.sigstore.json: another envelope"; exit 1
fi
)
```

## 3. The files

Both statements name every file with its SHA-256, and they name the same. Each file must answer `OK`.

```sh
(
set -eu
for name in tests report; do
    {{ tr '{{' '\\n' < "$work/$name"; echo; }} |
    while IFS='"' read -r _ kind _ digest _ _ _ file _; do
        if [ "$kind" = sha256 ]; then printf '%s  %s\\n' "$digest" "$file"; fi
    done | sort -u | sort -k 2 > "$work/$name.digests"
done
if [ "$(sha256sum < "$work/tests.digests")" != "$(sha256sum < "$work/report.digests")" ]; then
    echo "tests.intoto.jsonl: other files"; exit 1
fi
sha256sum --check --strict "$work/report.digests"
)
```

And no file may be here that is not named. This must print nothing:

```sh
(
set -eu
cut -c 67- "$work/report.digests" | sort > "$work/named"
{{
    ls -A
    ls -A evidence | while read -r name; do echo "evidence/$name"; done
}} | sort > "$work/present"
comm -13 "$work/named" "$work/present" | while read -r name; do
    case $name in
        evidence | public_key.pem | report.intoto.jsonl | report.sigstore.json | tests.intoto.jsonl) ;;
        *) echo "not named: $name"; exit 1 ;;
    esac
done
)
```

## 4. What the signature does not say

{not_said}
"""


_MEASURED = """\
That the gates follow from the samples: `verify` computes them again from `evidence/cells.json`, where
every pair of times, every peak and every gap stands. That they are so on your machine: `recheck` runs
the parity test again, on your libraries and device."""
_SUPPLIED = """\
That the figures are true: they were supplied, and nobody who signed this has measured them. That the
gates follow from them: `verify` computes them again from the measurements in `evidence/`."""


def instructions(key: PublicKey, is_measured: bool = True) -> bytes:
    """The file, for a report that is signed with the private half of this key."""
    kind = kind_of(key)
    answer = {"p256": "Verified OK", "ed25519": "Signature Verified Successfully"}[kind]
    text = _TEXT.format(
        fingerprint=fingerprint(key),
        check=_CHECKS[kind],
        answer=answer,
        not_said=_MEASURED if is_measured else _SUPPLIED,
    )
    return text.encode()
