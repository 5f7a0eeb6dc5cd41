package profile

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
)

// lesson is a known refusal and its meaning for the server.
type lesson struct {
	// says matches the text of the refusal.
	says *regexp.Regexp
	// learn changes the profile and reports whether that is new.
	learn func(*Profile) bool
}

// set returns a lesson's change of one field, which is new unless the field has the value.
func set[T comparable](field func(*Profile) *T, value T) func(*Profile) bool {
	return func(p *Profile) bool {
		f := field(p)
		changed := *f != value
		*f = value
		return changed
	}
}

// noSystem matches refusals of system messages, or of their place.
var noSystem = regexp.MustCompile(`(?i)system (message|role|prompt).{0,60}(at the (beginning|start)|must be (the )?first|` +
	`only .{0,20}first|not supported)|unexpected role .?system|only user.{0,20}(assistant|model).{0,60}roles are supported`)

// lessons are tried in order, and the first new one counts. Each is learned once, so contradicting refusals end.
var lessons = []lesson{
	{
		regexp.MustCompile(`(?i)reasoning_content.{0,40}(must be passed back|is missing|is required)`),
		func(p *Profile) bool {
			changed := p.Reasoning == ReasoningNever || p.Reasoning == ReasoningTurn ||
				p.ReasoningField != "reasoning_content" || p.ReasoningFiller == ""
			if changed {
				p.Reasoning = ReasoningCalls
				p.ReasoningField = "reasoning_content"
				p.ReasoningFiller = "."
			}
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)missing a .?thought_signature`),
		set(func(p *Profile) *string { return &p.CallSignature }, "skip_thought_signature_validator"),
	},
	{
		regexp.MustCompile(`(?i)extra_content`),
		set(func(p *Profile) *bool { return &p.CallExtra }, false),
	},
	{
		regexp.MustCompile(`(?i)(reasoning_content|reasoning_details|\breasoning\b).{0,80}(unsupported|not supported|not permitted|` +
			`unknown|unexpected|unrecognized|extra|invalid)|` +
			`(unsupported|not permitted|unknown|unexpected|unrecognized|extra|invalid).{0,80}(reasoning_content|reasoning_details|` +
			`messages.{0,20}\breasoning\b)`),
		set(func(p *Profile) *string { return &p.Reasoning }, ReasoningNever),
	},
	{
		noSystem,
		func(p *Profile) bool {
			changed := p.System == SystemAnywhere || p.System == SystemDeveloper
			if changed {
				p.System = SystemFirst
			}
			return changed
		},
	},
	{
		noSystem,
		set(func(p *Profile) *string { return &p.System }, SystemUser),
	},
	{
		regexp.MustCompile(`(?i)role.{0,10}developer|developer.{0,20}role`),
		func(p *Profile) bool {
			changed := p.System == SystemDeveloper
			if changed {
				p.System = SystemAnywhere
			}
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)roles must alternate|alternat\w* (between )?user|consecutive (user|assistant) messages|` +
			`unexpected role .?(user|assistant).? after role .?(user|assistant)`),
		set(func(p *Profile) *bool { return &p.AlternateRoles }, true),
	},
	{
		regexp.MustCompile(`(?i)unexpected role .?user.? after role .?tool|roles must alternate`),
		set(func(p *Profile) *bool { return &p.AnswerAfterTool }, true),
	},
	{
		regexp.MustCompile(`(?i)length of 9`),
		func(p *Profile) bool {
			changed := p.CallIDs != IDAlphanumeric || p.CallIDMin != 9 || p.CallIDMax != 9
			p.CallIDs = IDAlphanumeric
			p.CallIDMin = 9
			p.CallIDMax = 9
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)(tool_use|tool_call|call).{0,30}\bids?\b.{0,80}(pattern|match|invalid|characters)`),
		func(p *Profile) bool {
			changed := p.CallIDs == IDAny
			if changed {
				p.CallIDs = IDWord
			}
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)only supports single tool.?calls|(multiple|parallel) tool calls (are|is) not supported`),
		set(func(p *Profile) *bool { return &p.SingleCalls }, true),
	},
	{
		regexp.MustCompile(`(?i)content.{0,40}(must be a string|expected a string|string or an array|is required|field required)|` +
			`missing (field|required).{0,20}content`),
		set(func(p *Profile) *string { return &p.CallContent }, ContentEmpty),
	},
	{
		regexp.MustCompile(`(?i)content.{0,60}(is empty|must not be empty|non-?empty|cannot be empty)`),
		func(p *Profile) bool {
			changed := p.EmptyText || p.CallContent == ContentEmpty
			p.EmptyText = false
			if p.CallContent == ContentEmpty {
				p.CallContent = ContentOmitted
			}
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)must start with a letter`),
		set(func(p *Profile) *string { return &p.ToolNames }, NamesLetter),
	},
	{
		regexp.MustCompile(`(?i)response_format|json_schema|structured output`),
		set(func(p *Profile) *string { return &p.Output }, OutputObject),
	},
	{
		regexp.MustCompile(`(?i)response_format`),
		func(p *Profile) bool { p.Omit = append(p.Omit, "response_format"); return true },
	},
	{
		regexp.MustCompile(`(?i)tool_choice`),
		func(p *Profile) bool {
			changed := p.RequiredChoice != "" || p.NoneChoice != ""
			p.RequiredChoice = ""
			p.NoneChoice = ""
			return changed
		},
	},
	{
		regexp.MustCompile(`(?i)stream_options|include_usage`),
		set(func(p *Profile) *bool { return &p.StreamOptions }, false),
	},
	{
		regexp.MustCompile(`(?i)\bstrict\b.{0,80}(unsupported|not supported|not permitted|unknown|unexpected|unrecognized|extra|` +
			`invalid)|(unsupported|not permitted|unknown|unexpected|unrecognized|extra).{0,80}\bstrict\b`),
		set(func(p *Profile) *bool { return &p.Strict }, false),
	},
}

var (
	// tooLong matches refusals of the size of a conversation, which may name the limit of the reply.
	tooLong = regexp.MustCompile(`(?i)context (length|window|size)|maximum (context|sequence) length|too many (input )?tokens|` +
		`prompt is too long|context_length_exceeded`)
	// refusesName matches refusals of a member, rather than of its value.
	refusesName = regexp.MustCompile(`(?i)not permitted|extra_forbidden|unsupported|not supported|does ?n.t support|unknown|` +
		`unrecogni[sz]ed|unexpected|not allowed|only .{0,40}(is|are) (allowed|supported)`)
)

// essential are members that no request can do without.
var essential = []string{"model", "messages", "input", "instructions", "tools", "stream", "store"}

// Learn returns a more careful profile for a server that refused a request with this text. build makes the body of the request for a
// profile, and body is the refused one. ok is false if nothing that is known would change the body: it would be refused again.
func Learn(p Profile, refusal string, body json.RawMessage, build func(Profile) (json.RawMessage, error)) (learned Profile, ok bool) {
	if tooLong.MatchString(refusal) {
		return p, false
	}
	changesBody := func(candidate Profile) bool {
		next, err := build(candidate)
		return err == nil && !bytes.Equal(next, body)
	}
	for i, l := range lessons {
		bit := uint64(1) << i
		learned = p.clone()
		learned.taught |= bit
		if p.taught&bit == 0 && l.says.MatchString(refusal) && l.learn(&learned) && changesBody(learned) {
			return learned, true
		}
	}
	if !refusesName.MatchString(refusal) {
		return p, false
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(body, &members) // a body is an object
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if slices.Contains(essential, name) || slices.Contains(p.Omit, name) {
			continue
		}
		word := regexp.MustCompile(`(^|[^A-Za-z0-9_])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9_])`)
		if !word.MatchString(refusal) {
			continue
		}
		learned = p.clone()
		learned.Omit = append(learned.Omit, name)
		if name == LimitTokens || name == LimitCompletion || name == "max_output_tokens" {
			// A limit is never dropped, because it bounds the costs: only its name changes, once.
			if name != p.OutputLimit || slices.Contains(p.Omit, otherLimit(name)) {
				continue
			}
			learned.OutputLimit = otherLimit(name)
		}
		if changesBody(learned) {
			return learned, true
		}
	}
	return p, false
}

func otherLimit(name string) string {
	if name == LimitTokens {
		return LimitCompletion
	}
	return LimitTokens
}
