//go:build !linux

package jetstream

// machineBoot returns "": this system does not tell one boot from another.
func machineBoot() string { return "" }
