// Package harness runs Holdfast as users do: the real binaries as processes on loopback ports with a real
// Postgres. Tests can kill the processes at any moment and observe the system as a client.
//
// # Ownership
//
// Everything that a test starts belongs to the test. t.Cleanup kills a process by its id, and the kernel kills
// it if the test binary dies. A process that exits on its own fails its test. After a failure the harness prints
// the last log lines of every process.
//
// # Time
//
// Tests do not sleep for a fixed time. WaitFor polls for an event, and every wait has a limit. A limit only ends
// a test that would otherwise hang; benchmarks measure how fast the system recovers.
package harness
