package publisher_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// slow returns a log with appends of half a second, and the number of records in each. The fates are the errors
// of its appends.
func slow(fates ...error) (log *publishertest.Log, counts *[]int) {
	counts = &[]int{}
	return &publishertest.Log{Gate: func(_ context.Context, r *streamv2.AppendRequest) error {
		*counts = append(*counts, len(r.GetRecords()))
		time.Sleep(time.Second / 2)
		if len(fates) == 0 {
			return nil
		}
		err := fates[0]
		fates = fates[1:]
		return err
	}}, counts
}

func TestTheRestOfAStepItsBoundaryAndTheNextStepGoInOneAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := slow()
		p := start(t, log, claim())
		show(t, p, text(1, "a"))
		synctest.Wait()
		show(t, p, text(1, "b"), event(1, "c"))
		for step := int32(2); step <= 4; step++ {
			p.Commit(committed(step-1), nil)
			show(t, p, text(step, "d"))
		}
		flush(t, p)
		expect(t, log, "1/33.1 begins[] a", "1/33.2 b c", "1/2047.524285 boundary behind 1/33.3", "2/1.1 begins[] d",
			"2/2047.524285 boundary behind 2/1.1", "3/1.1 begins[] d", "3/2047.524285 boundary behind 3/1.1", "4/1.1 begins[] d")
		if want := []int{1, 7}; !slices.Equal(*counts, want) {
			t.Errorf("the appends have %d records, want %d", *counts, want)
		}
	})
}

func TestARetryKeepsTheBoundaryThatIsOnItsWayWithTheStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate error
		want []string
	}{
		"stored": {nil, []string{
			"1/33.1 begins[] a", "1/2047.524285 boundary behind 1/33.1", "2/1.1 begins[] void", "2/2.1 begins[step_retried] b",
		}},
		"not known": {fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no answer"), []string{
			"1/33.1 begins[] a", "1/2047.524285 boundary behind 1/33.1", "2/1.1 begins[] void", "2/2.1 begins[step_retried] b",
		}},
		"lost": {fault.New(fault.Stale, "RECORDS_LOST", "lost"), []string{
			"1/33.1 begins[] a", "2/2.1 begins[step_retried] b",
		}},
		"refused": {fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "large"), []string{
			"1/33.1 begins[] a", "1/2047.524285 boundary behind 1/33.1", "2/2.1 begins[step_retried] b",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, _ := slow(nil, c.fate)
			p := start(t, log, claim())
			show(t, p, text(1, "a"))
			synctest.Wait()
			p.Commit(committed(1), nil)
			show(t, p, text(2, "void"))
			time.Sleep(3 * time.Second / 4) // the second append is in flight
			p.Retry(publisher.ReasonStepRetried)
			show(t, p, text(2, "b"))
			flush(t, p)
			if got := lines(log.History("s")); !slices.Equal(got, c.want) {
				t.Errorf("%s: the log was sent %q, want %q", name, got, c.want)
			}
		})
	}
}

func TestARecordThatTheLogRefusesDoesNotTakeItsNeighboursWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		log.Gate = func(_ context.Context, r *streamv2.AppendRequest) error {
			time.Sleep(time.Second / 2)
			for _, record := range r.GetRecords() {
				for _, chunk := range record.GetChunks() {
					if chunk.GetCustom().GetEventName() == "bad" {
						return fault.New(fault.Invalid, "CHUNK_INVALID", "bad")
					}
				}
			}
			return nil
		}
		p := start(t, log, claim())
		show(t, p, text(1, "a"))
		p.Commit(committed(1), nil)
		show(t, p, text(2, "b"), event(2, "bad"), text(2, "c"))
		p.Commit(committed(2), nil)
		show(t, p, text(3, "d"))
		p.Commit(committed(3), nil)
		flush(t, p)
		var reader publishertest.Reader
		reader.Read(log.History("s")...)
		if got, want := joined(reader.Chunks), "ad"; got != want || len(reader.ReadStored) != 1 {
			t.Errorf("the reader has %q and asked %v, want %q and step 2 from the state service", got, reader.ReadStored, want)
		}
		if faults := log.Faults(); len(faults) > 0 {
			t.Errorf("the publisher broke the rules: %v", faults)
		}
	})
}
