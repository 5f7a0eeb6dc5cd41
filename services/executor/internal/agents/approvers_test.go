package agents

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

func TestAToolSaysWhoMayApproveItsCalls(t *testing.T) {
	t.Parallel()
	const declared = "tools:\n  - name: pay\n    description: Pays.\n    inputSchema: {type: object, properties: {n: {type: integer}}}\n    http: {url: 'http://127.0.0.1/pay'}\n    %\n" +
		"agents: [{name: a, model: mine/x, tools: [{use: pay, &}]}]\n"
	for _, tt := range []struct {
		declared, use string
		want          agent.ApproverRule
		mistake       string
	}{
		{"approval: always", "", agent.Anyone, ""},
		{"approval: always\n    approvers: any", "", agent.Anyone, ""},
		{"approval: always\n    approvers: others", "", agent.Others, ""},
		{"approval: {when: [{field: n, greaterThan: 1}]}\n    approvers: others", "", agent.Others, ""},
		{"approval: always\n    approvers: others", "timeout: 10s", agent.Others, ""},
		{"approval: always\n    approvers: others", "approvers: any", agent.Anyone, ""},
		{"approval: always\n    approvers: others", "approval: never", agent.Anyone, ""},
		{"approval: always", "approvers: others", agent.Others, ""},
		{"approval: always\n    approvers: other", "", "", "any, others"},
		{"approvers: others", "", "", "no approval"},
	} {
		text := strings.NewReplacer("%", tt.declared, ", &", strings.TrimRight(", "+tt.use, ", ")).Replace(declared)
		known := testKnown()
		known.HTTP.Policy.Hosts = []string{"127.0.0.1"}
		set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, known)
		if tt.mistake != "" {
			if err == nil || !strings.Contains(err.Error(), tt.mistake) {
				t.Errorf("%+v: got %v, want a mistake", tt, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: got %v", tt, err)
			continue
		}
		if got := set.Agents[0].Tools[0].Approvers; got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}
