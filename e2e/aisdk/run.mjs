// node run.mjs SCENARIO OPTIONS: runs one scenario with options in JSON. Each
// line that it prints is a JSON object: {"told": …} in the middle, {"result": …}
// at the end. It ends with status 0 unless the scenario itself is at fault.
import * as scenarios from './scenarios.mjs';

const [name, options] = process.argv.slice(2);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const scenario = scenarios[name];
if (scenario == null) {
  throw new Error(`no scenario ${name}; there are ${Object.keys(scenarios).join(', ')}`);
}
print({ result: await scenario(JSON.parse(options), (told) => print({ told })) });
