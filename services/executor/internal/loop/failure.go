package loop

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Codes of failures that are not a provider's.
const (
	CodeMaxSteps = "framework_max_steps"
	CodeInternal = "framework_internal_error"
)

// ReasonMaxSteps is the completion reason of a run that its cap has ended.
const ReasonMaxSteps = "max_steps"

// Retries of a failed model call.
const (
	maxRetries   = 3
	firstWait    = time.Second
	maxWait      = 60 * time.Second // of what a provider asks for
	jitterFactor = 0.25
)

// sentences are what users are told of a provider's failure.
var sentences = map[string]string{
	model.CodeRateLimited:     "The model is receiving too many requests. Please try again in a moment.",
	model.CodeOverloaded:      "The model is overloaded. Please try again in a moment.",
	model.CodeUnavailable:     "The model could not be reached. Please try again in a moment.",
	model.CodeTimeout:         "The model did not answer in time. Please try again.",
	model.CodeInvalidRequest:  "The model refused the request.",
	model.CodeUnauthenticated: "The model refused the agent's credentials.",
	model.CodeDenied:          "The agent may not use its model.",
	model.CodeNotFound:        "The agent's model does not exist.",
	model.CodeInvalidResponse: "The model's answer could not be understood. Please try again.",
}

// InternalFailure is the failure of a run that the runtime could not go on with.
func InternalFailure(cause error) Failure {
	return Failure{Error: "Something went wrong on our side.", Detail: cause.Error(), Code: CodeInternal}
}

func modelFailure(err error) Failure {
	provider, ok := errors.AsType[*model.Error](err)
	if !ok {
		return Failure{Error: "The model call failed.", Detail: err.Error()}
	}
	sentence := sentences[provider.Code]
	if sentence == "" {
		sentence = "The model call failed."
	}
	return Failure{Error: sentence, Detail: provider.Error(), Code: provider.Code, Retryable: provider.Retryable}
}

func maxStepsFailure(steps int) Failure {
	return Failure{
		Error:  "The agent did not come to an end within its limit of steps.",
		Detail: fmt.Sprintf("the run has made %d steps and the model still calls tools; raise the agent's maxSteps if it needs more", steps),
		Code:   CodeMaxSteps,
	}
}

// backoff is the wait before the retry with the number, from 1. What the provider
// asks for counts when it is longer, up to maxWait. The jitter is in [0, 1).
func backoff(retry int, err error, jitter float64) time.Duration {
	wait := firstWait << (retry - 1)
	wait += time.Duration(jitter * jitterFactor * float64(wait))
	if provider, ok := errors.AsType[*model.Error](err); ok {
		wait = max(wait, min(provider.RetryAfter, maxWait))
	}
	return wait
}
