package model_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestLooseMembersTakeWhatServersSendInTheirPlace(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]struct {
		text   model.LooseText
		number model.LooseInt
	}{
		`"a\n"`:                  {"a\n", 0},
		`"12"`:                   {"12", 12},
		`12`:                     {"12", 12},
		`-3.9`:                   {"-3.9", -3},
		`1e3`:                    {"1e3", 1000},
		`9007199254740993`:       {"9007199254740993", 9007199254740993},
		`1e300`:                  {"1e300", 0},
		`"NaN"`:                  {"NaN", 0},
		`null`:                   {"", 0},
		`{"a":1}`:                {`{"a":1}`, 0},
		`["a"]`:                  {`["a"]`, 0},
		`"-9223372036854775808"`: {"-9223372036854775808", -9223372036854775808},
	} {
		got := struct {
			Text   model.LooseText
			Number model.LooseInt
			After  string
		}{Text: "before", Number: 5}
		if err := json.Unmarshal([]byte(`{"Text":`+wire+`,"Number":`+wire+`,"After":"read"}`), &got); err != nil || got.After != "read" {
			t.Errorf("%s: got %+v, %v", wire, got, err)
		}
		if got.Text != want.text || got.Number != want.number {
			t.Errorf("%s: got %q and %d, want %q and %d", wire, got.Text, got.Number, want.text, want.number)
		}
	}
}
