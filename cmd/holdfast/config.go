package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
)

// newConfig returns the command that shows the configuration.
func newConfig(t *cli.Terminal) *cobra.Command {
	var names []string
	var onlySet bool
	c := &cobra.Command{
		Use: "config", Short: "Show the configuration of the services in this environment, without secrets", Args: cli.NoArguments,
		Long: `Show the configuration that services would have in this environment: each variable with its value and
where the value comes from. Secrets and passwords are masked. Variables that begin with HOLDFAST_ and
that no service reads are listed. If a value is not valid, the command ends with 2.`,
		RunE: func(*cobra.Command, []string) error { return showConfig(t, names, onlySet) },
	}
	c.Flags().StringSliceVar(&names, "service", nil, "only these services: state, stream, executor, gateway")
	c.Flags().BoolVar(&onlySet, "set", false, "only variables that the environment sets")
	t.AddJSON(c)
	return c
}

// settingView is a variable as it is shown.
type settingView struct {
	Name     string   `json:"name"`
	Value    string   `json:"value"`
	Source   string   `json:"source"` // default, environment, or empty for none
	Secret   bool     `json:"secret"`
	Required bool     `json:"required"`
	Services []string `json:"services"`
	Doc      string   `json:"doc"`
}

// configView is a configuration as it is shown.
type configView struct {
	Settings []settingView `json:"settings"`
	Unknown  []string      `json:"unknown"`
}

func showConfig(t *cli.Terminal, names []string, onlySet bool) error {
	selected, err := componentsNamed(names, t.Environ)
	if err != nil {
		return err
	}
	view := configView{Settings: settingsOf(selected, t.Environ), Unknown: append([]string{}, unknownVariables(t.Environ)...)}
	if onlySet {
		view.Settings = slices.DeleteFunc(view.Settings, func(s settingView) bool { return s.Source != fromEnvironment })
	}
	if err := printConfig(t, view); err != nil {
		return err
	}
	var problems error
	for _, s := range selected {
		_, err := s.load(t.Environ)
		problems = errors.Join(problems, err)
	}
	return problems
}

// The sources of a value.
const (
	fromEnvironment = "environment"
	fromDefault     = "default"
)

// settingsOf returns the variables of services, each once.
func settingsOf(selected []component, environ []string) []settingView {
	views := []settingView{}
	at := map[string]int{}
	for _, c := range selected {
		for _, s := range c.settings(environ) {
			if i, ok := at[s.Name]; ok {
				views[i].Services = append(views[i].Services, c.name)
				continue
			}
			at[s.Name] = len(views)
			v := settingView{Name: s.Name, Value: s.Value, Secret: s.Secret, Required: s.Required, Services: []string{c.name}, Doc: s.Doc}
			switch {
			case s.Set:
				v.Source = fromEnvironment
			case s.Value != "":
				v.Source = fromDefault
			}
			views = append(views, v)
		}
	}
	return views
}

func printConfig(t *cli.Terminal, view configView) error {
	if t.JSON {
		return t.PrintJSON(view)
	}
	rows := make([][]string, len(view.Settings))
	for i, s := range view.Settings {
		rows[i] = []string{s.Name, s.Value, s.Source, strings.Join(s.Services, ", ")}
	}
	if err := t.Table([]string{"VARIABLE", "VALUE", "SOURCE", "SERVICES"}, rows); err != nil {
		return err
	}
	for _, name := range view.Unknown {
		if _, err := fmt.Fprintf(t.Out, "! %s is set, and no service reads it\n", name); err != nil {
			return err
		}
	}
	return nil
}
