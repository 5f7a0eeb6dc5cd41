// node run.mjs SCENARIO OPTIONS: opens a page of the console and runs one scenario on
// it, with options in JSON. Each line that it prints is a JSON object: {"told": …} in
// the middle, {"result": …} at the end. It ends with status 0 unless the scenario
// itself is at fault, or waits in vain.
import { open } from './browser.mjs';
import * as scenarios from './scenarios.mjs';

const [name, json] = process.argv.slice(2);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const scenario = scenarios[name];
if (scenario == null) {
  throw new Error(`no scenario ${name}; there are ${Object.keys(scenarios).join(', ')}`);
}
const options = JSON.parse(json);
const view = await open(options);
try {
  print({ result: await scenario(view, options, (told) => print({ told })) });
} catch (error) {
  console.error('the page at that time:', view.path, await view.page.locator('body').innerText(), JSON.stringify(view.errors));
  throw error;
} finally {
  await view.close();
}
