package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAWorkerRunsAsManyAtATimeAsItIsAsked(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	var together atomic.Int32
	all := make(chan struct{})
	err := serve(t.Context(), strings.NewReader("run 3\n"), &out, func(context.Context, string) error {
		if together.Add(1) == 3 {
			close(all)
		}
		<-all
		return nil
	})
	if want := "ready\nok\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

func TestAWorkerSaysOnOneLineWhyARunFailed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := serve(t.Context(), strings.NewReader("run 1\nrun 1\n"), &out, func(_ context.Context, id string) error {
		if id == "run-1-0" {
			return errors.New("the disk\nis full")
		}
		return nil
	})
	if want := "ready\nerror the disk is full\nok\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

func TestAWorkerRefusesCommandsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	if err := serve(t.Context(), strings.NewReader("dance\n"), &strings.Builder{}, nil); err == nil {
		t.Error("got no error, want one")
	}
}
