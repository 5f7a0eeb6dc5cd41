package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// The colours of texts, as ANSI parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint colours a text if the terminal shows colours.
func (t *Terminal) paint(color, text string) string {
	if !t.Colors || color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// statusColor returns the colour of a status of a session or a run.
func statusColor(status string) string {
	switch {
	case status == "completed":
		return green
	case status == "failed":
		return red
	case strings.HasPrefix(status, "suspended"), status == "interrupted", status == "paused":
		return yellow
	default:
		return bold
	}
}

// printf prints to the terminal.
func (t *Terminal) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(t.Out, format, args...)
	return err
}

// Table prints rows below a header. A cell takes one line; shorten long texts with OneLine, but no ids, since people copy
// them.
func (t *Terminal) Table(header []string, rows [][]string) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(header, "\t")) // Flush returns the error
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = flat(cell); row[i] == "" {
				row[i] = "-"
			}
		}
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	first, rest, _ := strings.Cut(text.String(), "\n")
	_, err := fmt.Fprintln(t.Out, t.paint(dim, strings.TrimRight(first, " ")))
	if err == nil {
		_, err = io.WriteString(t.Out, rest)
	}
	return err
}

// pair is a line of a description.
type pair struct{ name, value string }

// describe prints pairs with a value below each other.
func (t *Terminal) describe(pairs []pair) error {
	width := 0
	for _, p := range pairs {
		if p.value != "" {
			width = max(width, len(p.name))
		}
	}
	for _, p := range pairs {
		if p.value == "" {
			continue
		}
		if err := t.printf("%s  %s\n", t.paint(dim, fmt.Sprintf("%-*s", width, p.name)), p.value); err != nil {
			return err
		}
	}
	return nil
}

// PrintJSON prints a value as indented JSON.
func (t *Terminal) PrintJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(t.Out, "%s\n", text)
	return err
}

// printMessage prints a message of the API as JSON, as the gateway's HTTP routes do.
func (t *Terminal) printMessage(m proto.Message) error {
	text, err := eventv1.MarshalMessage(m)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return t.PrintJSON(json.RawMessage(text))
}

// printMessages prints messages of the API as a JSON array.
func printMessages[M proto.Message](t *Terminal, list []M) error {
	texts := make([]json.RawMessage, len(list))
	for i, m := range list {
		text, err := eventv1.MarshalMessage(m)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		texts[i] = text
	}
	return t.PrintJSON(texts)
}

// maxCell is the longest text of a cell, in characters.
const maxCell = 60

// OneLine shortens a text for a cell of a table, without control characters.
func OneLine(text string) string {
	text = flat(text)
	if utf8.RuneCountInString(text) > maxCell {
		return string([]rune(text)[:maxCell-1]) + "…"
	}
	return text
}

// flat makes one line of a text, without control characters.
func flat(text string) string { return strings.Join(strings.Fields(Clean(text)), " ") }

// Clean removes control characters other than line ends and tabs: a text of a model or a user must not control the
// terminal.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
}

// instant describes a time in milliseconds since the Unix epoch; "" for 0.
func instant(millis int64) string {
	if millis == 0 {
		return ""
	}
	at := time.UnixMilli(millis)
	if ahead := time.Until(at); ahead > 0 {
		return fmt.Sprintf("%s (in %s)", at.UTC().Format(time.RFC3339), brief(ahead))
	}
	return fmt.Sprintf("%s (%s ago)", at.UTC().Format(time.RFC3339), since(millis))
}

// since describes how long ago a time was; "" for 0.
func since(millis int64) string {
	if millis == 0 {
		return ""
	}
	return brief(time.Since(time.UnixMilli(millis)))
}

// brief describes a duration in its largest unit.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	}
}

// plural counts things with a regular plural.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
