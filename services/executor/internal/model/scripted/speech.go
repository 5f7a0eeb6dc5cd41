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

// How texts and arguments are cut where the script does not say it.
var (
	textSize      = size{n: 1, words: true}
	argumentsSize = size{n: 12}
)

// errStopped ends a speech whose listener has gone.
var errStopped = errors.New("the consumer stopped")

// speech is one reply on its way out.
type speech struct {
	yield     func(model.Event, error) bool
	view      view // of the conversation; the rest of it is not kept
	replies   int  // it has so far
	asked     int  // its words
	character *character

	stopped   bool // yield returned false
	chunks    int  // deltas sent
	calls     int
	words     int
	reasoning int // of words
	usage     *usage
	finish    model.FinishReason
	late      *failure // comes when late.After chunks are out
}

// say sends the whole reply, with its usage and its end.
func (s *speech) say(ctx context.Context, r reply) error {
	for _, p := range r {
		if p.Error != nil && p.Error.After > 0 {
			s.late = p.Error
			break
		}
	}
	for i, p := range r {
		if err := s.part(ctx, p); err != nil {
			if _, ok := errors.AsType[*model.Error](err); !ok && ctx.Err() == nil && !s.stopped {
				return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf("part %d of the scripted reply: %v", i+1, err), Err: err}
			}
			return err
		}
	}
	if s.late != nil {
		return s.late.error()
	}
	if s.finish == "" {
		s.finish = model.FinishStop
		if s.calls > 0 {
			s.finish = model.FinishToolCalls
		}
	}
	if err := s.send(ctx, s.tokens()); err != nil {
		return err
	}
	return s.send(ctx, model.Finish{Reason: s.finish})
}

func (s *speech) part(ctx context.Context, p part) error {
	switch {
	case p.Text != nil:
		return s.text(ctx, p, *p.Text, func(chunk string) model.Event { return model.TextDelta{Text: chunk} })
	case p.Reasoning != nil:
		return s.think(ctx, p)
	case p.Call != nil:
		return s.call(ctx, p, []call{*p.Call})
	case p.Calls != nil:
		return s.call(ctx, p, p.Calls)
	case p.Wait != nil:
		return s.pause(ctx, time.Duration(*p.Wait))
	case p.Usage != nil:
		s.usage = p.Usage
	case p.Finish != nil:
		s.finish = model.FinishReason(*p.Finish)
	case p.Error != nil && p.Error.After == 0:
		return p.Error.error()
	}
	return nil
}

func (s *speech) text(ctx context.Context, p part, t text, event func(chunk string) model.Event) error {
	rendered, err := t.render(s.view)
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
	for chunk := range s.cut(p, textSize).split(rendered) {
		if !first {
			if err := s.pause(ctx, s.delay(p)); err != nil {
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

func (s *speech) think(ctx context.Context, p part) error {
	before := s.words
	err := s.text(ctx, p, *p.Reasoning, func(chunk string) model.Event { return model.ReasoningDelta{Text: chunk} })
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

// call streams calls side by side: their starts, then a fragment of each in
// turn, then their ends.
func (s *speech) call(ctx context.Context, p part, calls []call) error {
	first := s.calls
	texts := make([]string, len(calls))
	fragments := make([][]string, len(calls))
	for i, c := range calls {
		arguments, err := c.Arguments.render(s.view)
		if err != nil {
			return err
		}
		texts[i] = arguments
		s.words += countWords(arguments)
		fragments[i] = slices.Collect(s.cut(p, argumentsSize).split(arguments))
	}
	for i, c := range calls {
		s.calls++
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", s.replies+1, s.calls)
		}
		if err := s.send(ctx, model.CallStart{Index: first + i, ID: id, Name: c.Name}); err != nil {
			return err
		}
	}
	if err := s.fragments(ctx, p, first, fragments); err != nil {
		return err
	}
	for i, arguments := range texts {
		if err := s.send(ctx, model.CallEnd{Index: first + i, Arguments: model.Arguments(arguments)}); err != nil {
			return err
		}
	}
	return nil
}

// fragments sends a fragment of each text in turn until all are at their end.
func (s *speech) fragments(ctx context.Context, p part, first int, fragments [][]string) error {
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
			if err := s.pause(ctx, s.delay(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tokens is the usage: as the script says it, or by counting words.
func (s *speech) tokens() model.Usage {
	u := usage{Prompt: int64(s.asked), Completion: int64(s.words), Reasoning: int64(s.reasoning)}
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

func (s *speech) send(ctx context.Context, e model.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.late != nil && s.chunks >= s.late.After {
		return s.late.error()
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

func (s *speech) pause(ctx context.Context, d time.Duration) error {
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

// cut gives the size for a part: its own, its model's for texts, or the fallback.
func (s *speech) cut(p part, fallback size) size {
	switch {
	case p.Chunk != nil:
		return *p.Chunk
	case s.character.Chunk != (size{}) && fallback == textSize:
		return s.character.Chunk
	}
	return fallback
}

func (s *speech) delay(p part) time.Duration {
	if p.Delay != nil {
		return time.Duration(*p.Delay)
	}
	return time.Duration(s.character.Delay)
}

func (f *failure) error() *model.Error {
	return &model.Error{
		Code: f.Code, Retryable: *f.Retryable, StatusCode: f.Status, RetryAfter: time.Duration(f.RetryAfter), Message: f.Message,
	}
}

// split cuts a text so that the chunks together are the text. A word keeps the
// space that follows it.
func (s size) split(source string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for source != "" {
			end := len(source)
			if !s.whole {
				end = s.end(source)
			}
			if !yield(source[:end]) {
				return
			}
			source = source[end:]
		}
	}
}

// end is where the first chunk of the text ends.
func (s size) end(source string) int {
	left, spaced := s.n, false
	for i, r := range source {
		switch {
		case !s.words:
			if left == 0 {
				return i
			}
			left--
		case unicode.IsSpace(r):
			spaced = i > 0
		case spaced:
			if left--; left == 0 {
				return i
			}
			spaced = false
		}
	}
	return len(source)
}
