package table_test

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func TestEachColumnHasAFieldOfItsOwnThatFitsItsKind(t *testing.T) {
	t.Parallel()
	checkFields(t, &table.Sessions)
	checkFields(t, &table.States)
	checkFields(t, &table.Runs)
	checkFields(t, &table.WaitingInputs)
	checkFields(t, &table.Messages)
	checkFields(t, &table.Plans)
	checkFields(t, &table.Results)
	checkFields(t, &table.Checkpoints)
	checkFields(t, &table.UsageEntries)
	checkFields(t, &table.Calls)
	checkFields(t, &table.SubSessions)
	checkFields(t, &table.Memories)
	checkFields(t, &table.Files)
	checkFields(t, &table.Subscriptions)
	checkFields(t, &table.Deliveries)
}

func checkFields[R any](t *testing.T, of *table.Table[R]) {
	t.Helper()
	row := new(R)
	byField := map[any]string{}
	for _, c := range of.All() {
		field := c.Field(row)
		var fits bool
		switch field.(type) {
		case *string:
			fits = c.Kind == table.Text
		case *int64, *int32:
			fits = c.Kind == table.Integer
		case *float64:
			fits = c.Kind == table.Float
		case *bool:
			fits = c.Kind == table.Boolean
		case *[]byte:
			fits = c.Kind == table.Bytes
		case driver.Valuer:
			_, scans := field.(sql.Scanner)
			fits = c.Kind == table.Text && scans
		}
		if !fits {
			t.Errorf("%s.%s is %s, and its field is %T", of.Name, c.Name, c.Kind, field)
		}
		if other, taken := byField[field]; taken {
			t.Errorf("%s.%s and %s are the same field", of.Name, c.Name, other)
		}
		byField[field] = c.Name
	}
}

func TestARowIsScannedFromTheValuesOfAnEqualOne(t *testing.T) {
	t.Parallel()
	columns := table.Calls.All()
	want := session.Call{CallID: "c", SessionID: "s", Step: 7, Stash: []byte("stash"), CreatedAt: 9, LateReported: true, Kind: session.Approval}
	values := columns.Values(nil, &want)
	var got session.Call
	for i, to := range columns.Destinations(nil, &got) {
		switch to := to.(type) {
		case sql.Scanner:
			if err := to.Scan(values[i]); err != nil {
				t.Error(err)
			}
		case *int32:
			*to = int32(values[i].(int64))
		default:
			reflect.ValueOf(to).Elem().Set(reflect.ValueOf(values[i]))
		}
	}
	if !reflect.DeepEqual(got, want) || !columns.Equal(&got, &want) {
		t.Errorf("got  %+v,\nwant %+v", got, want)
	}
	for _, c := range columns {
		other := want
		switch field := c.Field(&other).(type) {
		case *string:
			*field += "x"
		case *int64:
			*field++
		case *int32:
			*field++
		case *bool:
			*field = !*field
		case *[]byte:
			*field = []byte("x")
		}
		if columns.Equal(&other, &want) || !columns.Without(c.Name).Equal(&other, &want) {
			t.Errorf("a change of %s is not seen, or in other columns", c.Name)
		}
	}
}

func TestAMissingByteStringIsWrittenAsNoBytesAndReadAsNil(t *testing.T) {
	t.Parallel()
	call := session.Call{Late: []byte("old")}
	late := table.Calls.Small.Destinations(nil, &call)
	for i, name := range table.Calls.Small.Names() {
		if name != "late" {
			continue
		}
		if err := late[i].(sql.Scanner).Scan([]byte{}); err != nil || call.Late != nil {
			t.Errorf("got %v, %v; want nil", call.Late, err)
		}
		if value, ok := table.Value(&call.Late).([]byte); !ok || value == nil {
			t.Errorf("got %v, want no bytes that are not NULL", value)
		}
		if err := late[i].(sql.Scanner).Scan("text"); err == nil {
			t.Error("a text was read as bytes")
		}
	}
}
