// The client that the conformance suite starts: it hands the address of the suite's server to the test, and ends once the
// test has used it.
const [test, server] = process.argv.slice(2);
const answer = await fetch(test, { method: "POST", body: server });
process.exit(answer.ok ? 0 : 1);
