package registry

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestTheLimitsOfTheHostBoundAgentsInGoAndInYAML(t *testing.T) {
	t.Parallel()
	r, c := newRegistry(t, demo("go"))
	host := model.ProviderLimits{Limits: model.Limits{Concurrency: 9}, Models: map[string]model.Limits{"demo": {TokensPerMinute: 5}}}
	if err := r.Limit("own", host); err != nil {
		t.Fatal(err)
	}
	if err := r.Limit("filed", host); err != nil {
		t.Fatal(err)
	}
	host.Models["demo"] = model.Limits{} // changes nothing any more
	set, err := ParseAgents([]byte(`
models:
  filed: {provider: scripted, script: "`+hello+`", limits: {concurrency: 1}}
  free: {provider: scripted, script: "`+hello+`"}
agents: [{name: yaml, model: filed/demo, fallbacks: [free/demo]}]
`), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Use(set); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[string][]model.Governor{
		"go":   {"own/demo": {{Name: "own", Limits: model.Limits{Concurrency: 9}}, {Name: "own/demo", Limits: model.Limits{TokensPerMinute: 5}}}},
		"yaml": {"filed/demo": {{Name: "filed", Limits: model.Limits{Concurrency: 1}}}},
	} {
		got, err := resolve(t, c, name)
		if err != nil || !reflect.DeepEqual(got.Governors, want) {
			t.Errorf("governors of %s = %+v, %v; want %+v", name, got.Governors, err, want)
		}
	}
	if err := r.Limit("own", model.ProviderLimits{}); err != nil {
		t.Fatal(err)
	}
	if got, err := resolve(t, c, "go"); err != nil || len(got.Governors) != 0 {
		t.Errorf("governors = %+v, %v; want none after their removal", got.Governors, err)
	}
}

func TestLimitsThatNoCallCouldKeepAreRefused(t *testing.T) {
	t.Parallel()
	for provider, limits := range map[string]model.ProviderLimits{
		"":                       {},
		"a/b":                    {},
		"a\x00":                  {},
		strings.Repeat("x", 256): {},
		"negative":               {Limits: model.Limits{Concurrency: -1}},
		"large":                  {Models: map[string]model.Limits{"m": {RequestsPerMinute: model.MaxLimit + 1}}},
		"unnamed":                {Models: map[string]model.Limits{"": {RequestsPerMinute: 1}}},
	} {
		if err := New().Limit(provider, limits); fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != "LIMITS_INVALID" {
			t.Errorf("Limit(%.20q) = %v, want LIMITS_INVALID", provider, err)
		}
	}
	longest := strings.Repeat("x", 254)
	if err := New().Limit("p", model.ProviderLimits{Models: map[string]model.Limits{longest: {RequestsPerMinute: model.MaxLimit}}}); err != nil {
		t.Errorf("Limit = %v, want the largest limit of the longest name accepted", err)
	}
}
