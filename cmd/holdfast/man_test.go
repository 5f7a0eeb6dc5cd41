package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestEachCommandHasAPageOfMan(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pages")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"man", folder}, nil, &out, io.Discard); err != nil || !strings.Contains(out.String(), folder) {
		t.Fatalf("%v, %s", err, out.String())
	}
	for name, wants := range map[string][]string{
		"holdfast.1":              {`.TH "HOLDFAST" 1`, ".SH NAME\nholdfast \\- ", "\\fBholdfast\\-agents\\fP(1)"},
		"holdfast-agents-check.1": {`\fBholdfast agents check FILE… [flags]\fP`, "\n.TP\n\\fB\\-\\-endpoint\\fP \\fI", "Each mistake has a line", "\\fBholdfast\\-agents\\fP(1)"},
	} {
		page, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s is\n%s\nwant %q in it", name, page, want)
			}
		}
	}
	pages, err := os.ReadDir(folder)
	if err != nil || len(pages) < 30 {
		t.Errorf("%d pages, %v, want one for each command", len(pages), err)
	}
}

func TestNoTextIsARequestOfRoff(t *testing.T) {
	t.Parallel()
	c := &cobra.Command{Use: "x", Short: "Does", Long: ".so /etc/passwd\n\n'quoted' C:\\path -x", Run: func(*cobra.Command, []string) {}}
	page := manPage(c)
	if want := ".SH DESCRIPTION\n\\&.so /etc/passwd\n.PP\n\\&'quoted' C:\\epath \\-x\n"; !strings.Contains(page, want) {
		t.Errorf("the page is\n%s\nwant %q in it", page, want)
	}
}
