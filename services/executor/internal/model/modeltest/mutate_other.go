package modeltest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// ResponseMutations are the ways in which servers for responses differ.
func ResponseMutations() []mutation {
	typed := func(kind string) func(event) bool {
		return func(e event) bool { return textAt(e.data, "type") == kind }
	}
	return []mutation{
		func(m *mutant) { m.splitEvent(typed("response.output_text.delta"), "delta") },
		func(m *mutant) { m.splitEvent(typed("response.function_call_arguments.delta"), "delta") },
		func(m *mutant) { m.splitEvent(typed("response.reasoning_summary_text.delta"), "delta") },
		dropNames, addForeignEvents,
		func(m *mutant) { m.addUnknownToEvents("item") },
		func(m *mutant) { // without deltas, the items come complete
			if len(m.want.Calls) > 1 || m.want.Finish != "stop" && m.want.Finish != "tool-calls" {
				return // interleaved calls and truncated items cannot come complete
			}
			m.events = slices.DeleteFunc(m.events, func(e event) bool {
				return slices.Contains([]string{
					"response.output_text.delta", "response.function_call_arguments.delta", "response.refusal.delta",
				}, textAt(e.data, "type"))
			})
		},
		func(m *mutant) { // only what carries content
			m.events = slices.DeleteFunc(m.events, func(e event) bool {
				return slices.Contains([]string{
					"response.created", "response.in_progress", "response.content_part.added", "response.content_part.done",
					"response.output_text.done",
					"response.function_call_arguments.done", "response.reasoning_summary_part.added",
					"response.reasoning_summary_part.done", "response.reasoning_summary_text.done",
				}, textAt(e.data, "type")) && m.chance(2)
			})
		},
		func(m *mutant) { // ids of items change with each event, or are missing
			how := m.IntN(3)
			for i, e := range m.events {
				item := objectAt(e.data, "item")
				switch {
				case how == 0:
					delete(e.data, "item_id")
				case at(e.data, "item_id") != nil:
					e.data["item_id"] = fmt.Sprint("opaque_", i)
				}
				if item != nil && item["type"] != "reasoning" {
					item["id"] = fmt.Sprint("opaque_", i)
				}
			}
		},
		func(m *mutant) { // calls without ids, or all with the same
			id := pick(m, "", "call_1")
			for _, e := range m.events {
				if item := objectAt(e.data, "item"); item["call_id"] != nil {
					item["call_id"] = id
				}
			}
		},
		func(m *mutant) { // items without an index, or all with 0, one behind the other
			if m.scenario == ParallelCalls {
				return
			}
			drop := m.chance(2)
			for _, e := range m.events {
				switch {
				case e.data["output_index"] == nil:
				case drop:
					delete(e.data, "output_index")
				default:
					e.data["output_index"] = json.Number("0")
				}
			}
		},
		func(m *mutant) { // arguments as an object, in the item alone
			if len(m.want.Calls) != 1 || m.want.Finish != "tool-calls" {
				return
			}
			for _, e := range m.events {
				var object map[string]any
				text := textAt(e.data, "item", "arguments")
				isItem := textAt(e.data, "type") == "response.output_item.done"
				if isItem && json.Unmarshal([]byte(text), &object) == nil && len(object) < 2 {
					objectAt(e.data, "item")["arguments"] = json.RawMessage(text)
					m.events = slices.DeleteFunc(m.events,
						func(e event) bool { return textAt(e.data, "type") == "response.function_call_arguments.delta" })
					return
				}
			}
		},
		func(m *mutant) { // keep-alives with a name
			m.insert(event{name: "keepalive", data: map[string]any{"type": "keepalive", "sequence_number": json.Number("3")}}, 0, 1)
		},
		func(m *mutant) { // another name for the end
			for i, e := range m.events {
				if textAt(e.data, "type") == "response.completed" {
					m.events[i].name = pick(m, e.name, "")
					e.data["type"] = "response.done"
				}
			}
		},
		func(m *mutant) { // numbers of the sequence
			for _, e := range m.events {
				delete(e.data, "sequence_number")
			}
		},
		func(m *mutant) {
			if n := len(m.events); m.events[n-1].raw == "" {
				m.events = append(m.events, event{raw: "[DONE]"})
			}
		},
		func(m *mutant) { m.broken = true },
	}
}

// AnthropicMutations are the ways in which servers for messages differ.
func AnthropicMutations() []mutation {
	delta := func(kind string) func(event) bool {
		return func(e event) bool { return textAt(e.data, "delta", "type") == kind }
	}
	return []mutation{
		func(m *mutant) { m.splitEvent(delta("text_delta"), "delta", "text") },
		func(m *mutant) { m.splitEvent(delta("thinking_delta"), "delta", "thinking") },
		func(m *mutant) { m.splitEvent(delta("input_json_delta"), "delta", "partial_json") },
		func(m *mutant) { m.splitEvent(delta("signature_delta"), "delta", "signature") },
		dropNames, addForeignEvents,
		func(m *mutant) { m.addUnknownToEvents("input") },
		func(m *mutant) { // pings
			m.insert(event{name: "ping", data: map[string]any{"type": "ping"}}, 0, 1)
		},
		func(m *mutant) { // calls without ids, or all with the same
			id := pick(m, "", "toolu_1")
			for _, e := range m.events {
				if block := objectAt(e.data, "content_block"); block["type"] == "tool_use" {
					block["id"] = id
				}
			}
		},
		func(m *mutant) { // blocks without an index, or all with 0, one behind the other
			if m.scenario == ParallelCalls || m.scenario == CutCall {
				return
			}
			drop := m.chance(2)
			for _, e := range m.events {
				switch {
				case e.data["index"] == nil || textAt(e.data, "type") == "telemetry.sample":
				case drop:
					delete(e.data, "index")
				default:
					e.data["index"] = json.Number("0")
				}
			}
		},
		func(m *mutant) { // calls that end like texts
			for _, e := range m.events {
				if textAt(e.data, "delta", "stop_reason") == "tool_use" {
					objectAt(e.data, "delta")["stop_reason"] = "end_turn"
				}
			}
		},
		func(m *mutant) { // message_stop says nothing new
			if n := len(m.events); textAt(m.events[n-1].data, "type") == "message_stop" {
				m.events = m.events[:n-1]
			}
		},
		func(m *mutant) { // empty pieces, where a block of the kind is open
			for i, e := range m.events {
				text := textAt(e.data, "delta", "type")
				name, known := map[string]string{
					"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
				}[text]
				if known && m.chance(2) {
					piece := event{e.name, clone(e.data).(map[string]any), ""}
					objectAt(piece.data, "delta")[name] = ""
					m.events = slices.Insert(m.events, i, piece)
					return
				}
			}
		},
		func(m *mutant) { // complete arguments at the start of the block
			for i, e := range m.events {
				if textAt(e.data, "content_block", "type") != "tool_use" {
					continue
				}
				index := at(e.data, "index")
				own := func(other event) bool {
					return textAt(other.data, "delta", "type") == "input_json_delta" && at(other.data, "index") == index
				}
				var text string
				for _, other := range m.events[i:] {
					if own(other) {
						text += textAt(other.data, "delta", "partial_json")
					}
				}
				if text == "" || !json.Valid([]byte(text)) || m.want.Finish == "length" {
					return
				}
				objectAt(e.data, "content_block")["input"] = json.RawMessage(text)
				m.events = slices.DeleteFunc(m.events, own)
				return
			}
		},
		func(m *mutant) { m.broken = true },
		func(m *mutant) { // a router's sign of the end
			if n := len(m.events); m.events[n-1].raw == "" {
				m.events = append(m.events, event{raw: "[DONE]"})
			}
		},
		func(m *mutant) { // the reason without its usage, which comes before
			for i, e := range m.events {
				if textAt(e.data, "type") == "message_delta" && textAt(e.data, "delta", "stop_reason") != "" && at(e.data, "usage") != nil {
					usage := event{name: e.name, data: map[string]any{
						"type": "message_delta", "delta": map[string]any{"stop_reason": nil}, "usage": e.data["usage"],
					}}
					delete(e.data, "usage")
					m.events = slices.Insert(m.events, i, usage)
					return
				}
			}
		},
	}
}

// GeminiMutations are the ways in which chunks of the Gemini API differ.
func GeminiMutations() []mutation {
	return []mutation{
		splitGeminiText,
		func(m *mutant) { m.addUnknownToEvents("args") },
		func(m *mutant) { // usage with the last chunk only
			last := -1
			for i, e := range m.events {
				if at(e.data, "usageMetadata") != nil {
					last = i
				}
			}
			for i, e := range m.events {
				if i != last && e.data != nil {
					delete(e.data, "usageMetadata")
				}
			}
		},
		func(m *mutant) { // the usage behind the finish reason
			n := len(m.events)
			if last := m.events[n-1]; at(last.data, "usageMetadata") != nil && at(last.data, "candidates") != nil {
				m.events = append(m.events, event{data: map[string]any{"usageMetadata": last.data["usageMetadata"]}})
				delete(last.data, "usageMetadata")
			}
		},
		func(m *mutant) { // the finish reason in a chunk of its own
			for i, e := range m.events {
				candidate := objectAt(e.data, "candidates", 0)
				if candidate == nil || candidate["finishReason"] == nil || candidate["content"] == nil {
					continue
				}
				next := event{data: map[string]any{"candidates": []any{map[string]any{
					"finishReason": candidate["finishReason"], "finishMessage": candidate["finishMessage"],
				}}}}
				if usage := e.data["usageMetadata"]; usage != nil {
					next.data["usageMetadata"] = usage
				}
				delete(candidate, "finishReason")
				delete(candidate, "finishMessage")
				m.events = slices.Insert(m.events, i+1, next)
				return
			}
		},
		func(m *mutant) { // calls without ids, or all with the same
			id := pick(m, "", "fn_1")
			for _, e := range m.events {
				parts, _ := at(e.data, "candidates", 0, "content", "parts").([]any)
				for _, p := range parts {
					if call := objectAt(p, "functionCall"); call != nil {
						call["id"] = id
					}
				}
			}
		},
		func(m *mutant) { // a proxy's sign of the end
			if n := len(m.events); m.events[n-1].raw == "" {
				m.events = append(m.events, event{raw: "[DONE]"})
			}
		},
		func(m *mutant) { // an index of 0 and the role may be missing
			for _, e := range m.events {
				if candidate := objectAt(e.data, "candidates", 0); candidate != nil && candidate["index"] == json.Number("0") {
					delete(candidate, "index")
					delete(objectAt(candidate, "content"), "role")
				}
			}
		},
		func(m *mutant) { // parts without content
			for _, e := range m.events {
				content := objectAt(e.data, "candidates", 0, "content")
				if parts, ok := at(content, "parts").([]any); ok && m.chance(2) {
					content["parts"] = append(slices.Clone(parts),
						pick(m, map[string]any{"text": ""}, map[string]any{}, map[string]any{"text": "", "thought": true}))
				}
			}
		},
		func(m *mutant) { // chunks without candidates
			m.insert(event{data: pick(m, map[string]any{}, map[string]any{"candidates": []any{}},
				map[string]any{"candidates": nil, "promptFeedback": map[string]any{}})}, 0, 1)
		},
		func(m *mutant) {
			m.insert(event{data: map[string]any{"candidates": []any{map[string]any{
				"index": json.Number("1"), "content": map[string]any{"parts": []any{map[string]any{"text": "no"}}},
			}}}}, 0, 1)
		},
		func(m *mutant) { m.broken = true },
	}
}

// splitGeminiText sends the text of a part in two chunks.
func splitGeminiText(m *mutant) {
	for i, e := range m.events {
		parts, _ := at(e.data, "candidates", 0, "content", "parts").([]any)
		if len(parts) != 1 || at(e.data, "candidates", 0, "index") != json.Number("0") || textAt(parts, 0, "text") == "" ||
			at(parts, 0, "thoughtSignature") != nil || !m.chance(2) {
			continue
		}
		head, tail := m.splitText(textAt(parts, 0, "text"))
		first := clone(parts[0]).(map[string]any)
		first["text"] = head
		objectAt(parts, 0)["text"] = tail
		m.events = slices.Insert(m.events, i, event{data: map[string]any{"candidates": []any{map[string]any{
			"content": map[string]any{"parts": []any{first}, "role": "model"},
		}}}})
		return
	}
}

// dropNames leaves out the names of events, which are in their data as well.
func dropNames(m *mutant) {
	for i := range m.events {
		m.events[i].name = ""
	}
}

// addForeignEvents sends an event that no version of a protocol has.
func addForeignEvents(m *mutant) {
	m.insert(event{
		name: "telemetry.sample", data: map[string]any{"type": "telemetry.sample", "index": json.Number("77"), "text": "no", "delta": "no"},
	}, 0, 1)
}

func (m *mutant) addUnknownToEvents(opaque ...string) {
	for _, e := range m.events {
		if e.data != nil && m.chance(3) {
			m.addUnknown(e.data, opaque...)
		}
	}
}
