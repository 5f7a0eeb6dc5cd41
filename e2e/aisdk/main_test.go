// Package aisdk_test holds the tests of the chat protocol with the clients that speak
// it: the npm package ai in the majors 7, 6 and 5, unmodified, against real processes.
//
// A scenario is what a user and a page do, step by step. The steps are played by a
// script in Node.js (play.mjs) with the chat class of the package; what the chat held
// in the end comes back, and is compared here. All chunks that came on the way are
// kept, and held against the schemas of the packages, the strict ones of older minors
// included.
package aisdk_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// parallel is how many tests run at a time: the versions of the client.
const parallel = 3

func TestMain(m *testing.M) { harness.Main(m, parallel) }
