package process

import "github.com/holdfast-run/holdfast/pkg/fault"

// ExitCodes describes the exit codes of ExitCode, for the help of a program.
const ExitCodes = `Exit codes:
  0  it worked
  1  it failed
  2  usage: an argument, a variable or the request is not valid
  3  not found
  4  not authorized: bring other credentials
  5  conflict: look at the state; the same call will fail again
  6  unavailable, or a limit is reached: try again later`

// Exit codes. A shell reports 128+2 for a program ended by SIGINT.
const (
	exitOK            = 0
	exitFailed        = 1
	exitUsage         = 2
	exitNotFound      = 3
	exitNotAuthorized = 4
	exitConflict      = 5
	exitUnavailable   = 6
	exitInterrupted   = 130
)

// ExitCode returns the exit code of a program that ends with the error. A fault has the code of its kind, any other
// error 1, and nil 0.
func ExitCode(err error) int {
	if err == nil {
		return exitOK
	}
	f, ok := fault.From(err)
	if !ok {
		return exitFailed
	}
	switch f.Kind {
	case fault.Invalid, fault.TooLarge:
		return exitUsage
	case fault.NotFound:
		return exitNotFound
	case fault.Unauthenticated, fault.Denied:
		return exitNotAuthorized
	case fault.Conflict, fault.Stale:
		return exitConflict
	case fault.Exhausted, fault.Unavailable:
		return exitUnavailable
	default:
		return exitFailed
	}
}
