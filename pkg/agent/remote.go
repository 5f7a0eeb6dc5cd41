package agent

import "net/url"

// Remote is an agent of another Holdfast, behind its public API. An agent with Remote is a session here
// whose steps come from there: it can be a sub-agent, a companion or a root, and its stream, its
// messages and its stops are those of any agent. Its tools run there. A tool there that waits for a
// client or for an approval waits for a client here.
//
// Its run fails with the code framework_subagent_lost if the other Holdfast does not know the session
// any more, refuses it, or cannot be reached for HOLDFAST_EXECUTOR_REMOTE_PATIENCE.
type Remote struct {
	// URL is the address of the other gateway, for example https://agents.example.com.
	URL string
	// Agent is the agent type there.
	Agent string
	// Key is an API key of the other gateway; empty for a gateway without keys.
	Key string
}

// checkRemote checks an agent whose steps come from elsewhere.
func (a Agent) checkRemote(p *problems) {
	if u, err := url.Parse(a.Remote.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		p.add("remote.url", "it is %q, and must be the http or https address of a gateway", a.Remote.URL)
	}
	if a.Remote.Agent == "" {
		p.add("remote.agent", "it is missing")
	}
	hasPrompt := a.SystemPrompt != "" || a.Prompt != nil || a.StepContext != nil
	hasSchema := a.OutputSchema != nil || a.StateSchema != nil
	if a.Model != "" || len(a.Fallbacks)+len(a.Tools)+len(a.Companions) > 0 || hasPrompt || hasSchema {
		p.add("remote", "an agent with remote has neither model, prompt, tools, companions nor schemas: the other agent has them")
	}
}
