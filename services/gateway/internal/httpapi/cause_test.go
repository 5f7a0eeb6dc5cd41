package httpapi

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestARefusedRequestSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", maxCause)
	for name, test := range map[string]struct {
		given error
		want  string
	}{
		"a cause":          {fault.New(fault.Invalid, "ON_BUSY_INVALID", "onBusy is %q: it must be reject", "x"), `The request is not valid: onBusy is "x": it must be reject.`},
		"no cause":         {&fault.Fault{Kind: fault.Invalid, Reason: "X"}, "The request is not valid."},
		"a limit":          {fault.New(fault.TooLarge, "TOO_MANY_PARTS", "the messages have more than 3 parts"), "The request is too large: the messages have more than 3 parts."},
		"a long cause":     {fault.New(fault.Invalid, "X", "%s", "a"+long), "The request is not valid: a" + long[:maxCause-2] + "…"},
		"a known reason":   {fault.New(fault.Invalid, "FILE_INVALID", "a file part needs a mediaType"), "The file cannot be read: a file part needs a mediaType."},
		"a missing right":  {fault.New(fault.Denied, "SCOPE_MISSING", "the key lacks the scope operate"), "This is not allowed: the key lacks the scope operate."},
		"a whole sentence": {fault.New(fault.Conflict, "SESSION_BUSY", "session s1 has the live run r1"), "This conversation is still answering the last message."},
		"internal failure": {fault.New(fault.Internal, "X", "secret"), "Something went wrong on our side."},
	} {
		if got, _, _ := ErrorTexts(test.given); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
