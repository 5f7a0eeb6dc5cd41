/** Checks of names, which tell at once what the runtime would refuse later. */

const encoder = new TextEncoder();
const control = /[\u0000-\u001f\u007f-\u009f]/;
const mostBytes = 256;

/** checkKey checks a key of the state, or a name or an id of an event. */
export function checkKey(key: unknown, what: string): asserts key is string {
  if (typeof key === 'string' && key !== '' && encoder.encode(key).length <= mostBytes && !control.test(key)) return;
  throw new TypeError(
    `${what} must have 1 to ${mostBytes} bytes without control characters, ` +
      `and is ${JSON.stringify(key)?.slice(0, 80)}.`,
  );
}

/** checkFields refuses fields that do not exist: in JavaScript no compiler does. */
export function checkFields(given: object, known: readonly string[], what: string): void {
  for (const field of Object.keys(given)) {
    if (!known.includes(field))
      throw new TypeError(`${what} has a field ${field}, which does not exist. There are: ${known.join(', ')}.`);
  }
}

const duration = /^(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+$/;

/** checkDuration checks a duration such as 30s. */
export function checkDuration(given: string | undefined, what: string): void {
  if (given === undefined || (typeof given === 'string' && duration.test(given) && /[1-9]/.test(given))) return;
  throw new TypeError(
    `${what} must be a duration above 0 such as "30s", "5m" or "24h", and is ${JSON.stringify(given)}.`,
  );
}

/**
 * sourceOf says where a function of this package was called, as path:line relative to the working directory; '' if
 * unknown.
 */
export function sourceOf(callee: (...args: never[]) => unknown): string {
  const holder: { stack?: string } = {};
  const { captureStackTrace } = Error as { captureStackTrace?: (target: object, callee: unknown) => void };
  if (!captureStackTrace) return '';
  captureStackTrace(holder, callee);
  const frame = holder.stack?.split('\n').find((line) => line.trimStart().startsWith('at '));
  const found = frame?.match(/\(?((?:file:\/\/)?[^()\s][^()]*):([0-9]+):[0-9]+\)?$/);
  if (!found?.[1] || !found[2]) return '';
  let path = found[1].replace(/^\s*at (?:async )?/, '').replace(/^file:\/\//, '');
  try {
    path = decodeURIComponent(path);
  } catch {
    // It is no URL.
  }
  const root = (globalThis as { process?: { cwd?: () => string } }).process?.cwd?.();
  if (root && path.startsWith(`${root}/`)) path = path.slice(root.length + 1);
  return `${path}:${found[2]}`;
}
