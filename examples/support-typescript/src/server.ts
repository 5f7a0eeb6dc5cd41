import { readFile } from 'node:fs/promises';
import { serve as listen } from '@hono/node-server';
import { serve } from '@holdfast/sdk/agents';
import { Hono } from 'hono';
import { support } from './agents.js';

// Without HOLDFAST_ENDPOINT_SECRET, the endpoint accepts unsigned requests: it listens on this machine alone.
const holdfast = serve({ agents: [support], allowUnsigned: true });
const script = await readFile(new URL('page.js', import.meta.url));
const gateway = process.env.HOLDFAST_URL ?? 'http://127.0.0.1:8080';
const html = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <link rel="icon" href="data:," />
    <title>Support</title>
    <script>window.gateway = ${JSON.stringify(gateway)}</script>
  </head>
  <body>
    <div id="root"></div>
    <script type="module" src="/page.js"></script>
  </body>
</html>`;

const app = new Hono();
app.all('/holdfast', (c) => holdfast(c.req.raw));
app.get('/page.js', (c) => c.body(script, 200, { 'content-type': 'text/javascript' }));
app.get('/', (c) => c.html(html));

const port = Number(process.env.PORT ?? 3000);
listen({ fetch: app.fetch, port, hostname: '127.0.0.1' }, () => {
  console.log(
    `Open http://127.0.0.1:${port} when the runtime runs:\n` +
      `holdfast dev --agents models.yaml --endpoint http://127.0.0.1:${port}/holdfast`,
  );
});
