import { api, type Schemas, type Session } from './api.svelte';
import { Load } from './load.svelte';

type Page = Schemas['ListSessionsResponse'];
export type Filter = { status?: string[]; agentType?: string; userId?: string; tags?: string[]; roots?: boolean };

const pageSize = 50;
/** The newest sessions are loaded again and again; more than these only on demand. */
const refreshed = 200;
const interval = 3000;

/** SessionList is the sessions that meet a filter, newest first, by pages. The first ones are kept current. */
export class SessionList {
  more = $state.raw<Session[]>([]);
  next = $state<string | undefined>(undefined); // the cursor behind `more`
  #newest: Load<Page>;
  #limit = pageSize;

  constructor(readonly filter: Filter) {
    this.#newest = new Load((signal) => this.#page({ limit: this.#limit }, signal), interval);
  }

  start(): () => void {
    return this.#newest.start();
  }

  refresh = () => this.#newest.refresh();

  get problem() {
    return this.#newest.problem;
  }

  get loaded(): boolean {
    return this.#newest.value !== undefined;
  }

  get total(): string {
    const { total, totalIsMinimum } = this.#newest.value ?? {};
    return total === undefined ? '' : `${total.toLocaleString('en')}${totalIsMinimum ? '+' : ''}`;
  }

  get sessions(): Session[] {
    const newest = this.#newest.value?.sessions ?? [];
    const shown = new Set(newest.map((s) => s.sessionId));
    return [...newest, ...this.more.filter((s) => !shown.has(s.sessionId))];
  }

  get cursor(): string {
    return this.next ?? this.#newest.value?.nextCursor ?? '';
  }

  /** loadMore loads the next page. It throws a Problem. */
  async loadMore(): Promise<void> {
    if (this.next === undefined && this.#limit < refreshed) {
      this.#limit = Math.min(refreshed, this.#limit + pageSize);
      return this.#newest.refresh();
    }
    const page = await this.#page({ limit: pageSize, cursor: this.cursor });
    this.more = [...this.sessions, ...page.sessions];
    this.next = page.nextCursor;
  }

  #page(place: { limit: number; cursor?: string }, signal?: AbortSignal): Promise<Page> {
    const query = { ...this.filter, ...place };
    return api.call((http) => http.GET('/sessions', { params: { query }, signal: signal ?? null }));
  }
}
