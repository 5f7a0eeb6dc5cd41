const base = '/console/';

export interface Place {
  /** The parts of the path below /console/, decoded. */
  path: string[];
  query: URLSearchParams;
}

function current(): Place {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : '';
  return { path: path.split('/').filter(Boolean).map(decoded), query: new URLSearchParams(location.search) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a malformed address
  }
}

class Router {
  place = $state.raw(current());

  constructor() {
    addEventListener('popstate', () => {
      this.place = current();
    });
  }

  go(address: string, replace = false): void {
    if (replace) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    this.place = current();
  }

  /** setQuery changes parameters of the current page. An empty value removes a parameter. */
  setQuery(changes: Record<string, string>, replace = true): void {
    const query = new URLSearchParams(this.place.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    this.go(location.pathname + (text ? `?${text}` : ''), replace);
  }
}

export const router = new Router();

/** href is the address of a page of the console. */
export function href(path: string[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return base + path.map(encodeURIComponent).join('/') + (text ? `?${text}` : '');
}

/** followLinks lets links of the console change the page without loading it again. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(base)) return;
  event.preventDefault();
  router.go(link.pathname + link.search);
  if (link.hasAttribute('data-keep-place')) return; // a part of the page changes
  document.getElementById('main')?.focus({ preventScroll: true });
  scrollTo(0, 0);
}
