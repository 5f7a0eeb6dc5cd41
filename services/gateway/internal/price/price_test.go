package price_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/price"
)

func read(t *testing.T, text string) (*price.Table, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return price.Read(file)
}

func TestTokensCostWhatTheTableSays(t *testing.T) {
	t.Parallel()
	table, err := read(t, `
currency: EUR
models:
  a/cached: {input: 3, cachedInput: 0.3, output: 15}
  a/plain: {input: 2, output: 8}
`)
	if err != nil {
		t.Fatal(err)
	}
	sums := func(input, cached, output int64) *eventv1.TokenSums {
		return &eventv1.TokenSums{PromptTokens: input, CachedTokens: cached, CompletionTokens: output, TotalTokens: input + output}
	}
	usage := &eventv1.UsageRollup{Tokens: sums(0, 0, 0), TokensByModel: map[string]*eventv1.TokenSums{
		"a/cached":   sums(1_000_000, 400_000, 100_000), // 1.8 + 0.12 + 1.5
		"a/plain":    sums(500_000, 100_000, 0),         // 1
		"b/unknown":  sums(7, 0, 7),
		"a/unlisted": sums(7, 0, 7),
	}}
	usage.TokensIncludingSubAgents = sums(0, 0, 0)
	usage.TokensIncludingSubAgentsByModel = map[string]*eventv1.TokenSums{"a/plain": sums(1_000_000, 0, 0), "b/unknown": sums(7, 0, 7), "c/below": sums(1, 0, 0)}
	table.Add(usage)
	if got := usage.GetTokensIncludingSubAgents().GetCost(); math.Abs(got-2) > 1e-9 {
		t.Errorf("the tree costs %v, want 2", got)
	}
	for name, want := range map[string]float64{"a/cached": 3.42, "a/plain": 1, "b/unknown": 0} {
		if got := usage.GetTokensByModel()[name].GetCost(); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s costs %v, want %v", name, got, want)
		}
	}
	if got := usage.GetTokens().GetCost(); math.Abs(got-4.42) > 1e-9 || usage.GetCurrency() != "EUR" || !slices.Equal(usage.GetUnpricedModels(), []string{"a/unlisted", "b/unknown", "c/below"}) {
		t.Errorf("all costs %v %s without %q; want 4.42 EUR without the unknown models", got, usage.GetCurrency(), usage.GetUnpricedModels())
	}
}

func TestWithoutATableNothingIsAdded(t *testing.T) {
	t.Parallel()
	none, err := price.Read("")
	usage := &eventv1.UsageRollup{TokensByModel: map[string]*eventv1.TokenSums{"a/b": {PromptTokens: 1}}}
	none.Add(usage)
	if err != nil || usage.GetCurrency() != "" || len(usage.GetUnpricedModels()) > 0 {
		t.Errorf("got %v, %v", usage, err)
	}
	none.Add(nil)
}

func TestAnInvalidTableNamesItsMistake(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"currency is missing":        "models: {}",
		"a/b is -1: it must be":      "currency: USD\nmodels: {a/b: {input: -1}}",
		"a/b is -2: it must be":      "currency: USD\nmodels: {a/b: {input: 1, cachedInput: -2}}",
		"is +Inf: it must be":        "currency: USD\nmodels: {a/b: {output: .inf}}",
		`unknown field "outputs"`:    "currency: USD\nmodels: {a/b: {outputs: 1}}",
		"HOLDFAST_GATEWAY_PRICES: /": "currency: [",
	} {
		_, err := read(t, text)
		if fault.ReasonOf(err) != "PRICES_INVALID" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := price.Read(filepath.Join(t.TempDir(), "none")); fault.ReasonOf(err) != "PRICES_INVALID" {
		t.Errorf("a missing file: got %v", err)
	}
}
