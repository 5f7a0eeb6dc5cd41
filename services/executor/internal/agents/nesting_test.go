package agents

import (
	"fmt"
	"strings"
	"testing"
)

func TestDeepNestingIsRefusedBeforeParsing(t *testing.T) {
	t.Parallel()
	const levels = 20_000
	var blocks strings.Builder
	for i := range 300 {
		fmt.Fprintf(&blocks, "%sa:\n", strings.Repeat(" ", i))
	}
	for name, text := range map[string]string{
		"lists":            "a: " + strings.Repeat("[", levels) + strings.Repeat("]", levels),
		"objects":          "a: " + strings.Repeat("{a: ", levels),
		"entries":          strings.Repeat("- ", levels) + "a",
		"keys in a line":   strings.Repeat("a: ", levels) + "a",
		"complex keys":     strings.Repeat("? ", levels) + "a",
		"blocks":           blocks.String(),
		"tags":             "a: " + strings.Repeat("!x ", levels) + "a",
		"anchors":          "a: " + strings.Repeat("&x ", levels) + "a",
		"behind a comment": "# [\na: 1\nb:\n  - " + strings.Repeat("[", levels),
	} {
		_, err := Parse(t.Context(), Source{Name: name, Data: []byte(text)}, testKnown())
		wantMistakes(t, err, "values are nested deeper than 100 levels")
	}
	_, err := Parse(t.Context(), Source{Name: "long", Data: make([]byte, maxFileBytes+1)}, testKnown())
	wantMistakes(t, err, "the file has 1048577 bytes; at most 1048576 are allowed")
}

func TestLongFilesThatAreNotDeepAreRead(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 90) + strings.Repeat("]", 90)
	prompt := strings.Repeat("      [[[[ {{state.a}} - - - : \"\n", 200)
	var fields strings.Builder
	for i := range 200 {
		fmt.Fprintf(&fields, "        f%d: &f%d [x, {y: z}]\n", i, i)
	}
	a := parseOne(t, "agents:\n  - name: a\n    model: mine/x\n    systemPrompt: |\n"+prompt+"    providerOptions:\n      openai:\n        deep: "+deep+"\n"+fields.String())
	if got := string(a.ProviderOptions["openai"]); !strings.Contains(got, deep) || !strings.Contains(got, `"f199":["x",{"y":"z"}]`) || !strings.HasPrefix(a.SystemPrompt, "[[[[ {{state.a}}") {
		t.Errorf("options = %s, prompt = %q", got, a.SystemPrompt)
	}
}
