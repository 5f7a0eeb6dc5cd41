package line

import (
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Advise reads what the head of a refusal says about trying again: how long to
// wait, and X-Should-Retry, which is stronger than the status.
func Advise(e *model.Error, h http.Header) {
	e.RetryAfter = retryAfter(h)
	switch h.Get("X-Should-Retry") {
	case "true":
		e.Retryable = true
	case "false":
		e.Retryable = false
	}
}

// retryAfter reads how long to wait, from Retry-After-Ms or Retry-After in
// seconds or as a date. A date is measured against the Date of the same
// answer, so that the clocks need not agree. 0 when nothing usable is said.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return span(ms, time.Millisecond)
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return span(seconds, time.Second)
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

// maxRetryAfter is the longest wait that is believed.
const maxRetryAfter = 24 * time.Hour

func span(n float64, unit time.Duration) time.Duration {
	if !(n > 0) { // NaN is not, either
		return 0
	}
	if n >= float64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n * float64(unit))
}
