package schema_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
)

// Not parallel: allocations of other tests would count.
func TestManySchemasBelowALongNameTakeNoMoreThanTheirText(t *testing.T) {
	var text strings.Builder
	fmt.Fprintf(&text, `{"properties":{%q:{"properties":{"p0":{}`, strings.Repeat("n", 50_000))
	for i := 1; i < 4000; i++ {
		fmt.Fprintf(&text, `,"p%d":{}`, i)
	}
	text.WriteString(`}}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	compiled, err := schema.Compile([]byte(text.String()))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("a schema of %d bytes takes %d bytes to compile", text.Len(), took)
	}
	runtime.KeepAlive(compiled)
}
