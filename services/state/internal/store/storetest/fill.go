package storetest

import (
	"fmt"
	"reflect"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// filler gives each field of a row a different value. So a missing or swapped column shows.
type filler struct{ n int }

// allowed lists valid values of the types with constrained columns.
var allowed = map[reflect.Type][]string{
	reflect.TypeFor[session.Status]():     {string(session.Interrupted), string(session.Failed), string(session.SuspendedStepPartial)},
	reflect.TypeFor[session.RunStatus]():  {string(session.RunSuspendedClientTool), string(session.RunInterrupted)},
	reflect.TypeFor[session.Entry]():      {string(session.EntryResume), string(session.EntryContinuation)},
	reflect.TypeFor[session.BusyPolicy](): {string(session.BusyEnqueue), string(session.BusyRollback)},
	reflect.TypeFor[session.StopKind]():   {string(session.StopAbort), string(session.StopInterrupt)},
	reflect.TypeFor[session.CallKind]():   {string(session.Approval), string(session.ClientTool)},
	reflect.TypeFor[session.AnswerKind](): {string(session.AnswerTimeout), string(session.AnswerClient)},
	reflect.TypeFor[session.Approvers]():  {string(session.ApproversOthers)},
	reflect.TypeFor[session.ChildMode]():  {string(session.Persistent), string(session.Ephemeral)},
	reflect.TypeFor[session.Location]():   {string(session.Remote)},
	reflect.TypeFor[session.UsageKind]():  {string(session.UsageCustom), string(session.UsageSubAgent)},
	reflect.TypeFor[session.OpKind]():     {string(session.OpAppend)},
}

// filled returns a T with no empty field.
func filled[T any](f *filler) (value T) {
	f.set(reflect.ValueOf(&value).Elem())
	return value
}

func (f *filler) set(v reflect.Value) {
	f.n++
	if texts, some := allowed[v.Type()]; some {
		v.SetString(texts[f.n%len(texts)])
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.set(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.set(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.set(v.Index(0))
		f.set(v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.set(key)
		f.set(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d 'ö\"", f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n)<<20 + 1)
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("fill: a row has a field of the type " + v.Type().String())
	}
}
