package gemini

import (
	"cmp"
	"encoding/json"
	"mime"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

const (
	roleUser  = "user"
	roleModel = "model"
)

// newBody converts a request, and says which files its parts are. Its error is a *model.Error: provider_invalid_request.
func newBody(r model.Request, to origin) (json.RawMessage, model.Locations, error) {
	r = model.LetterToolNames(r)
	b := body{Contents: []turn{}}
	if r.System != "" {
		b.SystemInstruction = &turn{Parts: []part{{Text: &r.System}}}
	}
	if err := b.setTools(r); err != nil {
		return nil, nil, err
	}
	b.setGenerationConfig(r)
	messages, err := model.OmitUnsupportedFiles(r.Messages, checkFile)
	if err != nil {
		return nil, nil, err
	}
	locations := model.Locations{}
	for _, m := range messages {
		next, err := newTurn(m, to, signatureModels.MatchString(r.Model))
		if err != nil {
			return nil, nil, err
		}
		b.addTurn(next)
		b.addPlaces(locations, m.ID, next)
	}
	source, err := json.Marshal(b)
	if err != nil {
		return nil, nil, model.InvalidRequest("cannot encode the request: %v", err)
	}
	merged, err := model.MergeOptions(source, r.Options)
	return merged, locations, err
}

// setTools declares the tools and sets whether the model must call one.
func (b *body) setTools(r model.Request) error {
	if len(r.Tools) == 0 {
		if r.Choice == model.ChoiceRequired {
			return model.InvalidRequest("a tool call is required but the request has no tools")
		}
		return nil // the API refuses a tool choice without tools
	}
	var declared tool
	for _, t := range r.Tools {
		declared.FunctionDeclarations = append(declared.FunctionDeclarations,
			functionDeclaration{Name: t.Name, Description: t.Description, Parameters: t.InputSchema})
	}
	b.Tools = []tool{declared}
	var mode string
	switch r.Choice {
	case model.ChoiceRequired:
		mode = modeAny
	case model.ChoiceNone:
		mode = modeNone
	default:
		return nil
	}
	b.ToolConfig = &toolConfig{}
	b.ToolConfig.FunctionCalling.Mode = mode
	return nil
}

func (b *body) setGenerationConfig(r model.Request) {
	if r.MaxOutputTokens > 0 {
		b.GenerationConfig.MaxOutputTokens = int32(min(r.MaxOutputTokens, 1<<30))
	}
	if r.Temperature != nil {
		temperature := float32(*r.Temperature)
		b.GenerationConfig.Temperature = &temperature
	}
	if r.Output != nil {
		b.GenerationConfig.ResponseMediaType = "application/json"
		b.GenerationConfig.ResponseSchema = r.Output.Schema
	}
}

// addTurn appends a turn, merging it into the previous turn of its role. Results stay in a turn of their own,
// because the API counts its parts.
func (b *body) addTurn(next turn) {
	last := len(b.Contents) - 1
	switch {
	case len(next.Parts) == 0:
		// The API refuses empty turns.
	case last >= 0 && b.Contents[last].Role == next.Role && b.Contents[last].hasResults() == next.hasResults():
		b.Contents[last].Parts = append(b.Contents[last].Parts, next.Parts...)
	default:
		b.Contents = append(b.Contents, next)
	}
}

// addPlaces adds the files of the last turn.
func (b *body) addPlaces(locations model.Locations, messageID string, added turn) {
	for i, p := range added.Parts {
		if p.file != nil {
			last := len(b.Contents) - 1
			location := model.Location{Message: last, Part: len(b.Contents[last].Parts) - len(added.Parts) + i}
			locations[location] = model.FileRef{MessageID: messageID, Part: *p.file}
		}
	}
}

func (t turn) hasResults() bool { return len(t.Parts) > 0 && t.Parts[0].FunctionResponse != nil }

// signatureModels matches the models that refuse a turn with an unsigned first call.
var signatureModels = regexp.MustCompile(`^(models/)?gemini-[3-9]`)

// skipSignature is the API's placeholder for a missing signature.
const skipSignature = "skip_thought_signature_validator"

// newTurn converts a message. An empty message gives a turn without parts.
func newTurn(m agent.Message, to origin, needsSignature bool) (turn, error) {
	switch m.Role {
	case agent.RoleUser, agent.RoleSystem, agent.RoleContext:
		return userTurn(model.ContextAsUser(m))
	case agent.RoleAssistant:
		t := modelTurn(m, to)
		first := slices.IndexFunc(t.Parts, func(p part) bool { return p.FunctionCall != nil })
		if needsSignature && first >= 0 {
			t.Parts[first].ThoughtSignature = cmp.Or(t.Parts[first].ThoughtSignature, skipSignature)
		}
		return t, nil
	case agent.RoleTool:
		t := turn{Role: roleUser}
		for _, r := range m.Results() {
			t.Parts = append(t.Parts,
				part{FunctionResponse: &functionResponse{ID: r.CallID, Name: model.ToolName(r.Name), Response: resultObject(r)}})
		}
		return t, nil
	}
	return turn{}, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

func userTurn(m agent.Message) (turn, error) {
	t := turn{Role: roleUser}
	for i, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			if p.Text != "" {
				t.Parts = append(t.Parts, part{Text: &p.Text})
			}
		case agent.File:
			f, err := filePart(p)
			if err != nil {
				return t, err
			}
			f.file = &i
			t.Parts = append(t.Parts, f)
		}
	}
	return t, nil
}

// modelTurn converts an assistant message and puts each signature on its part.
func modelTurn(m agent.Message, to origin) turn {
	t := turn{Role: roleModel}
	var signed providerData // signature of the next part
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Reasoning:
			signed = parseProviderData(p.ProviderData, to)
			switch {
			case signed.Of == ofThought:
				t.Parts = append(t.Parts, part{Text: &p.Text, Thought: true, ThoughtSignature: signed.Signature})
			case signed.Of == ofText && signed.Bytes == 0:
				t.Parts = append(t.Parts, part{Text: new(string), ThoughtSignature: signed.Signature})
			}
		case agent.Text:
			rest := p.Text
			if signed.Of == ofText && signed.Bytes > 0 && signed.Bytes <= len(rest) {
				first := rest[:signed.Bytes]
				t.Parts = append(t.Parts, part{Text: &first, ThoughtSignature: signed.Signature})
				rest = rest[signed.Bytes:]
			}
			if rest != "" {
				t.Parts = append(t.Parts, part{Text: &rest})
			}
			signed = providerData{}
		case agent.ToolCall:
			call := part{FunctionCall: &functionCall{ID: p.ID, Name: model.ToolName(p.Name), Args: model.ArgumentsObject(p.Arguments)}}
			if signed.Of == ofCall {
				call.ThoughtSignature = signed.Signature
			}
			t.Parts = append(t.Parts, call)
			signed = providerData{}
		}
	}
	return t
}

// parseProviderData returns the zero value for the data of another provider or model.
func parseProviderData(data json.RawMessage, to origin) providerData {
	var m providerData
	if json.Unmarshal(data, &m) != nil || m.Signature == "" || m.Bytes < 0 || m.Origin != (origin{}) && m.Origin != to {
		return providerData{}
	}
	return m
}

func resultObject(r agent.ToolResult) json.RawMessage {
	var members struct {
		Error  string          `json:"error,omitempty"`
		Output json.RawMessage `json:"output,omitempty"`
	}
	members.Output = r.Result
	if r.Success && len(r.Result) == 0 {
		members.Output = json.RawMessage("null")
	}
	if !r.Success {
		members.Error = r.Error
	}
	out, err := json.Marshal(members)
	if err != nil { // the result was not JSON
		members.Output, _ = json.Marshal(string(r.Result))
		out, _ = json.Marshal(members)
	}
	return out
}

// checkFile returns the error of an unsupported file.
func checkFile(f agent.File) error {
	_, err := filePart(f)
	return err
}

// filePart returns the part of a file, embedded or as a URL for the API to load.
func filePart(f agent.File) (part, error) {
	media, _, err := mime.ParseMediaType(f.MediaType)
	if err != nil {
		return part{}, model.InvalidRequest("the file %q has the invalid media type %q", f.Filename, f.MediaType)
	}
	switch {
	case strings.HasPrefix(f.URL, "data:"):
		data, ok := model.DecodeDataURL(f.URL)
		if !ok {
			return part{}, model.InvalidRequest("the file %q has a data: URL that cannot be decoded", f.Filename)
		}
		return part{InlineData: &inlineData{MediaType: media, Data: data}}, nil
	case strings.HasPrefix(f.URL, "https:"):
		return part{FileData: &fileData{MediaType: media, URL: f.URL}}, nil
	}
	return part{}, model.InvalidRequest("the file %q must have a data: or https: URL", f.Filename)
}
