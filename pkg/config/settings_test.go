package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/config"
)

type exposed struct {
	Listen  string   `env:"LISTEN" envDefault:"127.0.0.1:1" doc:"address to serve on"`
	Token   string   `env:"TOKEN" secret:"true" doc:"a secret"`
	URL     string   `env:"URL" doc:"a database"`
	Brokers []string `env:"BROKERS" envDefault:"nats://127.0.0.1:4222" doc:"servers"`
	Must    string   `env:"MUST,required"`
}

func TestSettingsNameTheSourceAndShowNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for _, test := range []struct {
		name, value, want string
		set               bool
	}{
		{"LISTEN", "", "127.0.0.1:1", false},
		{"LISTEN", "127.0.0.1:2", "127.0.0.1:2", true},
		{"TOKEN", "", "", false},
		{"TOKEN", secret, "******", true},
		{"URL", "postgres://ann:" + secret + "@db:5432/x?sslmode=require", "postgres://ann:******@db:5432/x?sslmode=require", true},
		{"URL", "postgres://db/x?user=ann&password=" + secret, "postgres://db/x?user=ann&password=******", true},
		{"URL", "host=db user=ann password=" + secret + " dbname=x", "host=db user=ann password=****** dbname=x", true},
		{"URL", "host=db password = 'a " + secret + "' dbname=x", "host=db password=****** dbname=x", true},
		{"URL", "postgres://ann:%" + secret + "@db", "postgres://******", true},
		{"BROKERS", "nats://ann:" + secret + "@a:4222,nats://" + secret + "@b:4222,c:1", "nats://ann:******@a:4222,nats://******@b:4222,c:1", true},
	} {
		got := config.Settings(exposed{}, []string{test.name + "=" + test.value, "OTHER=" + secret})
		i := slices.IndexFunc(got, func(s config.Setting) bool { return s.Name == test.name })
		if got[i].Value != test.want || got[i].Set != test.set {
			t.Errorf("%s=%q: got %q, %v; want %q, %v", test.name, test.value, got[i].Value, got[i].Set, test.want, test.set)
		}
	}
}

func TestTheHelpNamesEveryVariableWithItsDefault(t *testing.T) {
	t.Parallel()
	var help strings.Builder
	if err := config.Help(&help, exposed{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  LISTEN=127.0.0.1:1\n      address to serve on\n", "  TOKEN\n      a secret\n", "  MUST  (required)\n"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("no %q in\n%s", want, help.String())
		}
	}
}
