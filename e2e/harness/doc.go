// Package harness runs Holdfast as its users do: the real binaries as
// processes on loopback ports, over a real Postgres, so that tests may kill
// them at any moment and look at what a client sees.
//
// # Ownership
//
// Everything that a test starts belongs to that test. A process is killed by
// its own id in t.Cleanup, and by the kernel when the test binary itself dies;
// nothing is looked for by name. A process that ends without having been told
// to fails its test. When a test has failed, the last lines of every process's
// log are printed.
//
// # Time
//
// Nothing sleeps for a fixed time in the hope that something has happened by
// then: WaitFor polls for the event, and every wait has a limit. How fast the
// system recovers is measured elsewhere; here a limit only ends a test that
// would otherwise hang.
package harness
