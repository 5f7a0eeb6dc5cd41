package mcptool_test

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestACallWaitsForAServerThatHasDiedToBeStartedAgain(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	begin := time.Now()
	s := open(t, c, p)
	before := call(t.Context(), t, s, "pid", `{}`)
	call(t.Context(), t, s, "die", `{}`)
	after := call(t.Context(), t, s, "pid", `{}`)
	if strings.HasPrefix(after, "error: ") || after == before {
		t.Errorf("pid = %s behind %s, want that of another child", after, before)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the server was started again after %v, want a pause", took)
	}
}

func TestACallOfWhichNothingHasReachedADeadChildIsMadeWithTheNextOne(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := open(t, c, p)
	before := call(t.Context(), t, s, "pid", `{}`)
	number, err := strconv.Atoi(strings.Trim(before, `"`))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child has ended", func() bool { return !exists(t, before) })
	if after := call(t.Context(), t, s, "pid", `{}`); strings.HasPrefix(after, "error: ") || after == before {
		t.Errorf("pid = %s, want that of the next child", after)
	}
}

func TestACallThatWaitsForAServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	now := time.Now()
	p.Now = func() time.Time { return now } // the pause never ends
	s := open(t, c, p)
	call(t.Context(), t, s, "die", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got := call(ctx, t, s, "pid", `{}`); !strings.HasPrefix(got, "error: ") || ctx.Err() == nil {
		t.Errorf("pid = %s, want that it ends with its context", got)
	}
}
