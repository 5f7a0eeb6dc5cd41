package scripted_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

func TestScriptErrorsShowTheirLine(t *testing.T) {
	t.Parallel()
	const head = "models:\n  m:\n    rules:\n"
	for name, test := range map[string]struct{ script, want string }{
		"an unknown key":               {head + "      - wenn: {step: 1}\n        reply: a\n", `[4:9] unknown field "wenn"`},
		"an unknown condition":         {head + "      - when: {stp: 1}\n        reply: a\n", `[4:16] unknown field "stp"`},
		"a broken pattern":             {head + "      - when: {lastUser: '(('}\n        reply: a\n", "[4:26] error parsing regexp"},
		"an invalid last role":         {head + "      - when: {lastRole: system}\n        reply: a\n", `[4:26] "system" is not one of`},
		"an empty condition":           {head + "      - when: {}\n        reply: a\n", `[4:15] an empty "when"`},
		"a count below one":            {head + "      - when: {step: -1}\n        reply: a\n", "[4:15] userTurns, step and attempts count from 1"},
		"a broken template":            {head + "      - reply: 'a {{.LastUser'\n", "[4:16] template"},
		"a broken template, arguments": {head + "      - reply:\n          - call: {name: f, arguments: {a: '{{'}}\n", "a: template"},
		"no reply":                     {head + "      - when: {step: 1}\n", "[4:13] a rule needs a reply"},
		"a part of two kinds":          {head + "      - reply:\n          - text: a\n            wait: 1s\n", "this one has 2"},
		"a part of no kind":            {head + "      - reply:\n          - chunk: 1\n", "this one has 0"},
		"an option that does not fit":  {head + "      - reply:\n          - wait: 1s\n            chunk: 1\n", "chunk and delay belong to"},
		"a repetition of zero":         {head + "      - reply:\n          - text: a\n            repeat: 0\n", "repeat belongs to"},
		"data without reasoning":       {head + "      - reply:\n          - text: a\n            providerData: 1\n", "providerData belongs to reasoning"},
		"a chunk of zero words":        {head + "      - reply:\n          - text: a\n            chunk: 0 words\n", "[6:20] a chunk is"},
		"a chunk of bytes":             {head + "      - reply:\n          - text: a\n            chunk: 3 bytes\n", "[6:20] a chunk is"},
		"a duration without a unit":    {head + "      - reply:\n          - wait: 3\n", "[5:19] a duration is"},
		"a duration that is negative":  {"models:\n  m:\n    delay: -3s\n    rules:\n      - reply: a\n", "[3:12] a duration is"},
		"a call without a name":        {head + "      - reply:\n          - call: {id: a}\n", "a call needs a name"},
		"arguments that are a list":    {head + "      - reply:\n          - call: {name: f, arguments: [1]}\n", "arguments are a mapping or a text"},
		"an unknown finish reason":     {head + "      - reply:\n          - finish: done\n", `[5:21] "done" is not one of`},
		"an unknown error code":        {head + "      - reply:\n          - error: {code: oops}\n", "set retryable"},
		"an unreachable rule":          {head + "      - reply: a\n      - reply: b\n", "rule 1 of this model has no \"when\""},
		"a model without rules":        {"models:\n  m: {delay: 1s}\n", "a model needs rules"},
		"an empty model":               {"models:\n  m:\n", `the model "m" has no rules`},
		"no models":                    {"", "no models"},
		"a duplicate model":            {head + "      - reply: a\n  m:\n    rules:\n      - reply: b\n", `"m" already defined`},
		"a second document":            {head + "      - reply: a\n---\nmodels: {}\n", "more than one YAML document"},
		"no YAML":                      {"models: [", "[1:9]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := scripted.Parse([]byte(test.script))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v\nwant …%s…", err, test.want)
			}
		})
	}
}
