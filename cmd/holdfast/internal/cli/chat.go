package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// maxMessage is the longest message that chat reads, in bytes.
const maxMessage = 1 << 20

// Chat returns the command that talks to an agent.
func Chat(g *Gateway) *cobra.Command {
	var r agentv1.StartRequest
	var message string
	c := &cobra.Command{
		Use: "chat [AGENT]", Short: "Talk to an agent", Args: Arguments(0, 1),
		Long: `Talk to an agent in the terminal. Approvals are asked with y or n, and the results of client tools are asked
as well. A message comes from the terminal, from -m, or from a pipe. The answer alone goes to standard output.

If the agent asks something that nobody answers here, the command prints how to answer it and ends with 5.`,
		Example: "  holdfast chat demo\n  holdfast chat demo -m 'What is 6 * 7?'\n  git diff | holdfast chat reviewer --session review-1",
		RunE: func(c *cobra.Command, args []string) error {
			r.AgentType = argument(args, 0)
			if r.SessionId == "" {
				r.SessionId = "chat-" + strings.ToLower(rand.Text())
			}
			g.Asks = g.Asks && !g.JSON
			g.onlyAnswer = true
			return g.with(c.Context(), longPatience, func(h *client.Client) error {
				t := &talk{Gateway: g, client: h, request: &r, input: &lines{in: g.In}}
				return t.run(c.Context(), message)
			})
		},
	}
	c.Flags().StringVarP(&message, "message", "m", "", "send this message, and end with the answer")
	c.Flags().StringVar(&r.SessionId, "session", "", "continue this session, or begin it; a new one without")
	c.Flags().StringVar(&r.UserId, "user", "", "the user of a new session")
	g.AddFlags(c)
	g.completeAgent(c)
	return c
}

// talk is one chat.
type talk struct {
	*Gateway
	client  *client.Client
	request *agentv1.StartRequest
	input   *lines
}

// run sends the message, or those of the terminal, or the text of a pipe.
func (t *talk) run(ctx context.Context, message string) error {
	switch {
	case message != "":
		return t.say(ctx, message)
	case !t.Asks:
		text, err := io.ReadAll(io.LimitReader(t.In, maxMessage+1))
		if err != nil {
			return fmt.Errorf("read the message: %w", err)
		}
		if len(text) > maxMessage {
			return fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "the message has more than %d bytes", maxMessage)
		}
		if strings.TrimSpace(string(text)) == "" {
			return fault.New(fault.Invalid, "MESSAGE_MISSING", "there is no message: give one with -m or through a pipe")
		}
		return t.say(ctx, string(text))
	}
	welcome := "session " + t.request.GetSessionId() + "; Ctrl-D ends the chat, and the session stays"
	if _, err := fmt.Fprintln(t.Err, t.paint(dim, welcome)); err != nil {
		return err
	}
	if err := t.catchUp(ctx); err != nil {
		return err
	}
	for {
		text, err := t.prompt(ctx, "> ")
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && strings.TrimSpace(text) != "" {
			err = t.say(ctx, text)
		}
		switch {
		case errors.Is(err, ErrFailed): // the failure is printed, and the next message may succeed
		case err != nil:
			return err
		}
	}
}

// catchUp shows what the session does or waits for already.
func (t *talk) catchUp(ctx context.Context) error {
	found, err := t.client.Get(ctx, t.request.GetSessionId())
	if errors.Is(err, fault.NotFound) {
		return nil // it begins with the first message
	}
	if err != nil || !found.GetIsExecuting() && len(found.GetPendingCalls()) == 0 {
		return err
	}
	err = t.listen(ctx, found.GetRunId())
	if errors.Is(err, ErrFailed) {
		return nil
	}
	return err
}

// say sends a message and prints the answer.
func (t *talk) say(ctx context.Context, text string) error {
	t.request.Message, t.request.RequestKey = text, rand.Text()
	started, err := t.client.Start(ctx, t.request)
	if err != nil {
		return err
	}
	return t.listen(ctx, started.GetRunId())
}

// listen prints a run and its continuations. It asks the person for each answer they wait for.
func (t *talk) listen(ctx context.Context, run string) error {
	session := t.request.GetSessionId()
	for run != "" {
		calls, last, err := t.follow(ctx, t.client, session, run)
		if ctx.Err() != nil {
			// the error matters more
			_, _ = fmt.Fprintf(t.Err, "\nThe run goes on: holdfast runs watch %[1]s, or runs stop %[1]s\n", word(session))
		}
		if err != nil || len(calls) == 0 {
			return err
		}
		if !t.Asks {
			return fault.New(fault.Conflict, "SESSION_WAITS", "session %s waits for %s", session, plural(len(calls), "call"))
		}
		for len(calls) > 0 { // more may wait in sub-sessions
			if err := t.answer(ctx, calls); err != nil {
				return err
			}
			if calls, run, err = t.next(ctx, t.client, session, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer asks for the answers to calls.
func (t *talk) answer(ctx context.Context, calls []*agentv1.PendingCall) error {
	for _, c := range calls {
		err := t.ask(ctx, c)
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Conflict, "SESSION_WAITS",
				"session %s still waits for answers; \"holdfast calls list\" shows its calls", t.request.GetSessionId())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks for the answer to a call, and sends it.
func (t *talk) ask(ctx context.Context, c *agentv1.PendingCall) error {
	call := client.Call{Session: c.GetSessionId(), ID: c.GetToolCallId(), Approval: c.GetApprovalId()}
	if call.Approval == "" {
		text, err := t.prompt(ctx, fmt.Sprintf("? result of %s %s: ", c.GetToolName(), shortened(c.GetInput())))
		if err != nil {
			return err
		}
		var result any = text
		if json.Valid([]byte(text)) {
			result = json.RawMessage(text)
		}
		_, err = t.client.SubmitResult(ctx, call, result)
		return err
	}
	for {
		text, err := t.prompt(ctx, fmt.Sprintf("? run %s %s? y, or n and a reason: ", c.GetToolName(), shortened(c.GetInput())))
		if err != nil {
			return err
		}
		answer, reason, _ := strings.Cut(strings.TrimSpace(text), " ")
		switch strings.ToLower(answer) {
		case "y", "yes":
			_, err = t.client.Approve(ctx, call, strings.TrimSpace(reason))
			return err
		case "n", "no":
			_, err = t.client.Deny(ctx, call, strings.TrimSpace(reason))
			return err
		}
	}
}

// prompt asks for a line. io.EOF: there is none.
func (t *talk) prompt(ctx context.Context, text string) (string, error) {
	if err := t.printf("%s", t.paint(yellow, Clean(strings.ReplaceAll(text, "\n", " ")))); err != nil {
		return "", err
	}
	line, err := t.input.next(ctx)
	if err != nil {
		_ = t.printf("\n") // the error matters more
	}
	return line, err
}

// lines reads lines, so that a command can end while it waits for one.
type lines struct {
	in   io.Reader
	read chan string // nil until the first line is needed
	err  error       // set before read is closed
}

// next returns the next line, or io.EOF.
func (l *lines) next(ctx context.Context) (string, error) {
	if l.read == nil {
		l.read = make(chan string)
		// A read of a terminal cannot be cancelled: the goroutine ends with the input, or with the process.
		go l.scan(ctx)
	}
	select {
	case line, ok := <-l.read:
		if !ok {
			return "", l.err
		}
		return line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (l *lines) scan(ctx context.Context) {
	defer close(l.read)
	l.err = io.EOF
	scanner := bufio.NewScanner(l.in)
	scanner.Buffer(nil, maxMessage)
	for scanner.Scan() {
		select {
		case l.read <- scanner.Text():
		case <-ctx.Done():
			l.err = ctx.Err()
			return
		}
	}
	if err := scanner.Err(); err != nil {
		l.err = fmt.Errorf("read the terminal: %w", err)
	}
}
