package holdfast

import "testing"

func TestAVariableThatIsSetToNothingHidesNoDefault(t *testing.T) {
	t.Parallel()
	s, err := Options{
		Data: "d", Env: []string{"HOLDFAST_GATEWAY_STATE_ADDRESS=", "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=", "HOLDFAST_LOG_LEVEL=debug"},
	}.settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Gateway.StateAddress != stateAddress || !s.Gateway.InsecureNoAuth || s.Telemetry.LogLevel != "debug" {
		t.Errorf("got %q, %v, %q", s.Gateway.StateAddress, s.Gateway.InsecureNoAuth, s.Telemetry.LogLevel)
	}
}

func TestNoFolderIsNeededIfOthersKeepEverything(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options Options
		want    bool
	}{
		{Options{}, true},
		{Options{InMemory: true}, false},
		{Options{Postgres: "postgres://h/d"}, true},
		{Options{Postgres: "postgres://h/d", NATS: "nats://h:4222"}, false},
		{Options{Env: []string{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STREAM_BUS=memory"}}, false},
	} {
		s, err := test.options.settings()
		if err != nil {
			t.Fatal(err)
		}
		if s.needsFolder() != test.want {
			t.Errorf("%+v: needs the folder %v, want %v", test.options, s.needsFolder(), test.want)
		}
	}
}
