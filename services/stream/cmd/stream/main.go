// Command stream runs the stream service as a process. Environment variables configure it; stream.ProcessConfig
// declares them.
package main

import "github.com/holdfast-run/holdfast/services/stream"

func main() { stream.Program().Main() }
