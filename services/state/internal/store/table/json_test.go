package table_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func TestAColumnComesBackAsItWentIn(t *testing.T) {
	t.Parallel()
	roundTrip(t, &session.Suspension{}, "{}")
	roundTrip(t, []string{"a", "\x00<é>"}, `["a","\u0000\u003cé\u003e"]`)
	roundTrip(t, map[string]string{"k": ""}, `{"k":""}`)
	roundTrip(t, &session.Failure{}, `{"error":""}`)
	roundTrip(t, []string(nil), "")
	roundTrip(t, map[string]string(nil), "")
	roundTrip(t, (*session.Failure)(nil), "")
}

func roundTrip[T any](t *testing.T, value T, want string) {
	t.Helper()
	text, err := table.AsJSON(&value).Value()
	if err != nil || text != want {
		t.Errorf("%+v: got %v, %v; want %q", value, text, err, want)
	}
	for _, from := range []any{text, []byte(want)} {
		var got T
		if err := table.AsJSON(&got).Scan(from); err != nil || !reflect.DeepEqual(got, value) {
			t.Errorf("%q: got %+v, %v; want %+v", want, got, err, value)
		}
	}
}

func TestAColumnTakesNothingButText(t *testing.T) {
	t.Parallel()
	var list []string
	for _, from := range []any{nil, 7, "not JSON"} {
		if err := table.AsJSON(&list).Scan(from); err == nil {
			t.Errorf("%v was taken", from)
		}
	}
}
