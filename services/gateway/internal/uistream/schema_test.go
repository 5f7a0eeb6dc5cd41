package uistream_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// shape has the required and the optional keys of a part type, without "type".
type shape struct{ needs, may []string }

// These are the strict schemas of the packages ai 5.0.0 and 6.0.0, which refuse other keys, and the
// keys of 7.0.173, which does not refuse them. A later version lists only its additions.
var (
	five = map[string]shape{
		"start":                 {may: words("messageId messageMetadata")},
		"finish":                {may: words("messageMetadata")},
		"abort":                 {},
		"message-metadata":      {needs: words("messageMetadata")},
		"error":                 {needs: words("errorText")},
		"start-step":            {},
		"finish-step":           {},
		"text-start":            {words("id"), words("providerMetadata")},
		"text-delta":            {words("id delta"), words("providerMetadata")},
		"text-end":              {words("id"), words("providerMetadata")},
		"reasoning-start":       {words("id"), words("providerMetadata")},
		"reasoning-delta":       {words("id delta"), words("providerMetadata")},
		"reasoning-end":         {words("id"), words("providerMetadata")},
		"tool-input-start":      {words("toolCallId toolName"), words("providerExecuted dynamic")},
		"tool-input-delta":      {needs: words("toolCallId inputTextDelta")},
		"tool-input-available":  {words("toolCallId toolName input"), words("providerExecuted providerMetadata dynamic")},
		"tool-output-available": {words("toolCallId output"), words("providerExecuted dynamic")},
		"tool-output-error":     {words("toolCallId errorText"), words("providerExecuted dynamic")},
		"source-url":            {words("sourceId url"), words("title providerMetadata")},
		"source-document":       {words("sourceId mediaType title"), words("filename providerMetadata")},
		"file":                  {words("url mediaType"), words("providerMetadata")},
		"data-":                 {words("data"), words("id transient")},
	}
	six = map[string]shape{
		"finish":                {may: words("finishReason")},
		"tool-input-start":      {may: words("title")},
		"tool-input-available":  {may: words("title")},
		"tool-input-error":      {words("toolCallId toolName input errorText"), words("providerExecuted providerMetadata dynamic title")},
		"tool-approval-request": {needs: words("approvalId toolCallId")},
		"tool-output-available": {may: words("preliminary")},
		"tool-output-denied":    {needs: words("toolCallId")},
	}
	seven = map[string]shape{
		"abort":                  {may: words("reason")},
		"reset-step":             {},
		"text-end":               {may: words("citations")},
		"tool-input-start":       {may: words("inputEncoding toolMetadata providerMetadata")},
		"tool-input-available":   {may: words("toolMetadata")},
		"tool-input-error":       {may: words("toolMetadata")},
		"tool-approval-request":  {may: words("approvalDescriptor inputSchemaInput reason isAutomatic signature")},
		"tool-approval-response": {words("approvalId approved"), words("reason providerExecuted providerMetadata")},
		"tool-output-available":  {may: words("toolMetadata providerMetadata")},
		"tool-output-error":      {may: words("toolMetadata providerMetadata")},
		"reasoning-file":         {words("url mediaType"), words("providerMetadata")},
		"custom":                 {words("kind"), words("providerMetadata")},
		"steering-message":       {needs: words("id parts")},
	}
	schemas = map[uistream.Major]map[string]shape{5: five, 6: with(five, six), 7: with(with(five, six), seven)}
)

// The kinds of values. Other keys are strings.
var (
	anything = words("input output data messageMetadata")
	yesOrNo  = words("transient approved dynamic providerExecuted preliminary isAutomatic")
)

var commonReasons = words("stop length content-filter tool-calls error other")

func words(text string) []string { return strings.Fields(text) }

func with(older, added map[string]shape) map[string]shape {
	all := maps.Clone(older)
	for kind, s := range added {
		all[kind] = shape{slices.Concat(all[kind].needs, s.needs), slices.Concat(all[kind].may, s.may)}
	}
	return all
}

// check refuses a part that is not in the version's strict schema.
func check(major uistream.Major, raw map[string]json.RawMessage) error {
	var kind string
	if err := json.Unmarshal(raw["type"], &kind); err != nil {
		return err
	}
	name := kind
	if strings.HasPrefix(kind, "data-") {
		name = "data-"
	}
	s, known := schemas[major][name]
	if !known {
		return fmt.Errorf("version %d does not know the type", major)
	}
	for _, key := range s.needs {
		if _, there := raw[key]; !there {
			return fmt.Errorf("%s is missing", key)
		}
	}
	for key, value := range raw {
		if key != "type" && !slices.Contains(s.needs, key) && !slices.Contains(s.may, key) {
			return fmt.Errorf("version %d does not know %s", major, key)
		}
		if err := checkValue(key, value); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(key string, value json.RawMessage) error {
	var want any
	switch {
	case key == "messageMetadata" && string(value) == "null":
		return fmt.Errorf("%s is null", key)
	case slices.Contains(anything, key):
		return nil
	case slices.Contains(yesOrNo, key):
		want = new(bool)
	default:
		want = new(string)
	}
	if string(value) == "null" {
		return fmt.Errorf("%s is null", key)
	}
	return json.Unmarshal(value, want)
}
