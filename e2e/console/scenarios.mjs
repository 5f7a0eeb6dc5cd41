// What a person does with the console. Each scenario gets the page, the options of the
// Go test and a way to report something in the middle, and returns {looks}: the state
// of the page at the moments that the test checks; and {seen}: texts by name.

const text = async (locator) => (await locator.allInnerTexts()).map((t) => t.replace(/\s+/g, ' ').trim());

// Opens pages one after the other.
export async function visit(view, { paths }) {
  const looks = [];
  for (const path of paths) {
    await view.go(path);
    await view.loaded();
    looks.push(await view.look());
  }
  return { looks };
}

// Watches the list until the test has started a run ("list"), opens its session, and
// sees the answer grow ("half") until the test lets it end.
export async function watch(view, { session, half, answer }, tell) {
  await view.page.getByText('There is no session yet.').waitFor();
  tell('list');
  await view.page.getByRole('link', { name: session, exact: true }).click();
  await view.status('Running');
  const growing = view.page.locator('.message.growing .text');
  await growing.filter({ hasText: half }).waitFor();
  const looks = [await view.look()];
  tell('half');
  await view.status('Completed');
  await view.page.locator('.message.agent:not(.growing) .text', { hasText: answer }).waitFor();
  const whole = await text(view.page.locator('.message .text'));
  return { looks: [...looks, await view.look()], seen: { whole } };
}

// Loads the second page of the list, searches in it, filters by status and by user, and
// opens a session by its id.
export async function list(view, { session }) {
  const { page } = view;
  const rows = page.getByRole('table', { name: 'Sessions' }).locator('tbody tr');
  const looks = [];
  const seen = { counts: [] };
  const count = async (n) => {
    await page.waitForFunction((want) => document.querySelectorAll('tbody tr').length === want, n);
    seen.counts.push(String(await rows.count()));
    looks.push(await view.look());
  };
  await count(50);
  await view.press('Load more');
  await count(61);
  await page.getByRole('searchbox').fill('s1');
  await count(10);
  await page.getByRole('searchbox').fill('');
  await page.getByLabel('Status').selectOption('failed');
  await count(1);
  await page.getByLabel('User').fill('nobody');
  await page.keyboard.press('Enter');
  await page.getByText('No session matches.').waitFor();
  await count(0);
  await page.getByRole('searchbox').fill(session);
  await page.keyboard.press('Enter');
  await view.status('Completed');
  seen.path = [view.path];
  return { looks, seen };
}

// Opens the timeline of a session by keyboard, and its first step.
export async function timeline(view, { session }) {
  const { page } = view;
  await view.loaded();
  await view.tabTo(page.getByRole('link', { name: session, exact: true }));
  await page.keyboard.press('Enter');
  await view.tabTo(page.getByRole('link', { name: 'Timeline', exact: true }));
  await page.keyboard.press('Enter');
  const steps = page.getByRole('listbox', { name: 'Steps' });
  await steps.waitFor();
  await view.tabTo(steps);
  await page.keyboard.press('Home');
  await page.getByRole('heading', { name: 'Step 1', exact: true }).waitFor();
  await page.getByText('in, ').first().waitFor();
  const detail = page.getByRole('article', { name: 'Step 1' });
  await detail.locator('.events li', { hasText: 'in,' }).waitFor();
  const seen = {
    rows: await text(steps.getByRole('option')),
    arguments: await text(detail.getByRole('group', { name: /^Arguments of/ })),
    results: await text(detail.getByRole('group', { name: /^Result of/ })),
    gantt: await text(detail.locator('.gantt .label')),
    usage: await text(detail.locator('section', { hasText: 'Usage' }).locator('li')),
  };
  return { looks: [await view.look()], seen };
}

// Answers calls on the page of all calls that wait: {tool, reason?, press, result?}.
export async function answer(view, { answers }) {
  const looks = [];
  const seen = { done: [] };
  for (const { tool, fill, press, invalid } of answers) {
    const card = view.page.locator('article.call', { has: view.page.getByRole('heading', { name: new RegExp(`^${tool} `) }) }).filter({ has: view.page.getByRole('button', { name: press, exact: true }) }).first();
    await card.waitFor();
    looks.push(await view.look());
    if (invalid) {
      await card.getByRole('textbox').fill(invalid);
      await view.press(press, card);
      await card.locator('.invalid', { hasText: 'This is not JSON' }).waitFor();
    }
    if (fill) await card.getByRole('textbox').fill(fill);
    const button = card.getByRole('button', { name: press, exact: true });
    await view.tabTo(button);
    await view.page.keyboard.press('Enter');
    const done = view.page.locator('article.call p[role=status]', { hasText: /(Approved|Denied|was sent)\./ });
    await view.page.waitForFunction((n) => [...document.querySelectorAll('article.call > p[role=status]')].length > n, seen.done.length);
    seen.done = await text(done);
  }
  return { looks: [...looks, await view.look()], seen };
}

// Reads a table.
export async function table(view, { name, row }) {
  const rows = view.page.getByRole('table', { name, exact: true }).locator('tbody tr');
  await rows.filter({ hasText: row }).first().waitFor();
  await view.page.waitForFunction(() => !document.querySelector('table').textContent.includes('…'));
  return { looks: [await view.look()], seen: { rows: await text(rows) } };
}

// Logs in with keys one after the other, the last of which the gateway accepts, and
// uses the console until the test has revoked that key ("in").
export async function login(view, { keys }, tell) {
  const { page } = view;
  const looks = [];
  const seen = { refusals: [] };
  for (const [i, key] of keys.entries()) {
    await page.getByLabel('API key or token').fill(key);
    looks.push(await view.look());
    await page.keyboard.press('Enter');
    if (i < keys.length - 1) {
      await page.getByRole('alert').waitFor();
      seen.refusals.push(...(await text(page.getByRole('alert'))));
    }
  }
  await page.getByText('There is no session yet.').waitFor();
  looks.push(await view.look());
  seen.kept = await page.evaluate(() => [JSON.stringify(localStorage), document.cookie, location.href]);
  tell('in');
  await page.getByLabel('API key or token').waitFor();
  return { looks: [...looks, await view.look()], seen };
}

// Opens the timeline of a long run, and moves through it.
export async function long(view, { path, steps }) {
  const { page } = view;
  const detail = (step) => page.getByRole('heading', { name: `Step ${step.toLocaleString('en')}`, exact: true }).waitFor();
  await view.loaded();
  await page.evaluate(() => performance.clearResourceTimings());
  const began = Date.now();
  await view.go(path);
  await detail(steps);
  await page.waitForFunction(() => !/…/.test([...document.querySelectorAll('.row .what')].at(-1)?.textContent ?? '…'));
  const opened = Date.now() - began;
  const rows = page.getByRole('listbox').getByRole('option');
  const nodes = () => page.evaluate(() => document.querySelectorAll('*').length);
  const seen = { newest: await text(rows.last()), rows: [String(await rows.count())], nodes: [String(await nodes())], opened: [String(opened)] };
  const looks = [await view.look()];
  await page.getByRole('listbox', { name: 'Steps' }).focus();
  await page.keyboard.press('Home');
  await detail(1);
  seen.oldest = await text(rows.first());
  // Scrolls through the whole run, and waits until the middle is loaded.
  await page.evaluate(async () => {
    const list = document.querySelector('.virtual');
    for (let at = 0; at <= list.scrollHeight; at += list.scrollHeight / 200) {
      list.scrollTop = at;
      await new Promise(requestAnimationFrame);
    }
    list.scrollTop = list.scrollHeight / 2;
  });
  await rows.filter({ hasText: (steps / 2).toLocaleString('en') }).filter({ hasText: 'calculate' }).first().waitFor();
  seen.nodesAfter = [String(await nodes())];
  // A link to a step opens the list there.
  await view.go(`${path}?step=${steps / 4}`);
  await detail(steps / 4);
  await rows.filter({ hasText: (steps / 4).toLocaleString('en') }).filter({ hasText: 'calculate' }).first().waitFor();
  return { looks: [...looks, await view.look()], seen };
}

// Does things to sessions, one after the other, in the order of the fields of a step.
export async function act(view, { steps }, tell) {
  const { page } = view;
  const looks = [];
  const seen = { paths: [] };
  for (const step of steps) {
    if (step.go) await view.go(step.go);
    if (step.tell) tell(step.tell);
    if (step.open) await page.getByRole('link', { name: step.open, exact: true }).click();
    if (step.link) await page.locator('p', { hasText: step.link }).getByRole('link').click();
    if (step.fill) await page.getByLabel(step.fill, { exact: true }).fill(step.text);
    const before = view.path;
    if (step.press) await view.press(step.press);
    if (step.confirm) await view.press(step.confirm, page.getByRole('dialog'));
    if (step.moves) await page.waitForFunction((path) => location.pathname + location.search !== path, before);
    if (step.status) await view.status(step.status);
    if (step.shows) await page.getByText(step.shows).first().waitFor();
    seen.paths.push(view.path);
    looks.push(await view.look());
  }
  return { looks, seen };
}

// Chooses the colours with the switch.
export async function colours(view) {
  const ground = () => view.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const seen = { grounds: [await ground()] };
  for (const name of ['dark', 'light']) {
    await view.page.getByLabel('Colours').selectOption(name);
    seen.grounds.push(await ground());
  }
  await view.page.reload();
  await view.loaded();
  seen.grounds.push(await ground());
  return { looks: [await view.look()], seen };
}

// What a person looks at: headings, rows of tables, notes, messages, calls, facts of a run.
const read = 'h1, tbody tr, .session-title .status, .waits, .problem, article.message, article.call, .facts > div';

// Does what an operator does, and records after each act what the page shows.
export async function operate(view, { acts }, tell) {
  const { page } = view;
  const main = page.locator('main');
  const looks = [];
  const records = [];
  for (const act of acts) {
    const place = act.row ? page.locator('tr, li, article', { hasText: act.row }).first() : page;
    if (act.tell) tell(act.tell);
    if (act.go) await view.go(act.go);
    if (act.open) await place.getByRole('link', { name: act.open, exact: true }).first().click();
    if (act.choose) await page.getByRole('combobox', { name: act.choose, exact: true }).selectOption({ label: act.text });
    if (act.fill) await place.getByRole('textbox', { name: act.fill }).fill(act.text);
    if (act.press) await view.press(act.press, place);
    await main.getByText(act.shows).first().waitFor();
    if (act.without) await main.getByText(act.without).first().waitFor({ state: 'hidden' });
    if (act.status) await view.status(act.status);
    looks.push(await view.look());
    records.push((await main.locator(read).allInnerTexts()).filter(Boolean));
  }
  return { looks, seen: {}, records };
}
