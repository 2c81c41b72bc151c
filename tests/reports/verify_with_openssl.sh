# usage: sh verify_with_openssl.sh ENVELOPE PUBLIC.pem
# Verifies the first envelope of a file with OpenSSL and coreutils alone; prints its statement.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -n 1 "$1" | grep -o '"payload":"[^"]*"' | cut -d '"' -f 4 | base64 -d > "$work/payload"
head -n 1 "$1" | grep -o '"sig":"[^"]*"' | cut -d '"' -f 4 | base64 -d > "$work/signature"
size=$(wc -c < "$work/payload")
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$size"; cat "$work/payload"; } > "$work/signed"
if openssl pkey -pubin -in "$2" -noout -text | grep -q ED25519; then
    openssl pkeyutl -verify -pubin -inkey "$2" -rawin -in "$work/signed" -sigfile "$work/signature" >&2
else
    openssl dgst -sha256 -verify "$2" -signature "$work/signature" "$work/signed" >&2
fi
cat "$work/payload"
