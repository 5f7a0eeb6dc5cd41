import { api, type Schemas } from './api.svelte';

export type Sums = Schemas['TokenSums'];
export interface Range {
  from: number;
  before: number;
  bucketMs: number;
}
export interface Scope {
  agentType?: string;
  userId?: string;
}

const hour = 3_600_000;
/** The ranges to choose from, with a length of their bars that gives 24 to 31 of them. */
export const ranges = [
  { name: '24h', label: '24 hours', length: 24 * hour, bucketMs: hour },
  { name: '7d', label: '7 days', length: 7 * 24 * hour, bucketMs: 6 * hour },
  { name: '30d', label: '30 days', length: 30 * 24 * hour, bucketMs: 24 * hour },
] as const;

/** rangeOf ends with the bucket of now, and begins with a whole bucket. */
export function rangeOf(name: string, now: number): Range {
  const { length, bucketMs } = ranges.find((r) => r.name === name) ?? ranges[0];
  const before = (Math.floor(now / bucketMs) + 1) * bucketMs;
  return { from: before - length, before, bucketMs };
}

/** How many sessions are read to find the users, how many users are shown, and how many requests run at a time. */
const readSessions = 1000;
const pageSize = 200;
const shownUsers = 25;
const atOnce = 4;

export const noSums = (): Sums => ({ promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0, totalTokens: 0, cost: 0 });

export function sum(all: (Sums | undefined)[]): Sums {
  const total = noSums();
  for (const sums of all) {
    for (const key of Object.keys(total) as (keyof Sums)[]) total[key] += sums?.[key] ?? 0;
  }
  return total;
}

export async function query(range: Range, scope: Scope, bucketMs: number, signal: AbortSignal): Promise<Schemas['UsageBucket'][]> {
  const { from: recordedFrom, before: recordedBefore } = range;
  const { buckets } = await api.call((http) =>
    http.GET('/usage/query', { params: { query: { recordedFrom, recordedBefore, kinds: ['tokens'], ...(bucketMs ? { bucketMs } : {}), ...scope } }, signal }),
  );
  return buckets;
}

/** byEach returns the sums of each name, without those that used nothing. */
export async function byEach(names: string[], range: Range, scope: (name: string) => Scope, signal: AbortSignal): Promise<[string, Sums][]> {
  const rows: [string, Sums][] = [];
  const rest = [...names];
  const worker = async () => {
    for (let name = rest.shift(); name !== undefined; name = rest.shift()) {
      const sums = sum((await query(range, scope(name), 0, signal)).map((b) => b.rollup?.tokens));
      if (sums.totalTokens > 0) rows.push([name, sums]);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return rows;
}

/** The agents and users of the newest sessions: the API adds up the usage of a given one, and lists no users. */
export async function seen(signal: AbortSignal): Promise<{ agents: string[]; users: string[]; all: boolean }> {
  const connected = await api.call((http) => http.GET('/agents', { signal }));
  const agents = new Set(connected.agents.map((a) => a.agentType));
  const users = new Set<string>();
  let cursor = '';
  for (let n = 0; n < readSessions; n += pageSize) {
    const page = await api.call((http) => http.GET('/sessions', { params: { query: { limit: pageSize, ...(cursor ? { cursor } : {}) } }, signal }));
    for (const s of page.sessions) {
      agents.add(s.agentType);
      if (s.userId) users.add(s.userId);
    }
    cursor = page.nextCursor;
    if (!cursor) break;
  }
  return { agents: [...agents], users: [...users].slice(0, shownUsers), all: cursor === '' && users.size <= shownUsers };
}
