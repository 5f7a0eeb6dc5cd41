package scripted

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The default chunk sizes.
var (
	textSize      = chunkSize{n: 1, words: true}
	argumentsSize = chunkSize{n: 12}
)

var errStopped = errors.New("the consumer stopped")

type replyWriter struct {
	yield       func(model.Event, error) bool
	data        templateData // the only part of the conversation in use
	replyCount  int          // replies in the conversation
	promptWords int          // words of the conversation
	script      *modelScript

	stopped      bool // yield returned false
	chunks       int  // deltas written
	calls        int
	words        int
	reasoning    int // words of reasoning
	usage        *usage
	finish       model.FinishReason
	delayedError *failure // ends the reply after delayedError.After chunks
}

// write yields the complete reply with its usage and finish.
func (w *replyWriter) write(ctx context.Context, r reply) error {
	for _, p := range r {
		if p.Error != nil && p.Error.After > 0 {
			w.delayedError = p.Error
			break
		}
	}
	for i, p := range r {
		if err := w.writePart(ctx, p); err != nil {
			if _, ok := errors.AsType[*model.Error](err); !ok && ctx.Err() == nil && !w.stopped {
				return &model.Error{
					Code: model.CodeInvalidRequest, Message: fmt.Sprintf("part %d of the scripted reply: %v", i+1, err), Err: err,
				}
			}
			return err
		}
	}
	if w.delayedError != nil {
		return w.delayedError.modelError()
	}
	if w.finish == "" {
		w.finish = model.FinishStop
		if w.calls > 0 {
			w.finish = model.FinishToolCalls
		}
	}
	if err := w.send(ctx, w.tokenUsage()); err != nil {
		return err
	}
	return w.send(ctx, model.Finish{Reason: w.finish})
}

func (w *replyWriter) writePart(ctx context.Context, p part) error {
	switch {
	case p.Text != nil:
		return w.writeText(ctx, p, *p.Text, func(chunk string) model.Event { return model.TextDelta{Text: chunk} })
	case p.Reasoning != nil:
		return w.writeReasoning(ctx, p)
	case p.Call != nil:
		return w.writeCalls(ctx, p, []call{*p.Call})
	case p.Calls != nil:
		return w.writeCalls(ctx, p, p.Calls)
	case p.Wait != nil:
		return w.pause(ctx, time.Duration(*p.Wait))
	case p.Usage != nil:
		w.usage = p.Usage
	case p.Finish != nil:
		w.finish = model.FinishReason(*p.Finish)
	case p.Error != nil && p.Error.After == 0:
		return p.Error.modelError()
	}
	return nil
}

func (w *replyWriter) writeText(ctx context.Context, p part, t textTemplate, event func(chunk string) model.Event) error {
	rendered, err := t.render(w.data)
	if err != nil {
		return err
	}
	if p.Repeat != nil {
		if len(rendered) > maxText / *p.Repeat {
			return errTooLong
		}
		rendered = strings.Repeat(rendered, *p.Repeat)
	}
	w.words += countWords(rendered)
	first := true
	for chunk := range w.chunkSizeOf(p, textSize).split(rendered) {
		if !first {
			if err := w.pause(ctx, w.delayOf(p)); err != nil {
				return err
			}
		}
		first = false
		if err := w.send(ctx, event(chunk)); err != nil {
			return err
		}
	}
	return nil
}

func (w *replyWriter) writeReasoning(ctx context.Context, p part) error {
	before := w.words
	err := w.writeText(ctx, p, *p.Reasoning, func(chunk string) model.Event { return model.ReasoningDelta{Text: chunk} })
	if err != nil {
		return err
	}
	w.reasoning += w.words - before
	var end model.ReasoningEnd
	if p.ProviderData != nil {
		end.ProviderData = p.ProviderData.json
	}
	return w.send(ctx, end)
}

// writeCalls yields parallel calls: their starts, then their fragments in turn, then their ends.
func (w *replyWriter) writeCalls(ctx context.Context, p part, calls []call) error {
	first := w.calls
	texts := make([]string, len(calls))
	fragments := make([][]string, len(calls))
	for i, c := range calls {
		arguments, err := c.Arguments.render(w.data)
		if err != nil {
			return err
		}
		texts[i] = arguments
		w.words += countWords(arguments)
		fragments[i] = slices.Collect(w.chunkSizeOf(p, argumentsSize).split(arguments))
	}
	for i, c := range calls {
		w.calls++
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", w.replyCount+1, w.calls)
		}
		if err := w.send(ctx, model.CallStart{Index: first + i, ID: id, Name: c.Name}); err != nil {
			return err
		}
	}
	if err := w.writeFragments(ctx, p, first, fragments); err != nil {
		return err
	}
	for i, arguments := range texts {
		if err := w.send(ctx, model.CallEnd{Index: first + i, Arguments: model.EncodeArguments(arguments)}); err != nil {
			return err
		}
	}
	return nil
}

// writeFragments yields one fragment of each text in turn until all are written.
func (w *replyWriter) writeFragments(ctx context.Context, p part, first int, fragments [][]string) error {
	for turn, sent := 0, true; sent; turn++ {
		sent = false
		for i, list := range fragments {
			if turn >= len(list) {
				continue
			}
			sent = true
			if err := w.send(ctx, model.CallDelta{Index: first + i, Text: list[turn]}); err != nil {
				return err
			}
			if err := w.pause(ctx, w.delayOf(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tokenUsage returns the usage of the script, or else a count of words.
func (w *replyWriter) tokenUsage() model.Usage {
	u := usage{Prompt: int64(w.promptWords), Completion: int64(w.words), Reasoning: int64(w.reasoning)}
	if w.usage != nil {
		u = *w.usage
	}
	if u.Total == 0 {
		u.Total = u.Prompt + u.Completion
	}
	return model.Usage{
		PromptTokens: u.Prompt, CompletionTokens: u.Completion, ReasoningTokens: u.Reasoning,
		CachedTokens: u.Cached, TotalTokens: u.Total,
	}
}

func (w *replyWriter) send(ctx context.Context, e model.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.delayedError != nil && w.chunks >= w.delayedError.After {
		return w.delayedError.modelError()
	}
	if !w.yield(e, nil) {
		w.stopped = true
		return errStopped
	}
	switch e.(type) {
	case model.TextDelta, model.ReasoningDelta, model.CallDelta:
		w.chunks++
	}
	return nil
}

func (w *replyWriter) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// chunkSizeOf returns the chunk size of a part: its own, else for texts its model's, else the fallback.
func (w *replyWriter) chunkSizeOf(p part, fallback chunkSize) chunkSize {
	switch {
	case p.Chunk != nil:
		return *p.Chunk
	case w.script.Chunk != (chunkSize{}) && fallback == textSize:
		return w.script.Chunk
	}
	return fallback
}

func (w *replyWriter) delayOf(p part) time.Duration {
	if p.Delay != nil {
		return time.Duration(*p.Delay)
	}
	return time.Duration(w.script.Delay)
}

func (f *failure) modelError() *model.Error {
	return &model.Error{
		Code: f.Code, Retryable: *f.Retryable, StatusCode: f.Status, RetryAfter: time.Duration(f.RetryAfter), Message: f.Message,
	}
}

// split splits a text into chunks. Together they are the complete text. A word includes the space after it.
func (s chunkSize) split(source string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for source != "" {
			end := len(source)
			if !s.whole {
				end = s.firstEnd(source)
			}
			if !yield(source[:end]) {
				return
			}
			source = source[end:]
		}
	}
}

func (s chunkSize) firstEnd(source string) int {
	remaining, spaced := s.n, false
	for i, r := range source {
		switch {
		case !s.words:
			if remaining == 0 {
				return i
			}
			remaining--
		case unicode.IsSpace(r):
			spaced = i > 0
		case spaced:
			if remaining--; remaining == 0 {
				return i
			}
			spaced = false
		}
	}
	return len(source)
}
