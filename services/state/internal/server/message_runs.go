package server

import (
	"context"
	"slices"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const (
	// maxMessageRuns bounds the runs of one message in a response.
	maxMessageRuns = 200
	// firstRuns is the first page of them. Most messages have few runs.
	firstRuns = 8
)

// messageRuns returns the runs of the run's assistant message, the oldest first, up to newest: of more than
// maxMessageRuns, the newest. A run that continues or resumes another writes the same message, in a later turn. Turns
// of other messages do not lie between them, so the search does not begin at the newest run of the session.
func messageRuns(ctx context.Context, reader store.Reader, key session.Key, run, newest *session.Run) ([]session.Run, error) {
	if newest == nil || newest.Turn < run.Turn {
		newest = run
	}
	begins := run.Entry == session.EntryStart
	if run.Turn == 0 || begins && run.RunID == newest.RunID {
		return []session.Run{*run}, nil
	}
	var found []session.Run
	before := newest.Turn
	if newest.MessageID == run.MessageID {
		found = append(found, *newest)
	} else {
		before = min(before, run.Turn+maxMessageRuns)
	}
	complete := false
	for limit := firstRuns; before > 1 && !complete; limit = maxMessageRuns {
		page, err := reader.Runs(ctx, key, before, limit)
		if err != nil {
			return nil, err
		}
		for _, earlier := range page {
			before = earlier.Turn
			if earlier.MessageID == run.MessageID {
				found = append(found, earlier)
			}
			first := begins && earlier.RunID == run.RunID || earlier.MessageID != run.MessageID && earlier.Turn < run.Turn
			if complete = first || len(found) == maxMessageRuns; complete {
				break
			}
		}
		complete = complete || len(page) < limit
	}
	slices.Reverse(found)
	return found, nil
}

// repeatedMessageRuns is messageRuns for the run of a repeated request. It returns none if the run's message is no longer
// in the conversation.
func repeatedMessageRuns(ctx context.Context, reader store.Reader, key session.Key, started session.Started) ([]session.Run, error) {
	run, newest := &started.Run, &started.Run
	if run.Turn > 0 && run.RunID != started.Session.CurrentRunID {
		var err error
		if newest, err = reader.Run(ctx, key, started.Session.CurrentRunID); err != nil {
			return nil, err
		}
	}
	if newest.MessageID != run.MessageID {
		first, _, err := reader.Messages(ctx, key, store.Page{From: run.StartMessageCount, Limit: 1, MaxBytes: 1})
		if err != nil || len(first) == 0 || first[0].RunID != run.RunID {
			return nil, err
		}
	}
	return messageRuns(ctx, reader, key, run, newest)
}

// runsOut converts the runs without their outputs, which together could exceed a response.
func runsOut(key session.Key, runs []session.Run) []*statev1.Run {
	var out []*statev1.Run
	for _, run := range runs {
		run.Outcome.Output = ""
		out = append(out, runOut(key, &run))
	}
	return out
}
