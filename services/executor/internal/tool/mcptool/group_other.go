//go:build !unix

package mcptool

import "os/exec"

// ownGroup does nothing: the system has no process groups.
func ownGroup(*exec.Cmd) {}

func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it has ended or will end

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it has ended or will end
