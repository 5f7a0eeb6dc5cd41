// node run.mjs SCENARIO OPTIONS: runs one scenario with options in JSON, which
// are read from standard input where they are -. Each line that it prints is a
// JSON object: {"told": …} in the middle, {"result": …} at the end. It ends with
// status 0 unless the scenario itself is at fault.
//
// The scenario "play" plays those that its options declare, and "check" checks
// recorded streams; both give a result for each.
import { text } from 'node:stream/consumers';
import { check } from './check.mjs';
import { play } from './play.mjs';
import * as scenarios from './scenarios.mjs';

const [name, argument] = process.argv.slice(2);
const options = JSON.parse(argument === '-' ? await text(process.stdin) : argument);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

if (name === 'play') {
  await play(options, (scenario, result) => print({ scenario, result }));
  process.stdout.write('', () => process.exit(0)); // whatever a scenario at fault has left open
} else if (name === 'check') {
  print({ result: await check(options) });
} else if (scenarios[name]) {
  print({ result: await scenarios[name](options, (told) => print({ told })) });
} else {
  throw new Error(`no scenario ${name}; there are play, check, ${Object.keys(scenarios).join(', ')}`);
}
