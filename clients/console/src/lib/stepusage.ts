import { api, type Schemas } from './api.svelte';

type Entry = Schemas['RecordedUsage'];
type Entries = Schemas['ListUsageResponse'];

const pageSize = 200;
/** A search halves the distance to the step with each page, so more pages find nothing either. */
const mostPages = 30;

/**
 * usageOfStep returns the usage of a step. The entries of a session are in the order of their steps, so it estimates
 * the place of the step from the number of entries, and searches from there.
 */
export async function usageOfStep(sessionId: string, step: number, steps: number, signal: AbortSignal): Promise<Entry[]> {
  const rollup = (await usage({ sessionId, mode: 'rollup' }, signal)) as Schemas['UsageRollup'];
  let low = 0;
  let high = rollup.entryCount;
  let offset = Math.max(0, Math.floor((rollup.entryCount * (step - 1)) / Math.max(1, steps)) - pageSize / 4);
  for (let n = 0; n < mostPages && low < high; n++) {
    const { entries, hasMore } = (await usage({ sessionId, mode: 'entries', offset, limit: pageSize }, signal)) as Entries;
    const [first, last] = [entries[0], entries.at(-1)];
    if (!first || !last || (first.step >= step && offset > low)) high = offset;
    else if (last.step < step && hasMore) low = offset + entries.length;
    else {
      const rest = last.step === step && hasMore ? ((await usage({ sessionId, mode: 'entries', offset: offset + entries.length, limit: pageSize }, signal)) as Entries).entries : [];
      return [...entries, ...rest].filter((e) => e.step === step);
    }
    offset = Math.max(low, Math.floor((low + high - pageSize) / 2));
  }
  return [];
}

function usage(query: { sessionId: string; mode: 'rollup' | 'entries'; offset?: number; limit?: number }, signal: AbortSignal) {
  return api.call((http) => http.GET('/usage', { params: { query }, signal }));
}
