package config_test

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

type store string

func (s *store) UnmarshalText(text []byte) error {
	if string(text) != "postgres" && string(text) != "sqlite" {
		return errors.New("it must be postgres or sqlite")
	}
	*s = store(text)
	return nil
}

type limits struct {
	Runs  int8     `env:"RUNS" envDefault:"16" doc:"runs at once"`
	Ratio float64  `env:"RATIO"`
	Ports []uint16 `env:"PORTS"`
}

type settings struct {
	Database string        `env:"HOLDFAST_DATABASE_URL,required" doc:"where the state is kept"`
	Grace    time.Duration `env:"HOLDFAST_GRACE" envDefault:"10s" doc:"time to stop"`
	Store    store         `env:"HOLDFAST_STORE" envDefault:"sqlite"`
	Dev      bool          `env:"HOLDFAST_DEV"`
	Broker   url.URL       `env:"HOLDFAST_BROKER"`
	Limits   limits        `envPrefix:"HOLDFAST_LIMITS_"`
	Nested   struct {
		Inner limits `envPrefix:"INNER_"`
	} `envPrefix:"HOLDFAST_NESTED_"`
	NoVariable string
	hidden     string //nolint:unused // must be left alone
}

func TestLoadReadsValuesAndDefaults(t *testing.T) {
	t.Parallel()
	got := settings{NoVariable: "kept", Dev: true}
	err := config.Load(&got, []string{
		"HOLDFAST_DATABASE_URL=postgres://u:p@h/db?a=b", "HOLDFAST_STORE=postgres", "HOLDFAST_GRACE=",
		"HOLDFAST_LIMITS_RUNS=7", "HOLDFAST_LIMITS_PORTS=1,2", "HOLDFAST_NESTED_INNER_RATIO=0.5", "HOLDFAST_BROKER=nats://h:4222", "PATH=/bin", "=C:=odd",
	})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	want := settings{
		Database: "postgres://u:p@h/db?a=b", Grace: 10 * time.Second, Store: "postgres", Dev: true,
		Broker: url.URL{Scheme: "nats", Host: "h:4222"},
		Limits: limits{Runs: 7, Ports: []uint16{1, 2}}, NoVariable: "kept",
	}
	want.Nested.Inner = limits{Runs: 16, Ratio: 0.5}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Load gave\n%+v, want\n%+v", got, want)
	}
}

func TestLoadNamesEveryVariableThatIsWrong(t *testing.T) {
	t.Parallel()
	var target settings
	err := config.Load(&target, []string{
		"HOLDFAST_DATABASE_URL=", "HOLDFAST_GRACE=5", "HOLDFAST_STORE=mysql", "HOLDFAST_DEV=perhaps",
		"HOLDFAST_BROKER=nats://user:s3cret@h:port", "HOLDFAST_LIMITS_RUNS=200", "HOLDFAST_NESTED_INNER_RATIO=much", "HOLDFAST_LIMITS_PORTS=1,-2",
	})
	if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Fatalf("Load = %v, want Invalid (CONFIG_INVALID)", err)
	}
	f, _ := fault.From(err)
	want := strings.Join([]string{
		`8 variables are missing or wrong:`,
		`HOLDFAST_DATABASE_URL is not set: set it (where the state is kept)`,
		`HOLDFAST_GRACE is "5": it must be a duration such as 500ms, 30s or 5m (time to stop)`,
		`HOLDFAST_STORE is "mysql": it must be postgres or sqlite`,
		`HOLDFAST_DEV is "perhaps": it must be true or false`,
		`HOLDFAST_BROKER cannot be read`,
		`HOLDFAST_LIMITS_RUNS is "200": it must be a whole number of at most 8 bits (runs at once)`,
		`HOLDFAST_LIMITS_PORTS is "1,-2": it must be a list in which each element is a whole number, 0 or more, of at most 16 bits`,
		`HOLDFAST_NESTED_INNER_RATIO is "much": it must be a number`,
	}, "\n  ")
	if f.Detail != want {
		t.Errorf("detail is\n%s\nwant\n%s", f.Detail, want)
	}
}

func TestLoadIgnoresTheEnvironmentOfTheProcess(t *testing.T) {
	t.Setenv("HOLDFAST_DATABASE_URL", "from the process")
	var target settings
	if err := config.Load(&target, nil); !errors.Is(err, fault.Invalid) {
		t.Errorf("Load = %v with Database = %q, want Invalid", err, target.Database)
	}
}

func TestAMistakeInTheTagsIsNotTheUsersFault(t *testing.T) {
	t.Parallel()
	targets := map[string]any{
		"no pointer": settings{},
		"no struct":  new(int),
		"nothing":    nil,
		"unknown option": &struct {
			A string `env:"A,sometimes"`
		}{},
		"unknown type": &struct {
			A chan int `env:"A"`
		}{},
	}
	for name, target := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := config.Load(target, []string{"A=1"})
			if err == nil || fault.KindOf(err) != fault.Internal {
				t.Errorf("Load = %v, want an error that is no fault", err)
			}
		})
	}
}

func TestVariablesListsWhatTheTagsDeclare(t *testing.T) {
	t.Parallel()
	want := []config.Variable{
		{Name: "HOLDFAST_DATABASE_URL", Doc: "where the state is kept", Required: true},
		{Name: "HOLDFAST_GRACE", Default: "10s", Doc: "time to stop"},
		{Name: "HOLDFAST_STORE", Default: "sqlite"},
		{Name: "HOLDFAST_DEV"},
		{Name: "HOLDFAST_BROKER"},
		{Name: "HOLDFAST_LIMITS_RUNS", Default: "16", Doc: "runs at once"},
		{Name: "HOLDFAST_LIMITS_RATIO"},
		{Name: "HOLDFAST_LIMITS_PORTS"},
		{Name: "HOLDFAST_NESTED_INNER_RUNS", Default: "16", Doc: "runs at once"},
		{Name: "HOLDFAST_NESTED_INNER_RATIO"},
		{Name: "HOLDFAST_NESTED_INNER_PORTS"},
	}
	for _, target := range []any{settings{}, &settings{}, (*settings)(nil)} {
		if got := config.Variables(target); !slices.Equal(got, want) {
			t.Errorf("Variables(%T) =\n%v, want\n%v", target, got, want)
		}
	}
}

func TestUnknownFindsTypingErrors(t *testing.T) {
	t.Parallel()
	environ := []string{"HOLDFAST_STOER=x", "HOLDFAST_STORE=sqlite", "HOLDFAST_LIMITS_RUN=", "OTHER=1", "HOLDFAST_LIMITS_RUNS=3"}
	got := config.Unknown(environ, "HOLDFAST_", settings{}, &limits{})
	if want := []string{"HOLDFAST_LIMITS_RUN", "HOLDFAST_STOER"}; !slices.Equal(got, want) {
		t.Errorf("Unknown = %v, want %v", got, want)
	}
}

func ExampleLoad() {
	var c struct {
		Listen string        `env:"HOLDFAST_STATE_LISTEN" envDefault:"127.0.0.1:7001"`
		Grace  time.Duration `env:"HOLDFAST_STATE_GRACE" envDefault:"10s"`
	}
	fmt.Println(config.Load(&c, []string{"HOLDFAST_STATE_GRACE=1m"}), c.Listen, c.Grace)
	// Output: <nil> 127.0.0.1:7001 1m0s
}
