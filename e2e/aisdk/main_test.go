// Package aisdk_test tests the chat protocol with its real clients: the unmodified npm package ai in the majors
// 7, 6 and 5, against real processes.
//
// A scenario lists the actions of a user and a page. A Node.js script (play.mjs) performs them with the
// package's chat class and returns the chat's final state, which the tests compare. All received chunks are
// validated against the schemas of the packages, including the strict ones of older minors.
package aisdk_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time: one per client version.
const parallel = 3

func TestMain(m *testing.M) { harness.Main(m, parallel) }
