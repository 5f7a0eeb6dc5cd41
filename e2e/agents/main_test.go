// Package agents_test tests the clients of Cloudflare Agents, from their npm packages, against real
// processes.
package agents_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m, 1) }
