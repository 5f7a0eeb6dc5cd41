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
		"a known reason":   {fault.New(fault.Invalid, "FILE_INVALID", "a file part needs a mediaType"), "The file cannot be read."},
		"internal failure": {fault.New(fault.Internal, "X", "secret"), "Something went wrong on our side."},
	} {
		if got, _, _ := ErrorTexts(test.given); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
