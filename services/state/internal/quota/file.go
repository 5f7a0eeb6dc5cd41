package quota

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// File is a file of quotas: the YAML object
//
//	tenant: {startsPerSecond: 50, burst: 100, inFlight: 200, queued: 5000, bytes: 10000000000}
//	user: {startsPerSecond: 2, inFlight: 4, queued: 20}
//	tenants:
//	  acme:
//	    tenant: {inFlight: 400}
//	    user: {inFlight: 8}
//	    users:
//	      u1: {inFlight: 0}
//
// tenant and user are the limits of each tenant and of each user. A limit that an override omits stays; 0
// is no limit. A nil *File has no limits. It may be used by many goroutines.
type File struct {
	name  string
	text  []byte // as last read; for Watch
	table atomic.Pointer[table]
}

// table is a Table with its caps.
type table struct {
	Table
	caps *store.Caps
}

// entry is the limits of a tenant in the file. A missing limit is inherited. All are read as floats, because the
// decoder cuts the fractions of integers off.
type entry struct {
	StartsPerSecond *float64 `yaml:"startsPerSecond"`
	Burst           *float64 `yaml:"burst"`
	InFlight        *float64 `yaml:"inFlight"`
	Queued          *float64 `yaml:"queued"`
	Bytes           *float64 `yaml:"bytes"`
}

// userEntry is the limits of a user in the file. Bytes are not counted by user.
type userEntry struct {
	StartsPerSecond *float64 `yaml:"startsPerSecond"`
	Burst           *float64 `yaml:"burst"`
	InFlight        *float64 `yaml:"inFlight"`
	Queued          *float64 `yaml:"queued"`
}

func (e userEntry) entry() entry { return entry{e.StartsPerSecond, e.Burst, e.InFlight, e.Queued, nil} }

// document is the file.
type document struct {
	Tenant  entry     `yaml:"tenant"`
	User    userEntry `yaml:"user"`
	Tenants map[string]struct {
		Tenant entry                `yaml:"tenant"`
		User   userEntry            `yaml:"user"`
		Users  map[string]userEntry `yaml:"users"`
	} `yaml:"tenants"`
}

// Read reads a file of quotas. An empty name gives nil. Invalid (QUOTAS_INVALID): the file cannot be read, has an
// unknown field, or has a limit below 0.
func Read(name string) (*File, error) {
	if name == "" {
		return nil, nil
	}
	f := &File{name: name}
	_, err := f.reload()
	return f, err
}

// Table returns the current limits.
func (f *File) Table() *Table {
	if f == nil {
		return nil
	}
	return &f.table.Load().Table
}

// Caps returns the current caps on running runs; nil for none.
func (f *File) Caps() *store.Caps {
	if f == nil {
		return nil
	}
	return f.table.Load().caps
}

// reloadInterval is how often the file is read.
const reloadInterval = 2 * time.Second

// Watch takes changes of the file over until ctx ends. While the file is invalid, the limits before the change stay.
func (f *File) Watch(ctx context.Context, log *slog.Logger) {
	if f == nil {
		return
	}
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := f.reload()
		switch {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.ErrorContext(ctx, "the file of quotas has changed and is invalid; the limits before the change stay", "error", err)
		case err == nil && changed:
			problem = ""
			log.InfoContext(ctx, "the quotas were read again", "file", f.name)
		}
	}
}

// reload reads the file, and reports whether it has changed.
func (f *File) reload() (changed bool, err error) {
	text, err := os.ReadFile(f.name)
	if err != nil {
		return false, invalid("%v", err)
	}
	if f.table.Load() != nil && bytes.Equal(text, f.text) {
		return false, nil
	}
	parsed, err := parse(text)
	if err != nil {
		return false, err
	}
	f.text = text
	f.table.Store(&table{*parsed, parsed.caps()})
	return true, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "QUOTAS_INVALID", "HOLDFAST_STATE_QUOTAS: "+format, args...)
}

func parse(text []byte) (*Table, error) {
	var d document
	if err := yaml.UnmarshalWithOptions(text, &d, yaml.DisallowUnknownField()); err != nil {
		return nil, invalid("the file is not a YAML object {tenant, user, tenants}: %v", err)
	}
	t := &Table{tenants: map[string]tenantLimits{}}
	var err error
	take := func(e entry, inherited Limits, where string) Limits {
		limits, e2 := e.limits(inherited, where)
		if err == nil {
			err = e2
		}
		return limits
	}
	t.tenant = take(d.Tenant, Limits{}, "tenant")
	t.user = take(d.User.entry(), Limits{}, "user")
	for name, own := range d.Tenants {
		where := "tenants." + name
		of := tenantLimits{
			tenant: take(own.Tenant, t.tenant, where+".tenant"), user: take(own.User.entry(), t.user, where+".user"), users: map[string]Limits{},
		}
		for id, user := range own.Users {
			of.users[id] = take(user.entry(), of.user, where+".users."+id)
		}
		t.tenants[name] = of
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// maxLimit is the largest float whose neighbors are integers.
const maxLimit = 1 << 53

// limits returns the limits of the entry; missing ones are inherited. A missing burst is a second of starts.
func (e entry) limits(inherited Limits, where string) (Limits, error) {
	l := inherited
	if rate := e.StartsPerSecond; rate != nil {
		if !(*rate >= 0) || math.IsInf(*rate, 0) {
			return l, invalid("%s.startsPerSecond is %v; it must be 0 or above", where, *rate)
		}
		l.StartsPerSecond, l.Burst = *rate, int64(math.Ceil(min(*rate, 1e9)))
	}
	for _, one := range []struct {
		name  string
		given *float64
		to    *int64
	}{{"burst", e.Burst, &l.Burst}, {"inFlight", e.InFlight, &l.InFlight}, {"queued", e.Queued, &l.Queued}, {"bytes", e.Bytes, &l.Bytes}} {
		if one.given == nil {
			continue
		}
		if n := *one.given; !(n >= 0 && n <= maxLimit) || n != math.Trunc(n) {
			return l, invalid("%s.%s is %v; it must be a whole number, 0 or above", where, one.name, n)
		}
		*one.to = int64(*one.given)
	}
	if l.StartsPerSecond > 0 && l.Burst < 1 {
		return l, invalid("%s.burst must be above 0 for startsPerSecond", where)
	}
	return l, nil
}
