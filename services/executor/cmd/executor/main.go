// Command executor runs the executor service in a process of its own, with agents in
// YAML. A program of one's own with agents in Go calls the same Main.
package main

import "github.com/holdfast-run/holdfast/services/executor"

func main() { executor.Main(executor.NewRegistry()) }
