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

// write yields the whole reply with its usage and finish.
func (s *replyWriter) write(ctx context.Context, r reply) error {
	for _, p := range r {
		if p.Error != nil && p.Error.After > 0 {
			s.delayedError = p.Error
			break
		}
	}
	for i, p := range r {
		if err := s.writePart(ctx, p); err != nil {
			if _, ok := errors.AsType[*model.Error](err); !ok && ctx.Err() == nil && !s.stopped {
				return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("part %d of the scripted reply: %v", i+1, err), Err: err}
			}
			return err
		}
	}
	if s.delayedError != nil {
		return s.delayedError.modelError()
	}
	if s.finish == "" {
		s.finish = model.FinishStop
		if s.calls > 0 {
			s.finish = model.FinishToolCalls
		}
	}
	if err := s.send(ctx, s.tokenUsage()); err != nil {
		return err
	}
	return s.send(ctx, model.Finish{Reason: s.finish})
}

func (s *replyWriter) writePart(ctx context.Context, p part) error {
	switch {
	case p.Text != nil:
		return s.writeText(ctx, p, *p.Text, func(chunk string) model.Event { return model.TextDelta{Text: chunk} })
	case p.Reasoning != nil:
		return s.writeReasoning(ctx, p)
	case p.Call != nil:
		return s.writeCalls(ctx, p, []call{*p.Call})
	case p.Calls != nil:
		return s.writeCalls(ctx, p, p.Calls)
	case p.Wait != nil:
		return s.pause(ctx, time.Duration(*p.Wait))
	case p.Usage != nil:
		s.usage = p.Usage
	case p.Finish != nil:
		s.finish = model.FinishReason(*p.Finish)
	case p.Error != nil && p.Error.After == 0:
		return p.Error.modelError()
	}
	return nil
}

func (s *replyWriter) writeText(ctx context.Context, p part, t textTemplate, event func(chunk string) model.Event) error {
	rendered, err := t.render(s.data)
	if err != nil {
		return err
	}
	if p.Repeat != nil {
		if len(rendered) > maxText / *p.Repeat {
			return errTooLong
		}
		rendered = strings.Repeat(rendered, *p.Repeat)
	}
	s.words += countWords(rendered)
	first := true
	for chunk := range s.chunkSizeOf(p, textSize).split(rendered) {
		if !first {
			if err := s.pause(ctx, s.delayOf(p)); err != nil {
				return err
			}
		}
		first = false
		if err := s.send(ctx, event(chunk)); err != nil {
			return err
		}
	}
	return nil
}

func (s *replyWriter) writeReasoning(ctx context.Context, p part) error {
	before := s.words
	err := s.writeText(ctx, p, *p.Reasoning, func(chunk string) model.Event { return model.ReasoningDelta{Text: chunk} })
	if err != nil {
		return err
	}
	s.reasoning += s.words - before
	var end model.ReasoningEnd
	if p.ProviderData != nil {
		end.ProviderData = p.ProviderData.json
	}
	return s.send(ctx, end)
}

// writeCalls yields parallel calls: their starts, then their fragments in turn, then their ends.
func (s *replyWriter) writeCalls(ctx context.Context, p part, calls []call) error {
	first := s.calls
	texts := make([]string, len(calls))
	fragments := make([][]string, len(calls))
	for i, c := range calls {
		arguments, err := c.Arguments.render(s.data)
		if err != nil {
			return err
		}
		texts[i] = arguments
		s.words += countWords(arguments)
		fragments[i] = slices.Collect(s.chunkSizeOf(p, argumentsSize).split(arguments))
	}
	for i, c := range calls {
		s.calls++
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", s.replyCount+1, s.calls)
		}
		if err := s.send(ctx, model.CallStart{Index: first + i, ID: id, Name: c.Name}); err != nil {
			return err
		}
	}
	if err := s.writeFragments(ctx, p, first, fragments); err != nil {
		return err
	}
	for i, arguments := range texts {
		if err := s.send(ctx, model.CallEnd{Index: first + i, Arguments: model.EncodeArguments(arguments)}); err != nil {
			return err
		}
	}
	return nil
}

// writeFragments yields one fragment of each text in turn until all are written.
func (s *replyWriter) writeFragments(ctx context.Context, p part, first int, fragments [][]string) error {
	for turn, sent := 0, true; sent; turn++ {
		sent = false
		for i, list := range fragments {
			if turn >= len(list) {
				continue
			}
			sent = true
			if err := s.send(ctx, model.CallDelta{Index: first + i, Text: list[turn]}); err != nil {
				return err
			}
			if err := s.pause(ctx, s.delayOf(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tokenUsage returns the usage of the script, or else a count of words.
func (s *replyWriter) tokenUsage() model.Usage {
	u := usage{Prompt: int64(s.promptWords), Completion: int64(s.words), Reasoning: int64(s.reasoning)}
	if s.usage != nil {
		u = *s.usage
	}
	if u.Total == 0 {
		u.Total = u.Prompt + u.Completion
	}
	return model.Usage{
		PromptTokens: u.Prompt, CompletionTokens: u.Completion, ReasoningTokens: u.Reasoning,
		CachedTokens: u.Cached, TotalTokens: u.Total,
	}
}

func (s *replyWriter) send(ctx context.Context, e model.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.delayedError != nil && s.chunks >= s.delayedError.After {
		return s.delayedError.modelError()
	}
	if !s.yield(e, nil) {
		s.stopped = true
		return errStopped
	}
	switch e.(type) {
	case model.TextDelta, model.ReasoningDelta, model.CallDelta:
		s.chunks++
	}
	return nil
}

func (s *replyWriter) pause(ctx context.Context, d time.Duration) error {
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
func (s *replyWriter) chunkSizeOf(p part, fallback chunkSize) chunkSize {
	switch {
	case p.Chunk != nil:
		return *p.Chunk
	case s.script.Chunk != (chunkSize{}) && fallback == textSize:
		return s.script.Chunk
	}
	return fallback
}

func (s *replyWriter) delayOf(p part) time.Duration {
	if p.Delay != nil {
		return time.Duration(*p.Delay)
	}
	return time.Duration(s.script.Delay)
}

func (f *failure) modelError() *model.Error {
	return &model.Error{
		Code: f.Code, Retryable: *f.Retryable, StatusCode: f.Status, RetryAfter: time.Duration(f.RetryAfter), Message: f.Message,
	}
}

// split cuts a text into chunks. Together they are the whole text. A word includes the space after it.
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
