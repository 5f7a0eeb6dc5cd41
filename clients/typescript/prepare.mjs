// Builds dist. npm runs this for npm install in this folder, npm install of this folder elsewhere, and npm pack.
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);
if (!existsSync('node_modules/typescript')) {
  // npm install of a folder does not install what the folder needs for its build.
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], { stdio: 'inherit', shell: process.platform === 'win32' });
}
if (existsSync('../../LICENSE')) copyFileSync('../../LICENSE', 'LICENSE');

// Another process may read dist meanwhile: each file is replaced whole.
const built = `dist-${process.pid}`;
try {
  execFileSync(process.execPath, [createRequire(import.meta.url).resolve('typescript/bin/tsc'), '--outDir', built], { stdio: 'inherit' });
  const files = readdirSync(built, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const { name, parentPath, path } of files) {
    const from = join(parentPath ?? path, name);
    const to = join('dist', from.slice(built.length + 1));
    mkdirSync(dirname(to), { recursive: true });
    renameSync(from, to);
  }
} finally {
  rmSync(built, { recursive: true, force: true });
}
