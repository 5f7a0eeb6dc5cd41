//go:build race

package worker_test

// stride is the distance between the moments that dieEverywhere plays.
const stride = 8
