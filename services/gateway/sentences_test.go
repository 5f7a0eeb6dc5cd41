package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Many clients show the sentence alone: useChat its whole body.
func TestTheSentenceOfEachRefusalSaysWhatToChange(t *testing.T) {
	t.Parallel()
	const cause = `shoes must be shiny`
	// vague are the sentences of reasons without one of their own.
	vague := map[string]bool{}
	for _, kind := range fault.Kinds() {
		sentence, _, _ := httpapi.ErrorTexts(fault.New(kind, "OTHER", ""))
		vague[sentence] = true
	}
	kinds := map[int]fault.Kind{
		http.StatusBadRequest: fault.Invalid, http.StatusUnauthorized: fault.Unauthenticated, http.StatusForbidden: fault.Denied,
		http.StatusNotFound: fault.NotFound, http.StatusConflict: fault.Conflict, http.StatusRequestEntityTooLarge: fault.TooLarge,
		http.StatusTooManyRequests: fault.Exhausted,
	}
	reasons := 0
	for _, route := range open(t, nil).service.Routes() {
		for status, list := range route.AllFaults() {
			kind, known := kinds[status]
			for _, reason := range list {
				if !known {
					continue // a failure of a service, or a status that says all
				}
				reasons++
				sentence, _, _ := httpapi.ErrorTexts(fault.New(kind, reason, cause))
				complete := strings.Contains(sentence, cause)
				switch kind {
				case fault.Conflict, fault.NotFound, fault.Exhausted: // the conversation is not in the state for it
					complete = complete || !vague[sentence]
				}
				if !complete {
					t.Errorf("%s %s: %d %s says %q alone", route.Method, route.Pattern, status, reason, sentence)
				}
			}
		}
	}
	if reasons == 0 {
		t.Error("there are no reasons")
	}
}
