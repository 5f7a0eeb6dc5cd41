//go:build !unix

package mcptool

import "os/exec"

// ownGroup does nothing: there are no process groups here.
func ownGroup(*exec.Cmd) {}

func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it has ended, or will

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it has ended, or will
