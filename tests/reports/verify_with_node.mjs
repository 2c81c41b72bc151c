// usage: node verify_with_node.mjs ENVELOPE PUBLIC.pem
// Verifies an envelope with Node's own crypto; its statement goes to standard output.
import { createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const envelope = JSON.parse(readFileSync(process.argv[2], "utf8"));
const key = createPublicKey(readFileSync(process.argv[3]));
const payload = Buffer.from(envelope.payload, "base64");
const type = Buffer.from(envelope.payloadType);
const signed = Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload]);
const digest = key.asymmetricKeyType === "ed25519" ? null : "sha256";
const valid = envelope.signatures.some(({ sig }) => verify(digest, signed, key, Buffer.from(sig, "base64")));
if (!valid) process.exit(1);
process.stdout.write(payload);
