/** Signatures of requests by Standard Webhooks 1.0.0, with WebCrypto, so they work on Node, Bun, Deno and workers. */

/** toleranceS is how far the time of a request may be away, in seconds. */
const toleranceS = 300;
/** rememberMs is how long an id is remembered: a request that was early by the tolerance is too old then. */
const rememberMs = (2 * toleranceS + 1) * 1000;
/** mostIds bounds the remembered ids; the oldest are forgotten first. */
const mostIds = 100_000;
const mostIdBytes = 64;
const prefix = 'whsec_';
const encoder = new TextEncoder();

/** Refusal is why a request is refused. */
export interface Refusal {
  status: number;
  code: string;
  message: string;
}

const missing =
  'The request has no signature. It needs webhook-id, webhook-timestamp and webhook-signature: see Standard Webhooks.';
const fromPage = 'A page in a browser has sent the request. Without a secret, such requests are refused.';
const invalid =
  'No signature fits. The application needs a secret of the executor (HOLDFAST_EXECUTOR_ENDPOINT_SECRETS).';
const noSecret =
  'The application has no secret. Set HOLDFAST_ENDPOINT_SECRET, or secrets of serve; for development, allowUnsigned.';

/** Verifier verifies requests. It remembers their ids, so each process has one. */
export class Verifier {
  readonly #keys: Promise<CryptoKey>[];
  readonly #seen = new Map<string, number>(); // in the order of the times at which ids are forgotten

  /** A secret is whsec_ and base64 of 24 to 64 bytes. */
  constructor(
    secrets: readonly string[],
    readonly allowUnsigned: boolean,
  ) {
    const usages: KeyUsage[] = ['sign'];
    this.#keys = secrets
      .map(parseSecret)
      .map((bytes) => crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, usages));
  }

  /** refusal says why a request without its body is refused already. */
  early(headers: Headers): Refusal | undefined {
    if (this.#keys.length === 0 && !this.allowUnsigned)
      return { status: 401, code: 'SECRET_MISSING', message: noSecret };
    // Any page that the developer opens can send requests to this machine, and its browser names the page.
    if (this.#keys.length === 0)
      return headers.has('origin') ? { status: 401, code: 'SIGNATURE_MISSING', message: fromPage } : undefined;
    const complete = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].every((name) => headers.get(name));
    return complete ? undefined : { status: 401, code: 'SIGNATURE_MISSING', message: missing };
  }

  /** verify says why a request is refused. Of two requests with one id, it refuses the second. */
  async verify(headers: Headers, body: Uint8Array): Promise<Refusal | undefined> {
    const early = this.early(headers);
    if (early || this.#keys.length === 0) return early;
    const id = headers.get('webhook-id') ?? '';
    const time = headers.get('webhook-timestamp') ?? '';
    const given = (headers.get('webhook-signature') ?? '').split(' ').filter((text) => text.startsWith('v1,'));
    const head = encoder.encode(`${id}.${time}.`);
    const signed = new Uint8Array(head.length + body.length);
    signed.set(head);
    signed.set(body, head.length);
    let fits = false;
    for (const key of this.#keys) {
      const expected = `v1,${base64(new Uint8Array(await crypto.subtle.sign('HMAC', await key, signed)))}`;
      for (const signature of given) fits = equal(signature, expected) || fits;
    }
    if (!fits || encoder.encode(id).length > mostIdBytes)
      return { status: 401, code: 'SIGNATURE_INVALID', message: invalid };
    const now = Date.now();
    const seconds = /^[0-9]{1,12}$/.test(time) ? Number(time) : Number.NaN;
    if (!(Math.abs(now / 1000 - seconds) <= toleranceS)) {
      const message = `The request is more than ${toleranceS} s away from the application's time. Compare the clocks.`;
      return { status: 401, code: 'TIMESTAMP_INVALID', message };
    }
    for (const [old, until] of this.#seen) {
      if (until > now && this.#seen.size < mostIds) break;
      this.#seen.delete(old);
    }
    if (this.#seen.has(id))
      return {
        status: 409,
        code: 'REPLAYED',
        message: 'The application has seen this webhook-id. Each request has its own.',
      };
    this.#seen.set(id, now + rememberMs);
    return undefined;
  }
}

function parseSecret(secret: string): Uint8Array<ArrayBuffer> {
  let bytes: Uint8Array<ArrayBuffer> | undefined;
  if (secret.startsWith(prefix)) {
    try {
      bytes = Uint8Array.from(atob(secret.slice(prefix.length)), (character) => character.charCodeAt(0));
    } catch {
      // The mistake is named below.
    }
  }
  if (!bytes || bytes.length < 24 || bytes.length > 64) {
    throw new TypeError(
      'A secret of serve must be whsec_ and base64 of 24 to 64 bytes. Make one: echo whsec_$(openssl rand -base64 32)',
    );
  }
  return bytes;
}

/** equal compares two texts in a time that depends on their lengths alone. */
function equal(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let i = 0; i < a.length; i++) difference |= a.charCodeAt(i) ^ b.charCodeAt(i);
  return difference === 0;
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
