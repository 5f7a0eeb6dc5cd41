package jetstream

import (
	"os"
	"strings"
)

// machineBoot returns the id of the machine's boot: another one each time. It is
// "" where the kernel does not show it.
func machineBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
