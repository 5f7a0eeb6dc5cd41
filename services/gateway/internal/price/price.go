// Package price knows what tokens cost.
package price

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// perMillion is the number of tokens that a price is for.
const perMillion = 1_000_000

// Table has the prices of models. A nil table has none. It is immutable.
type Table struct {
	Currency string           `yaml:"currency"` // such as USD
	Models   map[string]Price `yaml:"models"`   // by provider/model
}

// Price is what a million tokens of a model cost.
type Price struct {
	Input       float64  `yaml:"input"`
	CachedInput *float64 `yaml:"cachedInput"` // of input that the provider had cached; nil for the price of input
	Output      float64  `yaml:"output"`
}

// Read reads a table from a YAML file; an empty name gives nil. Invalid (PRICES_INVALID).
func Read(file string) (*Table, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid("%v", err)
	}
	t := &Table{}
	if err := yaml.UnmarshalWithOptions(text, t, yaml.DisallowUnknownField()); err != nil {
		return nil, invalid("%s: %s", file, yaml.FormatError(err, false, false))
	}
	if t.Currency == "" {
		return nil, invalid("%s: the currency is missing, such as currency: USD", file)
	}
	for name, p := range t.Models {
		for _, price := range []float64{p.Input, p.cached(), p.Output} {
			if math.IsNaN(price) || math.IsInf(price, 0) || price < 0 {
				return nil, invalid("%s: a price of %s is %v: it must be 0 or more", file, name, price)
			}
		}
	}
	return t, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "PRICES_INVALID", "HOLDFAST_GATEWAY_PRICES: %s", fmt.Sprintf(format, args...))
}

func (p Price) cached() float64 {
	if p.CachedInput == nil {
		return p.Input
	}
	return *p.CachedInput
}

// of returns what the tokens cost. Prompt tokens include the cached ones, and completion tokens the reasoning.
func (p Price) of(t *eventv1.TokenSums) float64 {
	cached := min(t.GetCachedTokens(), t.GetPromptTokens())
	return (p.Input*float64(t.GetPromptTokens()-cached) + p.cached()*float64(cached) + p.Output*float64(t.GetCompletionTokens())) / perMillion
}

// Add adds the costs to usage.
func (t *Table) Add(usage *eventv1.UsageRollup) {
	if t == nil || usage == nil {
		return
	}
	usage.Currency = t.Currency
	unpriced := slices.Concat(
		t.addTo(usage.GetTokens(), usage.GetTokensByModel()),
		t.addTo(usage.GetTokensIncludingSubAgents(), usage.GetTokensIncludingSubAgentsByModel()),
	)
	slices.Sort(unpriced)
	usage.UnpricedModels = slices.Compact(unpriced)
}

// addTo adds the costs to the tokens of each model and to their sum, which may be nil. It returns the models without a price.
func (t *Table) addTo(sum *eventv1.TokenSums, byModel map[string]*eventv1.TokenSums) (unpriced []string) {
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(byModel)) {
		tokens := byModel[name]
		price, known := t.Models[name]
		if !known {
			unpriced = append(unpriced, name)
			continue
		}
		tokens.Cost = price.of(tokens)
		total += tokens.Cost
	}
	if sum != nil {
		sum.Cost = total
	}
	return unpriced
}
