// Package vite_test proves that the example app examples/chat-vite works: a Vite app with useChat, served from another
// port than the gateway, in a headless Chromium.
package vite_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m, 1) }
