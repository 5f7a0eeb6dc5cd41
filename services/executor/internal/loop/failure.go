package loop

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Failure codes.
const (
	CodeMaxSteps          = "framework_max_steps"
	CodeInternal          = "framework_internal_error"
	CodeCancelled         = "framework_cancelled"
	CodeDeadlineExceeded  = "framework_deadline_exceeded"
	CodeAgentGone         = "framework_agent_gone" // no executor serves the agent
	CodeCompletionMissed  = "framework_completion_missed"
	CodeSchemaUnsupported = "framework_completion_schema_unsupported"
	CodeGuardRefused      = "framework_guard_refused" // the guard fails the run
	CodeGuardFailed       = "framework_guard_failed"  // the guard itself failed
	CodeContentFiltered   = "provider_content_filtered"
)

// Delays before retries of a model call.
const (
	firstWait    Millis = 1_000
	longestWait  Millis = 60_000 // limit of the doubling delay
	maxWait      Millis = 60_000 // limit of a provider's requested delay
	jitterFactor        = 0.25
)

// sentences are the users' texts for a provider's failure.
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
	model.CodeUnsupported:     "The model cannot do what the agent asks for.",
	model.CodeFileMissing:     "A file of the message does not exist any more. Please send it again.",
	model.CodeFilesTooLarge:   "The files of the message are too large together. Please send fewer or smaller ones.",
}

// InternalFailure is the failure of a run the runtime could not continue.
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
	f := Failure{Error: sentence, Detail: provider.Error(), Code: provider.Code, Retryable: provider.Retryable}
	if provider.Refusal != nil {
		f.Error = cmp.Or(refusalSentence(*provider.Refusal), sentence)
		if provider.Refusal.Part == model.RefusedContent {
			f.Code = CodeContentFiltered
		}
	}
	return f
}

func maxStepsFailure(steps int) Failure {
	return Failure{
		Error: "The agent did not come to an end within its limit of steps.",
		Detail: fmt.Sprintf("the run has made %d steps and the model still calls tools; "+
			"raise the agent's maxSteps if it needs more", steps),
		Code: CodeMaxSteps,
	}
}

func missedFailure() Failure {
	return Failure{
		Error:  "The agent did not give its output.",
		Detail: fmt.Sprintf("the model was asked for nothing but the output %d times, and missed it each time", maxMisses),
		Code:   CodeCompletionMissed,
	}
}

func unsupportedFailure(f Failure) Failure {
	return Failure{
		Error: f.Error, Detail: "the model cannot be made to give an output of the agent's schema: " + f.Detail,
		Code: CodeSchemaUnsupported,
	}
}

func contentFilteredFailure() Failure {
	return Failure{
		Error:  "The model did not answer because of its content policy.",
		Detail: "the provider has filtered the whole reply", Code: CodeContentFiltered,
	}
}

// backoff returns the delay before a retry, counted from 1. A longer delay requested by the provider counts, up
// to maxWait. The jitter is in [0, 1).
func backoff(retry int, err error, jitter float64) Millis {
	wait := longestWait
	if doublings := retry - 1; doublings < 6 {
		wait = min(wait, firstWait<<doublings)
	}
	wait += Millis(jitter * jitterFactor * float64(wait))
	if provider, ok := errors.AsType[*model.Error](err); ok {
		wait = max(wait, min(Millis(provider.RetryAfter.Milliseconds()), maxWait))
	}
	return wait
}
