package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Row is a known server or family of models.
type Row struct {
	// Name is the name for people, and for the profile of an agents file.
	Name string
	// Address matches the host and path of the base URL, without the scheme. Nil matches every address.
	Address *regexp.Regexp
	// Model matches the name of the model, in lower case. Nil matches every model.
	Model *regexp.Regexp
	// Fields is a JSON object of the fields in which the server differs from Compatible.
	Fields string
	// Sources say where the facts come from.
	Sources []string
}

// Override is the profile of an agents file: the name of a row, single fields, or both. The zero value changes nothing.
type Override struct {
	// Base is the name of the row to use in place of the rows that match. Empty keeps those.
	Base string
	// Fields is a JSON object of fields that win over the rows. Nil for none.
	Fields json.RawMessage
}

// ParseOverride reads an override: a name, also as a JSON string, or a JSON object of fields with the name as "base". Empty text and
// null change nothing.
func ParseOverride(text json.RawMessage) (Override, error) {
	if len(text) == 0 || string(text) == "null" {
		return Override{}, nil
	}
	var o Override
	if json.Unmarshal(text, &o.Base) == nil {
		return o, o.check()
	}
	if !json.Valid(text) {
		o.Base = string(text)
		return o, o.check()
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return Override{}, errors.New("a profile is a name or an object of fields")
	}
	if base, ok := fields["base"]; ok {
		if json.Unmarshal(base, &o.Base) != nil {
			return Override{}, errors.New("base must be the name of a profile")
		}
		delete(fields, "base")
	}
	// What was decoded from JSON can be encoded.
	o.Fields, _ = json.Marshal(fields)
	return o, o.check()
}

func (o Override) check() error {
	p := Compatible()
	if o.Base != "" && o.Base != CompatibleName && !slices.ContainsFunc(Rows(), func(r Row) bool { return r.Name == o.Base }) {
		return fmt.Errorf("there is no profile %q; known: %s", o.Base, strings.Join(Names(), ", "))
	}
	if o.Fields == nil {
		return nil
	}
	return p.change(o.Fields)
}

// CompatibleName is the name of Compatible in an override.
const CompatibleName = "compatible"

// Names returns the names of all profiles.
func Names() []string {
	names := []string{CompatibleName}
	for _, r := range Rows() {
		names = append(names, r.Name)
	}
	return names
}

// Find returns the profile of a model at a base URL.
func Find(base *url.URL, model string, o Override) Profile {
	p := Compatible()
	address, model := base.Host+strings.TrimSuffix(base.Path, "/"), strings.ToLower(model)
	for _, r := range Rows() {
		matches := (r.Address == nil || r.Address.MatchString(address)) && (r.Model == nil || r.Model.MatchString(model))
		if o.Base != r.Name && (o.Base != "" || !matches) {
			continue
		}
		if err := p.change(json.RawMessage(r.Fields)); err != nil { // a test checks the table
			panic(fmt.Sprintf("profile: the row %s: %v", r.Name, err))
		}
	}
	if o.Fields != nil {
		// ParseOverride has checked the fields beside Compatible. Beside other rows, only the limits of ids may be in disorder.
		if err := p.change(o.Fields); err != nil {
			p = Compatible()
			_ = p.change(o.Fields)
		}
	}
	return p
}

// Fields returns the names of the fields of a profile.
func Fields() []string {
	// A profile can be encoded and decoded.
	text, _ := json.Marshal(Profile{})
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields)
	return slices.Sorted(maps.Keys(fields))
}
