package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Profile is what a server for chat completions accepts.
type Profile struct {
	// OutputLimit is the member of a request that limits the reply: LimitCompletion or LimitTokens.
	OutputLimit string `json:"outputLimit"`
	// System is where system messages may be: SystemAnywhere, SystemFirst, SystemDeveloper or SystemUser.
	System string `json:"system"`
	// AlternateRoles merges neighbouring messages of the user, and of the assistant, and lets a conversation begin with the user.
	AlternateRoles bool `json:"alternateRoles"`
	// AnswerAfterTool puts a message of the assistant between a tool's result and a message of the user.
	AnswerAfterTool bool `json:"answerAfterTool"`
	// EmptyText permits messages without text. Otherwise they are left out, and empty results say so.
	EmptyText bool `json:"emptyText"`
	// CallContent is the content of a message with calls and without text: ContentEmpty, ContentNull or ContentOmitted.
	CallContent string `json:"callContent"`
	// Media are the kinds of files that messages may have besides text: MediaImage, MediaFile.
	Media []string `json:"media"`
	// Reasoning selects the assistant's messages sent with their reasoning: ReasoningNever, ReasoningTurn,
	// ReasoningCalls or ReasoningAlways.
	Reasoning string `json:"reasoning"`
	// ReasoningField is the member for reasoning; empty for the member of its arrival.
	ReasoningField string `json:"reasoningField"`
	// ReasoningFiller is sent as the missing reasoning of a message with calls, for servers that require it. Empty for
	// none.
	ReasoningFiller string `json:"reasoningFiller"`
	// CallExtra sends the extra_content of calls back unchanged.
	CallExtra bool `json:"callExtra"`
	// CallSignature is the thought signature of a call without extra_content, for servers that require one. Empty for
	// none.
	CallSignature string `json:"callSignature"`
	// CallIDs is the alphabet of call ids: IDAny, IDWord or IDAlphanumeric.
	CallIDs string `json:"callIDs"`
	// CallIDMin and CallIDMax are the shortest and the longest call id, in bytes.
	CallIDMin int `json:"callIDMin"`
	CallIDMax int `json:"callIDMax"`
	// SingleCalls sends a message with several calls as several messages with one call each.
	SingleCalls bool `json:"singleCalls"`
	// RequiredChoice is the tool_choice that demands a call, and NoneChoice the tool_choice without calls. Empty sends
	// none.
	RequiredChoice string `json:"requiredChoice"`
	NoneChoice     string `json:"noneChoice"`
	// StreamOptions asks for the usage with stream_options.
	StreamOptions bool `json:"streamOptions"`
	// Strict permits strict tools and outputs.
	Strict bool `json:"strict"`
	// Output is the response_format of an agent's output: OutputSchema, or OutputObject with the schema in the system message.
	Output string `json:"output"`
	// KeyHeader is the header that carries the API key: BearerHeader, as a bearer token, or another one, as it is.
	KeyHeader string `json:"keyHeader"`
	// ToolNames is how the names of tools may begin: NamesAny or NamesLetter.
	ToolNames string `json:"toolNames"`
	// ThinkTags says whether text may have reasoning between the tags <think> and </think>: ThinkNever, ThinkStart or ThinkOpen.
	ThinkTags string `json:"thinkTags"`
	// Omit are the members left out of a request.
	Omit []string `json:"omit"`

	taught uint64 // the lessons learned so far, by their place
}

// The names of the limit.
const (
	LimitCompletion = "max_completion_tokens"
	LimitTokens     = "max_tokens"
)

// The places of system messages.
const (
	SystemAnywhere  = "anywhere"
	SystemFirst     = "first"     // one, before all others; later ones are sent as the user's
	SystemDeveloper = "developer" // anywhere, with the role developer
	SystemUser      = "user"      // nowhere; all are sent as the user's
)

// The contents of messages that only have calls.
const (
	ContentEmpty   = "empty"
	ContentNull    = "null"
	ContentOmitted = "omitted"
)

// The kinds of files. Text files are sent as text.
const (
	MediaImage = "image"
	MediaFile  = "file" // PDFs and other documents
)

// Which reasoning is sent back.
const (
	ReasoningNever  = "never"
	ReasoningTurn   = "turn"   // of messages with calls since the user's last message
	ReasoningCalls  = "calls"  // of all messages with calls
	ReasoningAlways = "always" // of all messages
)

// The alphabets of call ids.
const (
	IDAny          = "any"
	IDWord         = "word" // A-Z a-z 0-9 _ -
	IDAlphanumeric = "alphanumeric"
)

// The forms of an output.
const (
	OutputSchema = "json_schema"
	OutputObject = "json_object"
)

// BearerHeader carries a key as a bearer token.
const BearerHeader = "Authorization"

// The beginnings of tool names.
const (
	NamesAny    = "any"
	NamesLetter = "letter" // or an underscore; other names get one in front
)

// The places of reasoning within the text.
const (
	ThinkNever = "never"
	ThinkStart = "start" // the text may begin with <think>
	ThinkOpen  = "open"  // the text begins within the reasoning: the template has opened it
)

// Compatible returns the profile of a server without a row: what most servers accept.
func Compatible() Profile {
	return Profile{
		OutputLimit: LimitTokens, System: SystemFirst, AlternateRoles: true, CallContent: ContentEmpty,
		Media: []string{MediaImage}, Reasoning: ReasoningCalls, CallExtra: true,
		CallIDs: IDAny, CallIDMin: 1, CallIDMax: 40, RequiredChoice: "required", NoneChoice: "none",
		StreamOptions: true, Strict: true, Output: OutputSchema, KeyHeader: BearerHeader, ToolNames: NamesAny, ThinkTags: ThinkNever,
	}
}

// Accepts reports whether messages may have files of this kind.
func (p Profile) Accepts(media string) bool { return slices.Contains(p.Media, media) }

// clone returns a copy that shares nothing with p.
func (p Profile) clone() Profile {
	p.Media, p.Omit = slices.Clone(p.Media), slices.Clone(p.Omit)
	return p
}

// change sets the fields of a JSON object. It refuses unknown fields, and values that a field cannot have.
func (p *Profile) change(fields json.RawMessage) error {
	changed := p.clone()
	decoder := json.NewDecoder(bytes.NewReader(fields))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&changed); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	if err := changed.check(); err != nil {
		return err
	}
	*p = changed
	return nil
}

func (p Profile) check() error {
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{
		{"outputLimit", p.OutputLimit, []string{LimitCompletion, LimitTokens}},
		{"system", p.System, []string{SystemAnywhere, SystemFirst, SystemDeveloper, SystemUser}},
		{"callContent", p.CallContent, []string{ContentEmpty, ContentNull, ContentOmitted}},
		{"reasoning", p.Reasoning, []string{ReasoningNever, ReasoningTurn, ReasoningCalls, ReasoningAlways}},
		{"callIDs", p.CallIDs, []string{IDAny, IDWord, IDAlphanumeric}},
		{"output", p.Output, []string{OutputSchema, OutputObject}},
		{"toolNames", p.ToolNames, []string{NamesAny, NamesLetter}},
		{"thinkTags", p.ThinkTags, []string{ThinkNever, ThinkStart, ThinkOpen}},
	} {
		if !slices.Contains(f.allowed, f.value) {
			return fmt.Errorf("%s is %q; it must be one of %s", f.name, f.value, strings.Join(f.allowed, ", "))
		}
	}
	for _, m := range p.Media {
		if m != MediaImage && m != MediaFile {
			return fmt.Errorf("media has %q; it may contain %s and %s", m, MediaImage, MediaFile)
		}
	}
	if !headerName.MatchString(p.KeyHeader) {
		return fmt.Errorf("keyHeader is %q; it must be the name of a header", p.KeyHeader)
	}
	if p.CallIDMin < 1 || p.CallIDMin > p.CallIDMax || p.CallIDMax < minCallID || p.CallIDMax > maxCallID {
		return fmt.Errorf("callIDMin is %d and callIDMax is %d; they must be in order, with the longest between %d and %d",
			p.CallIDMin, p.CallIDMax, minCallID, maxCallID)
	}
	return nil
}

// headerName matches names of headers.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// Difference returns a JSON object of the fields in which p differs from another profile.
func (p Profile) Difference(other Profile) json.RawMessage {
	var fields, others map[string]json.RawMessage
	for profile, into := range map[*Profile]*map[string]json.RawMessage{&p: &fields, &other: &others} {
		text, _ := json.Marshal(profile) // a profile can be encoded and decoded
		_ = json.Unmarshal(text, into)
	}
	maps.DeleteFunc(fields, func(name string, value json.RawMessage) bool { return bytes.Equal(value, others[name]) })
	text, _ := json.Marshal(fields)
	return text
}

// The limits of CallIDMax. Shorter ids would soon repeat.
const (
	minCallID = 8
	maxCallID = 256
)
