package modeltest

import (
	"encoding/json"
	"slices"
	"strconv"
)

// ChatMutations are the ways in which servers for chat completions differ.
func ChatMutations() []mutation {
	return []mutation{
		splitChatText, listChatContent, splitChatArguments, mergeChatFragments, separateChatNames, renameChatIDs, repeatChatIDs,
		dropChatIDs, dropChatIndexes, addChatNulls, addChatUnknown, moveChatUsage, repeatChatUsage, endChatByDone, endChatByFinish,
		breakChat, addChatKeepAlive,
		addSecondChoice, finishChatWithContent, objectChatArguments, sendWholeCalls, delayChatNames, renameChatFinish, repeatChatFinish,
	}
}

func chatDelta(e event) map[string]any { return objectAt(e.data, "choices", 0, "delta") }

func isChatChunk(e event) bool { return e.data != nil }

func splitChatText(m *mutant) {
	for _, name := range []string{"content", "reasoning_content", "refusal"} {
		m.splitEvent(func(e event) bool {
			return at(e.data, "choices", 0, "finish_reason") == nil && at(e.data, "choices", 0, "delta", "tool_calls") == nil
		}, "choices", 0, "delta", name)
	}
}

// listChatContent sends a text as a list of chunks.
func listChatContent(m *mutant) {
	for _, e := range m.events {
		if text := textAt(e.data, "choices", 0, "delta", "content"); text != "" && m.chance(2) {
			head, tail := m.splitText(text)
			chatDelta(e)["content"] = []any{map[string]any{"type": "text", "text": head}, map[string]any{"type": "text", "text": tail}}
		}
	}
}

// fragments calls f for each fragment of a call.
func (m *mutant) fragments(f func(i int, fragment map[string]any)) {
	for i, e := range m.events {
		list, _ := at(e.data, "choices", 0, "delta", "tool_calls").([]any)
		for _, fragment := range list {
			if object, ok := fragment.(map[string]any); ok {
				f(i, object)
			}
		}
	}
}

// splitChatArguments sends the arguments of a fragment in two chunks.
func splitChatArguments(m *mutant) {
	if m.sealed {
		return
	}
	for i := 0; i < len(m.events); i++ {
		list, _ := at(m.events[i].data, "choices", 0, "delta", "tool_calls").([]any)
		if len(list) != 1 || at(m.events[i].data, "choices", 0, "finish_reason") != nil || !m.chance(2) {
			continue
		}
		text := textAt(list, 0, "function", "arguments")
		if text == "" {
			continue
		}
		head, tail := m.splitText(text)
		objectAt(list, 0, "function")["arguments"] = head
		next := map[string]any{"function": map[string]any{"arguments": tail}}
		if index := at(list, 0, "index"); index != nil {
			next["index"] = index
		} else if id := at(list, 0, "id"); id != nil {
			next["id"] = id
		}
		m.events = slices.Insert(m.events, i+1, chatEvent(map[string]any{"tool_calls": []any{next}}))
		i++
	}
}

func chatEvent(delta map[string]any) event {
	return event{data: map[string]any{"choices": []any{map[string]any{"index": json.Number("0"), "delta": delta}}}}
}

// mergeChatFragments sends the fragments of two neighbouring chunks in one.
func mergeChatFragments(m *mutant) {
	for i := 0; i+1 < len(m.events); i++ {
		first, _ := at(m.events[i].data, "choices", 0, "delta", "tool_calls").([]any)
		second, _ := at(m.events[i+1].data, "choices", 0, "delta", "tool_calls").([]any)
		if len(first) == 0 || len(second) == 0 || at(m.events[i].data, "choices", 0, "finish_reason") != nil || !m.chance(2) {
			continue
		}
		chatDelta(m.events[i+1])["tool_calls"] = append(slices.Clone(first), second...)
		m.events = slices.Delete(m.events, i, i+1)
	}
}

// separateChatNames sends the name of a call in a fragment behind its id.
func separateChatNames(m *mutant) {
	if m.sealed {
		return
	}
	for i := 0; i < len(m.events); i++ {
		list, _ := at(m.events[i].data, "choices", 0, "delta", "tool_calls").([]any)
		if len(list) != 1 || textAt(list, 0, "function", "name") == "" || textAt(list, 0, "id") == "" || at(list, 0, "index") == nil ||
			at(m.events[i].data, "choices", 0, "finish_reason") != nil || !m.chance(2) {
			continue
		}
		first := list[0].(map[string]any)
		function := first["function"]
		delete(first, "function")
		m.events = slices.Insert(m.events, i+1, chatEvent(map[string]any{"tool_calls": []any{
			map[string]any{"index": first["index"], "function": function},
		}}))
		i++
	}
}

// renameChatIDs gives each later fragment of a call an id of its own.
func renameChatIDs(m *mutant) {
	if m.sealed {
		return
	}
	n := 0
	m.fragments(func(_ int, fragment map[string]any) {
		if fragment["id"] == nil && fragment["index"] != nil && textAt(fragment, "function", "name") == "" {
			n++
			fragment["id"] = "other_" + strconv.Itoa(n)
		}
	})
}

// repeatChatIDs gives each fragment of a call its id, and perhaps its name.
func repeatChatIDs(m *mutant) {
	if m.sealed {
		return
	}
	withName := m.chance(2)
	ids, names := map[any]any{}, map[any]any{}
	m.fragments(func(_ int, fragment map[string]any) {
		index := fragment["index"]
		if index == nil {
			return
		}
		if id := textAt(fragment, "id"); id != "" && ids[index] == nil {
			ids[index] = id
		}
		if name := textAt(fragment, "function", "name"); name != "" {
			names[index] = name
		}
		if ids[index] == nil {
			return
		}
		fragment["id"] = ids[index]
		if function := objectAt(fragment, "function"); withName && function != nil && names[index] != nil {
			function["name"] = names[index]
		}
	})
}

// dropChatIDs leaves out all ids, or sends them empty.
func dropChatIDs(m *mutant) {
	if m.sealed {
		return
	}
	if m.chance(2) {
		return
	}
	indexed := true
	m.fragments(func(_ int, f map[string]any) { indexed = indexed && f["index"] != nil })
	named := map[any]int{}
	m.fragments(func(_ int, f map[string]any) {
		if textAt(f, "function", "name") != "" {
			named[f["index"]]++
		}
	})
	for _, times := range named {
		indexed = indexed && times == 1 // without ids, a second name begins another call
	}
	if !indexed {
		return
	}
	how := m.IntN(3)
	m.fragments(func(_ int, f map[string]any) {
		switch how {
		case 0:
			delete(f, "id")
		case 1:
			f["id"] = nil
		case 2:
			f["id"] = ""
		}
	})
}

// dropChatIndexes leaves out the indexes where the fragments say otherwise whose they are.
func dropChatIndexes(m *mutant) {
	if m.sealed {
		return
	}
	clear, calls := true, map[any]bool{}
	last := any(nil)
	m.fragments(func(_ int, f map[string]any) {
		clear = clear && f["index"] != nil && textAt(f, "id") != "other_1"
		if f["index"] != last {
			// A fragment of another call than before needs an id.
			clear = clear && textAt(f, "id") != ""
		}
		last = f["index"]
		calls[f["index"]] = true
	})
	renamed := false
	m.fragments(func(_ int, f map[string]any) {
		renamed = renamed || len(textAt(f, "id")) > 6 && textAt(f, "id")[:6] == "other_"
	})
	if !clear || renamed {
		return
	}
	zero := m.chance(2) && len(calls) == 1
	m.fragments(func(_ int, f map[string]any) {
		if zero {
			f["index"] = json.Number("0")
			return
		}
		delete(f, "index")
	})
}

// addChatNulls sends members without a value.
func addChatNulls(m *mutant) {
	for _, e := range m.events {
		if !isChatChunk(e) {
			continue
		}
		if m.chance(2) {
			e.data["error"] = nil
		}
		if e.data["usage"] == nil {
			e.data["usage"] = nil
		}
		delta := chatDelta(e)
		if delta == nil {
			continue
		}
		for _, name := range []string{
			"content", "refusal", "reasoning_content", "reasoning", "tool_calls", "function_call", "audio", "role", "reasoning_details",
		} {
			if delta[name] == nil && m.chance(3) {
				delta[name] = nil
			}
		}
		if delta["tool_calls"] == nil && m.chance(3) {
			delta["tool_calls"] = []any{}
		}
		if delta["content"] == nil && m.chance(3) {
			delta["content"] = ""
		}
		if m.chance(3) {
			delta["role"] = "assistant"
		}
	}
}

func addChatUnknown(m *mutant) {
	for _, e := range m.events {
		if isChatChunk(e) && m.chance(3) {
			m.addUnknown(e.data, "arguments")
		}
	}
}

// takeChatUsage removes the usage and returns it.
func (m *mutant) takeChatUsage() any {
	var usage any
	for i := 0; i < len(m.events); i++ {
		u := at(m.events[i].data, "usage")
		if u == nil {
			continue
		}
		usage = u
		m.events[i].data["usage"] = nil
		if list, _ := m.events[i].data["choices"].([]any); len(list) == 0 {
			m.events = slices.Delete(m.events, i, i+1)
			i--
		}
	}
	return usage
}

// moveChatUsage sends the usage with the finish reason, or in a chunk of its own anywhere before the end.
func moveChatUsage(m *mutant) {
	if m.chance(3) {
		return
	}
	usage := m.takeChatUsage()
	if usage == nil {
		return
	}
	finish := slices.IndexFunc(m.events, func(e event) bool { return at(e.data, "choices", 0, "finish_reason") != nil })
	if finish >= 0 && m.chance(2) {
		m.events[finish].data["usage"] = usage
		return
	}
	done := 0
	if n := len(m.events); n > 0 && m.events[n-1].raw != "" {
		done = 1
	}
	chunk := map[string]any{"usage": usage}
	switch m.IntN(3) {
	case 0:
		chunk["choices"] = []any{}
	case 1:
		chunk["choices"] = nil
	}
	m.insert(event{data: chunk}, 0, done)
}

// repeatChatUsage sends the usage so far with every chunk.
func repeatChatUsage(m *mutant) {
	var usage any
	for _, e := range m.events {
		if u := at(e.data, "usage"); u != nil {
			usage = u
		}
	}
	if usage == nil {
		return
	}
	for _, e := range m.events {
		if e.data != nil && at(e.data, "choices", 0, "delta") != nil {
			e.data["usage"] = clone(usage)
		}
	}
}

func (m *mutant) endsWithDone() bool {
	return len(m.events) > 0 && m.events[len(m.events)-1].raw != ""
}

// endChatByDone leaves out the finish reason where [DONE] says enough.
func endChatByDone(m *mutant) {
	if !m.endsWithDone() || m.want.Text == "" && len(m.want.Calls) == 0 || m.scenario == BrokenCall {
		return
	}
	for _, e := range m.events {
		reason := textAt(e.data, "choices", 0, "finish_reason")
		if reason != "" && reason != "stop" && reason != "tool_calls" {
			return
		}
	}
	m.broken = false
	for _, e := range m.events {
		if choice := objectAt(e.data, "choices", 0); choice != nil && choice["index"] != json.Number("1") {
			choice["finish_reason"] = nil
		}
	}
}

// endChatByFinish leaves out [DONE].
func endChatByFinish(m *mutant) {
	if m.endsWithDone() && m.hasFinish() {
		m.events = m.events[:len(m.events)-1]
	}
}

func (m *mutant) hasFinish() bool {
	return slices.ContainsFunc(m.events, func(e event) bool {
		return textAt(e.data, "choices", 0, "finish_reason") != "" && at(e.data, "choices", 0, "index") == json.Number("0")
	})
}

// breakChat breaks the connection behind a complete reply.
func breakChat(m *mutant) { m.broken = m.hasFinish() }

// addChatKeepAlive sends chunks without content.
func addChatKeepAlive(m *mutant) {
	chunk := pick(m,
		map[string]any{"choices": []any{}},
		map[string]any{"choices": []any{}, "prompt_filter_results": []any{map[string]any{"prompt_index": json.Number("0")}}},
		map[string]any{"choices": []any{map[string]any{"index": json.Number("0")}}},
		map[string]any{"choices": []any{map[string]any{"index": json.Number("0"), "delta": map[string]any{}, "finish_reason": nil}}},
		map[string]any{"choices": []any{map[string]any{
			"index": json.Number("0"), "delta": map[string]any{"content": ""}, "finish_reason": "",
		}}},
		map[string]any{"object": "ping"},
	)
	done := 0
	if m.endsWithDone() {
		done = 1
	}
	m.insert(event{data: chunk}, 0, done)
}

// addSecondChoice sends a reply beside the first one.
func addSecondChoice(m *mutant) {
	done := 0
	if m.endsWithDone() {
		done = 1
	}
	m.insert(event{data: map[string]any{"choices": []any{map[string]any{
		"index": json.Number("1"), "delta": map[string]any{"content": "no"}, "finish_reason": pick[any](m, nil, "length"),
	}}}}, 0, done)
}

// finishChatWithContent sends the finish reason with the last piece of content.
func finishChatWithContent(m *mutant) {
	finish := slices.IndexFunc(m.events, func(e event) bool {
		return textAt(e.data, "choices", 0, "finish_reason") != "" && at(e.data, "choices", 0, "index") == json.Number("0")
	})
	if finish < 1 {
		return
	}
	before := m.events[finish-1]
	choice := objectAt(before.data, "choices", 0)
	if choice == nil || choice["index"] != json.Number("0") || choice["delta"] == nil || len(chatDelta(m.events[finish])) > 0 {
		return
	}
	choice["finish_reason"] = at(m.events[finish].data, "choices", 0, "finish_reason")
	if usage := m.events[finish].data["usage"]; usage != nil {
		before.data["usage"] = usage
	}
	m.events = slices.Delete(m.events, finish, finish+1)
}

// objectChatArguments sends arguments as an object instead of a text.
func objectChatArguments(m *mutant) {
	count := map[any]int{}
	m.fragments(func(_ int, f map[string]any) {
		if textAt(f, "function", "arguments") != "" {
			count[f["index"]]++
		}
	})
	m.fragments(func(_ int, f map[string]any) {
		text := textAt(f, "function", "arguments")
		var object map[string]any
		if count[f["index"]] == 1 && f["index"] != nil && json.Unmarshal([]byte(text), &object) == nil && len(object) < 2 {
			objectAt(f, "function")["arguments"] = json.RawMessage(text)
		}
	})
}

// sendWholeCalls sends each call in one fragment, as servers do that parse calls themselves: all in one chunk or each in its own, with or
// without ids, with right indexes, missing or all 0.
func sendWholeCalls(m *mutant) {
	if m.sealed || m.scenario == CutCall || m.scenario == HalfCall || m.scenario == FilteredCall {
		return // a truncated call is incomplete
	}
	type complete struct{ id, name, arguments string }
	calls, order, clear := map[string]*complete{}, []string(nil), true
	last := -1
	m.fragments(func(i int, f map[string]any) {
		index, _ := f["index"].(json.Number)
		clear = clear && index != ""
		c := calls[string(index)]
		if c == nil {
			c = &complete{}
			calls[string(index)] = c
			order = append(order, string(index))
		}
		if id := textAt(f, "id"); c.id == "" {
			c.id = id
		}
		if name := textAt(f, "function", "name"); name != "" {
			c.name = name
		}
		switch arguments := at(f, "function", "arguments").(type) {
		case string:
			c.arguments += arguments
		case json.RawMessage:
			c.arguments += string(arguments)
		}
		last = i
	})
	if !clear || len(order) == 0 || slices.IndexFunc(m.events[:last+1], func(e event) bool {
		return textAt(e.data, "choices", 0, "finish_reason") != "" && at(e.data, "choices", 0, "index") == json.Number("0")
	}) >= 0 {
		return
	}
	m.sealed = true
	indexes, ids := m.IntN(3), m.IntN(3)
	var fragments []any
	for n, index := range order {
		c := calls[index]
		f := map[string]any{"type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments}}
		switch indexes {
		case 0:
			f["index"] = json.Number("0")
		case 1:
			f["index"] = json.Number(strconv.Itoa(n))
		}
		switch {
		case ids == 0 && c.id != "":
			f["id"] = c.id
		case ids == 1:
			f["id"] = ""
		}
		fragments = append(fragments, f)
	}
	var sent []event
	if m.chance(2) {
		sent = []event{chatEvent(map[string]any{"tool_calls": fragments})}
	} else {
		for _, f := range fragments {
			sent = append(sent, chatEvent(map[string]any{"tool_calls": []any{f}}))
		}
	}
	m.events = slices.Insert(m.events, last+1, sent...)
	for _, e := range m.events[:last+1] {
		if delta := chatDelta(e); delta != nil {
			delete(delta, "tool_calls")
		}
	}
}

// delayChatNames sends the name of a call behind the first piece of its arguments.
func delayChatNames(m *mutant) {
	if m.sealed {
		return
	}
	named := map[any]int{}
	clear := true
	m.fragments(func(_ int, f map[string]any) {
		if textAt(f, "function", "name") != "" {
			named[f["index"]]++
		}
		clear = clear && f["index"] != nil
	})
	for _, times := range named {
		clear = clear && times == 1
	}
	if !clear {
		return
	}
	late := map[any]string{}
	m.fragments(func(_ int, f map[string]any) {
		function := objectAt(f, "function")
		if function == nil {
			return
		}
		if name := textAt(function, "name"); name != "" {
			late[f["index"]] = name
			delete(function, "name")
			return
		}
		if name := late[f["index"]]; name != "" {
			function["name"] = name
			delete(late, f["index"])
		}
	})
	m.fragments(func(_ int, f map[string]any) { // a call of one fragment
		if name := late[f["index"]]; name != "" {
			if f["function"] == nil {
				f["function"] = map[string]any{}
			}
			objectAt(f, "function")["name"] = name
			delete(late, f["index"])
		}
	})
}

// renameChatFinish gives the finish reason in the words of other servers.
func renameChatFinish(m *mutant) {
	words := map[string][]string{
		"stop":           {"stop", "STOP", "eos", "eos_token", "end_turn", "COMPLETE", "stop_sequence"},
		"tool_calls":     {"stop", "tool_calls", "tool_call", "function_call", "tool_use", "TOOL_CALL", "end_turn"},
		"length":         {"length", "max_tokens", "MAX_TOKENS", "model_length"},
		"content_filter": {"content_filter", "SAFETY", "content-filter"},
	}
	for _, e := range m.events {
		choice := objectAt(e.data, "choices", 0)
		if choice == nil || choice["index"] != json.Number("0") {
			continue
		}
		if others := words[textAt(choice, "finish_reason")]; others != nil {
			choice["finish_reason"] = pick(m, others...)
		}
	}
}

// repeatChatFinish sends the finish reason with the usage again.
func repeatChatFinish(m *mutant) {
	var reason any
	for _, e := range m.events {
		if r := textAt(e.data, "choices", 0, "finish_reason"); r != "" && at(e.data, "choices", 0, "index") == json.Number("0") {
			reason = r
		}
		if list, isList := at(e.data, "choices").([]any); reason != nil && isList && len(list) == 0 && at(e.data, "usage") != nil {
			e.data["choices"] = []any{map[string]any{
				"index": json.Number("0"), "delta": map[string]any{"content": ""}, "finish_reason": reason,
			}}
		}
	}
}
