package server

import (
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// maxIDBytes is the length of the longest id.
const maxIDBytes = 256

// idFlaw says what is wrong with an id, "" when nothing is.
func idFlaw(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > maxIDBytes:
		return "is longer than 256 bytes"
	case !utf8.ValidString(id):
		return "is not valid UTF-8"
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return "holds a control character"
		}
	}
	return ""
}

// checkID answers Invalid (ID_INVALID).
func checkID(name, id string) error {
	if flaw := idFlaw(id); flaw != "" {
		return fault.New(fault.Invalid, "ID_INVALID", "%s %s", name, flaw)
	}
	return nil
}

// streamOf checks a reference to a stream.
func streamOf(ref *streamv1.StreamRef) (bus.Stream, error) {
	s := bus.Stream{Tenant: ref.GetTenant(), Root: ref.GetRootSessionId(), Session: ref.GetSessionId()}
	for _, err := range []error{
		checkID("stream.tenant", s.Tenant),
		checkID("stream.root_session_id", s.Root),
		checkID("stream.session_id", s.Session),
	} {
		if err != nil {
			return bus.Stream{}, err
		}
	}
	return s, nil
}

func chunkInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "CHUNK_INVALID", format, args...)
}

// checkWriter checks what every write says of its writer.
func checkWriter(epoch, number int64) error {
	if epoch < 1 || number < 1 {
		return chunkInvalid("epoch and number are above 0; they are %d and %d", epoch, number)
	}
	return nil
}

// checkBatch checks what is said together: Invalid (BATCH_INVALID).
func checkBatch(r *streamv1.AppendRequest) error {
	more := r.GetMore()
	if len(more) == 0 {
		return nil
	}
	if r.GetTerminal() != nil {
		return batchInvalid("chunks stand beside a terminal record; append them before it")
	}
	if len(more) > maxMore {
		return batchInvalid("%d chunks stand in more, and at most %d may; send the rest with the next number", len(more), maxMore)
	}
	bytes := proto.Size(r.GetChunk())
	for _, chunk := range more {
		bytes += proto.Size(chunk)
	}
	if bytes > maxBatchBytes {
		return batchInvalid("the chunks take %d bytes together, and at most %d may; send fewer at once", bytes, maxBatchBytes)
	}
	return nil
}

func batchInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "BATCH_INVALID", format, args...)
}

func checkChunk(c *eventv1.Chunk) error {
	if flaw := idFlaw(c.GetAgentId()); flaw != "" {
		return chunkInvalid("chunk.agent_id %s", flaw)
	}
	if c.GetStep() < 0 {
		return chunkInvalid("chunk.step is %d; it is 0 or more", c.GetStep())
	}
	return nil
}

func checkTerminal(t *streamv1.Terminal) error {
	if flaw := idFlaw(t.GetRunId()); flaw != "" {
		return chunkInvalid("terminal.run_id %s", flaw)
	}
	switch outcome := t.GetOutcome().(type) {
	case *streamv1.Terminal_Fail:
		return nil
	case *streamv1.Terminal_End:
		if _, known := endStatus[outcome.End.GetStatus()]; !known {
			return chunkInvalid("terminal.end.status is missing or unknown")
		}
		return nil
	}
	return chunkInvalid("terminal says neither end nor fail")
}

// cursorOf checks a position in a stream: Invalid (CURSOR_INVALID).
func cursorOf(name string, sequence int64) (uint64, error) {
	if sequence < 0 {
		return 0, fault.New(fault.Invalid, "CURSOR_INVALID", "%s is %d; it is 0 or more", name, sequence)
	}
	return uint64(sequence), nil
}

// checkRun checks the id of a run that may be left out: Invalid (ID_INVALID).
func checkRun(id string) error {
	if id == "" {
		return nil
	}
	return checkID("run_id", id)
}

// scopeOf checks what a reader wants to read: Invalid (ID_INVALID).
func scopeOf(ref *streamv1.StreamRef, family bool) (bus.Scope, error) {
	stream, err := streamOf(ref)
	if err != nil {
		return bus.Scope{}, err
	}
	if family && stream.Session != stream.Root {
		return bus.Scope{}, fault.New(fault.Invalid, "ID_INVALID", "a family is read from its root: session_id and root_session_id differ")
	}
	return bus.Scope{Stream: stream, Family: family}, nil
}
