const number = new Intl.NumberFormat('en');
const small = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const large = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const dateTime = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'medium' });
const timeOfDay = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const day = new Intl.DateTimeFormat('en', { month: 'short', day: 'numeric' });

export const count = (n: number) => number.format(n);
export const counted = (n: number, noun: string) => `${number.format(n)} ${noun}${n === 1 ? '' : 's'}`;
/** money formats an amount, a small one with more digits. The currency may be any text. */
export const money = (amount: number, currency: string) => `${(amount < 1 ? small : large).format(amount)} ${currency}`;
export const date = (ms: number) => dateTime.format(ms);
export const time = (ms: number) => timeOfDay.format(ms);
export const shortDay = (ms: number) => day.format(ms);

/** duration is a length of time with two units at most. */
export function duration(ms: number): string {
  if (ms < 0) return '0 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** ago is the distance of a time from now, in one unit. */
export function ago(ms: number, now: number): string {
  const seconds = Math.round((now - ms) / 1000);
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** json formats a value; a text that is JSON is formatted as its value. */
export function json(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value, null, 2) ?? '';
  try {
    const parsed: unknown = JSON.parse(value);
    return typeof parsed === 'object' && parsed !== null ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

/** gist is a value on one line. */
export function gist(value: unknown, length = 120): string {
  const text = (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).replace(/\s+/g, ' ');
  return text.length > length ? `${text.slice(0, length)}…` : text;
}
