import { svelte } from '@sveltejs/vite-plugin-svelte';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  base: '/console/',
  plugins: [svelte()],
  resolve: {
    alias: {
      '@holdfast/sdk': here('../typescript/src/index.ts'),
      'openapi-fetch': here('node_modules/openapi-fetch'), // the client's source would look for it in its own folder
    },
  },
  build: {
    outDir: '../../services/gateway/internal/page/console',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the Content-Security-Policy permits no data: URLs
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '^/(?!console)': 'http://127.0.0.1:8080' } },
});
