package providerhttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// ReadRetryHeaders reads the retry headers of an error response: the delay, and X-Should-Retry, which overrides
// the status.
func ReadRetryHeaders(e *model.Error, h http.Header) {
	e.RetryAfter = retryAfter(h)
	switch h.Get("X-Should-Retry") {
	case "true":
		e.Retryable = true
	case "false":
		e.Retryable = false
	}
}

// retryAfter reads the delay from Retry-After-Ms, or from Retry-After in seconds or as a date. A date is
// compared with the Date header of the same response, so the clocks need not agree. Without a usable value it
// returns 0.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return toDelay(ms, time.Millisecond)
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return toDelay(seconds, time.Second)
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return max(0, then.Sub(now))
}

const maxRetryAfter = 24 * time.Hour

func toDelay(n float64, unit time.Duration) time.Duration {
	if !(n > 0) { // also excludes NaN
		return 0
	}
	if n >= float64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n * float64(unit))
}
