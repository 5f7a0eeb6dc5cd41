package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Script is a parsed script. It is immutable.
type Script struct {
	models map[string]*modelScript
}

type modelScript struct {
	Chunk chunkSize `yaml:"chunk"`
	Delay duration  `yaml:"delay"`
	Rules []rule    `yaml:"rules"`
}

type rule struct {
	When  *condition `yaml:"when"`
	Reply reply      `yaml:"reply"`
}

// condition holds if all its set fields hold.
type condition struct {
	LastUser   *pattern `yaml:"lastUser"`
	LastRole   role     `yaml:"lastRole"`
	ToolResult string   `yaml:"toolResult"`
	ToolFailed string   `yaml:"toolFailed"`
	HasResult  string   `yaml:"hasResult"`
	Offers     string   `yaml:"offers"`
	Forced     *bool    `yaml:"forced"`
	Output     *bool    `yaml:"output"`
	UserTurns  int      `yaml:"userTurns"`
	Step       int      `yaml:"step"`
	System     *pattern `yaml:"system"`
	Attempts   int      `yaml:"attempts"`
}

type reply []part

// part is one entry of a reply: one kind with its options.
type part struct {
	Text      *textTemplate `yaml:"text"`
	Reasoning *textTemplate `yaml:"reasoning"`
	Call      *call         `yaml:"call"`
	Calls     []call        `yaml:"calls"`
	Wait      *duration     `yaml:"wait"`
	Usage     *usage        `yaml:"usage"`
	Finish    *finish       `yaml:"finish"`
	Error     *failure      `yaml:"error"`

	Chunk        *chunkSize `yaml:"chunk"`
	Delay        *duration  `yaml:"delay"`
	Repeat       *int       `yaml:"repeat"`
	ProviderData *jsonValue `yaml:"providerData"`
}

type call struct {
	Name      string     `yaml:"name"`
	ID        string     `yaml:"id"`
	Arguments *arguments `yaml:"arguments"`
}

type usage struct {
	Prompt     int64 `yaml:"prompt"`
	Completion int64 `yaml:"completion"`
	Reasoning  int64 `yaml:"reasoning"`
	Cached     int64 `yaml:"cached"`
	Total      int64 `yaml:"total"`
}

type failure struct {
	Code       string   `yaml:"code"`
	Message    string   `yaml:"message"`
	Retryable  *bool    `yaml:"retryable"`
	Status     int      `yaml:"status"`
	RetryAfter duration `yaml:"retryAfter"`
	After      int      `yaml:"after"`
}

// Parse reads a script. Its errors show the line and column.
func Parse(source []byte) (*Script, error) {
	var file struct {
		Models map[string]*modelScript `yaml:"models"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(source), yaml.Strict())
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("script: %w", err)
	}
	if len(file.Models) == 0 {
		return nil, errors.New(`script: no models: name at least one under "models"`)
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("script: more than one YAML document: put all models into the first")
	}
	for name, m := range file.Models {
		if m == nil {
			return nil, fmt.Errorf("script: the model %q has no rules", name)
		}
	}
	return &Script{models: file.Models}, nil
}

// UnmarshalYAML also checks that every rule can be reached.
func (c *modelScript) UnmarshalYAML(node ast.Node) error {
	type plain modelScript
	if err := decode(node, (*plain)(c)); err != nil {
		return err
	}
	if len(c.Rules) == 0 {
		return nodeError(node, "a model needs rules")
	}
	for i, r := range c.Rules {
		if r.When == nil && i < len(c.Rules)-1 {
			return nodeError(node, "rule %d of this model has no \"when\", so the rules after it are never reached: make it the last", i+1)
		}
	}
	return nil
}

// UnmarshalYAML refuses rules without a reply.
func (r *rule) UnmarshalYAML(node ast.Node) error {
	type plain rule
	if err := decode(node, (*plain)(r)); err != nil {
		return err
	}
	if len(r.Reply) == 0 {
		return nodeError(node, "a rule needs a reply")
	}
	return nil
}

// UnmarshalYAML refuses conditions that can never hold.
func (c *condition) UnmarshalYAML(node ast.Node) error {
	type plain condition
	if err := decode(node, (*plain)(c)); err != nil {
		return err
	}
	if *c == (condition{}) {
		return nodeError(node, "an empty \"when\": omit it for a rule that always matches")
	}
	if c.UserTurns < 0 || c.Step < 0 || c.Attempts < 0 {
		return nodeError(node, "userTurns, step and attempts count from 1")
	}
	return nil
}

// UnmarshalYAML accepts a text as a reply with this text.
func (r *reply) UnmarshalYAML(node ast.Node) error {
	if _, ok := scalarText(node); ok {
		var t textTemplate
		if err := t.UnmarshalYAML(node); err != nil {
			return err
		}
		*r = reply{{Text: &t}}
		return nil
	}
	return decode(node, (*[]part)(r))
}

// UnmarshalYAML checks that a part has one kind, and no options of another.
func (p *part) UnmarshalYAML(node ast.Node) error {
	type plain part
	if err := decode(node, (*plain)(p)); err != nil {
		return err
	}
	kinds := 0
	for _, set := range []bool{
		p.Text != nil, p.Reasoning != nil, p.Call != nil, len(p.Calls) > 0,
		p.Wait != nil, p.Usage != nil, p.Finish != nil, p.Error != nil,
	} {
		if set {
			kinds++
		}
	}
	isProse := p.Text != nil || p.Reasoning != nil
	switch {
	case kinds != 1:
		return nodeError(node,
			"a part must have exactly one of text, reasoning, call, calls, wait, usage, finish, error; this one has %d", kinds)
	case p.Repeat != nil && (!isProse || *p.Repeat < 1):
		return nodeError(node, "repeat belongs to text and reasoning and is at least 1")
	case p.ProviderData != nil && p.Reasoning == nil:
		return nodeError(node, "providerData belongs to reasoning")
	case (p.Chunk != nil || p.Delay != nil) && !isProse && p.Call == nil && p.Calls == nil:
		return nodeError(node, "chunk and delay belong to text, reasoning, call and calls")
	}
	return nil
}

// UnmarshalYAML refuses calls without a name.
func (c *call) UnmarshalYAML(node ast.Node) error {
	type plain call
	if err := decode(node, (*plain)(c)); err != nil {
		return err
	}
	if c.Name == "" {
		return nodeError(node, "a call needs a name")
	}
	return nil
}

// isRetryable reports whether errors with a code are retryable, and whether the code is known.
func isRetryable(code string) (retryable, known bool) {
	switch code {
	case model.CodeRateLimited, model.CodeOverloaded, model.CodeUnavailable, model.CodeTimeout, model.CodeInvalidResponse:
		return true, true
	case model.CodeInvalidRequest, model.CodeUnauthenticated, model.CodeDenied,
		model.CodeNotFound, model.CodeUnsupported:
		return false, true
	}
	return false, false
}

// UnmarshalYAML fills in defaults.
func (f *failure) UnmarshalYAML(node ast.Node) error {
	type plain failure
	if err := decode(node, (*plain)(f)); err != nil {
		return err
	}
	if f.Code == "" {
		f.Code = model.CodeUnavailable
	}
	retryable, known := isRetryable(f.Code)
	if !known && f.Retryable == nil {
		return nodeError(node, "unknown error code %q: set retryable as well", f.Code)
	}
	if f.Retryable == nil {
		f.Retryable = &retryable
	}
	if f.Message == "" {
		f.Message = "scripted error"
	}
	if f.After < 0 {
		return nodeError(node, "after counts from 1")
	}
	return nil
}

type role string

// UnmarshalYAML accepts the possible roles of a last message.
func (r *role) UnmarshalYAML(node ast.Node) error {
	return parseOneOf(r, node, "user", "tool", "assistant")
}

type finish model.FinishReason

// UnmarshalYAML accepts the finish reasons.
func (f *finish) UnmarshalYAML(node ast.Node) error {
	return parseOneOf(f, node, finish(model.FinishStop), finish(model.FinishLength), finish(model.FinishToolCalls),
		finish(model.FinishContentFilter), finish(model.FinishError), finish(model.FinishOther))
}

func parseOneOf[T ~string](target *T, node ast.Node, allowed ...T) error {
	value, ok := scalarText(node)
	if !ok || !slices.Contains(allowed, T(value)) {
		return nodeError(node, "%q is not one of %q", value, allowed)
	}
	*target = T(value)
	return nil
}

type pattern struct{ *regexp.Regexp }

// UnmarshalYAML compiles the pattern.
func (p *pattern) UnmarshalYAML(node ast.Node) error {
	source, ok := scalarText(node)
	if !ok {
		return nodeError(node, "a pattern must be a string")
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return nodeError(node, "%v", err)
	}
	p.Regexp = compiled
	return nil
}

// chunkSize is the size of the chunks of a text. Zero means unset.
type chunkSize struct {
	n     int
	words bool // unit is words, otherwise runes
	whole bool
}

// UnmarshalYAML reads "3", "3 words", "8 runes" and "whole".
func (s *chunkSize) UnmarshalYAML(node ast.Node) error {
	source, _ := scalarText(node)
	if source == "whole" {
		*s = chunkSize{whole: true}
		return nil
	}
	number, unit, _ := strings.Cut(source, " ")
	n, err := strconv.Atoi(number)
	unit = strings.TrimSuffix(unit, "s")
	if err != nil || n < 1 || (unit != "" && unit != "word" && unit != "rune") {
		return nodeError(node, "a chunk is a number of words or runes, for example \"3 words\" or \"8 runes\", or \"whole\"")
	}
	*s = chunkSize{n: n, words: unit != "rune"}
	return nil
}

type duration time.Duration

// UnmarshalYAML reads a Go duration.
func (d *duration) UnmarshalYAML(node ast.Node) error {
	source, _ := scalarText(node)
	parsed, err := time.ParseDuration(source)
	if err != nil || parsed < 0 {
		return nodeError(node, "a duration is a number and a unit, for example 20ms, 1.5s or 0s")
	}
	*d = duration(parsed)
	return nil
}

func decode(node ast.Node, target any) error {
	return yaml.NodeToValue(node, target, yaml.Strict())
}

func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, true
	case *ast.TagNode:
		return scalarText(n.Value)
	case *ast.AnchorNode:
		return scalarText(n.Value)
	}
	return "", false
}

// nodeError returns an error with the position of the node.
func nodeError(node ast.Node, format string, args ...any) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: node.GetToken()}
}
