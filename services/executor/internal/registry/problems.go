package registry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
)

// Problem is a part out of service or incomplete.
type Problem = catalog.Problem

// Problems returns the broken parts of the agents in files, sorted.
func (r *Registry) Problems() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	var problems []Problem
	for _, p := range slices.Concat(r.ownProblems(), r.endpointProblems(), r.serverProblems()) {
		problems = append(problems, Problem{Kind: p.Kind, Name: p.Name, Agent: p.Agent, Text: p.Text})
	}
	return problems
}

// Diagnose returns the problems for the author of the files, one text for each. It adds what the processes of MCP servers
// have written, which may have secrets, and what has no effect.
func (r *Registry) Diagnose() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, p := range slices.Concat(r.ownProblems(), r.endpointProblems(), r.serverProblems()) {
		text := p.Text
		if p.Output != "" {
			text += fmt.Sprintf("; its standard error ends with %q", p.Output)
		}
		texts = append(texts, strings.Split(text, "\n")...)
	}
	if r.used != nil {
		for _, a := range r.used.list {
			texts = append(texts, a.UnusedOptions()...)
		}
	}
	return texts
}

// Operation is a tool that was made of an operation in an OpenAPI document.
type Operation = agents.Operation

// Operations returns the tools of OpenAPI documents, each once, in the order of the documents.
func (r *Registry) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		return nil
	}
	var list []Operation
	seen := map[Operation]bool{}
	for _, o := range r.used.operations {
		if !seen[o] {
			list = append(list, o)
		}
		seen[o] = true
	}
	return list
}

// ownProblems returns the problems of the files and of their agents. The caller holds mu.
func (r *Registry) ownProblems() []agents.Problem {
	if r.used == nil {
		return nil
	}
	problems := slices.Clone(r.used.problems)
	for _, a := range r.used.list {
		problems = append(problems, a.Problems()...)
	}
	return sorted(problems)
}

// endpointProblems returns the endpoints that do not describe their agents. The caller holds mu.
func (r *Registry) endpointProblems() []agents.Problem {
	if r.used == nil {
		return nil
	}
	var problems []agents.Problem
	for _, e := range r.used.endpoints {
		if text := e.problem(); text != "" {
			problems = append(problems, agents.Problem{Part: agents.Part{Kind: agents.EndpointPart, Name: e.client.Name()}, Text: text})
		}
	}
	return sorted(problems)
}

// serverProblems returns the problems of MCP servers and their tools. The caller holds mu.
func (r *Registry) serverProblems() []agents.Problem {
	if r.used == nil {
		return nil
	}
	var problems []agents.Problem
	for _, s := range r.used.servers {
		for _, p := range s.Problems() {
			one := agents.Problem{Part: agents.Part{Kind: agents.ServerPart, Name: s.Name()}, Text: p.Text, Output: p.Output}
			if p.Tool != "" {
				one.Part = agents.Part{Kind: agents.ToolPart, Name: s.Name() + "/" + p.Tool}
				one.Text = fmt.Sprintf("the tool %q of the MCP server %q: %s", p.Tool, s.Name(), p.Text)
			}
			problems = append(problems, one)
		}
	}
	return sorted(problems)
}

func sorted(problems []agents.Problem) []agents.Problem {
	slices.SortStableFunc(problems, func(a, b agents.Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(problems)
}

// report logs each problem of the files once, and its end. MCP servers log their own.
func (r *Registry) report(ctx context.Context, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[agents.Problem]bool{}
	for _, p := range r.ownProblems() {
		now[p] = true
		if !r.reported[p] {
			log.WarnContext(ctx, "a part of the agents is out of service", "kind", p.Kind, "name", p.Name, "agent", p.Agent, "error", p.Text)
		}
	}
	if len(r.reported) > 0 && len(now) == 0 {
		log.InfoContext(ctx, "all parts of the agents are in service again")
	}
	r.reported = now
}

// serve serves the agents of files, and returns the set that it replaces. An agent with a mistake keeps its former
// definition, and so do the agents of a file that cannot be read. Mistakes are returned if there is no agent at all
// otherwise. TooLarge (TOO_MANY_AGENTS).
func (r *Registry) serve(set *Agents, mistakes error) (former *Agents, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set.fit(maxAgents-r.countInGo(), r.used)
	if r.used != nil {
		set.keep(r.used)
		set.fit(maxAgents-r.countInGo(), r.used) // former definitions count too
	}
	set.list = slices.DeleteFunc(set.list, func(a agents.Agent) bool {
		e, ok := r.entries[a.Name]
		inGo := ok && e.yaml == nil
		if inGo {
			set.problems = append(set.problems, agents.Problem{
				Part: agents.Part{Kind: agents.AgentPart, Name: a.Name},
				Text: fmt.Sprintf("%s: the agent %q is registered in Go too (AGENT_EXISTS); rename one", a.File, a.Name),
			})
		}
		return inGo
	})
	if r.countInGo()+len(set.list) == 0 && mistakes != nil && len(set.endpoints) == 0 { // an endpoint may have agents later
		return nil, mistakes
	}
	return r.replace(set)
}

// fit leaves out whole endpoints while there are more agents than the limit, those first that the former set did not have. Agents of
// files always stay.
func (a *Agents) fit(limit int, former *Agents) {
	count := map[string]int{} // agents by file or endpoint
	for _, one := range a.list {
		count[one.File]++
	}
	var described []string
	left := limit - len(a.list)
	for _, e := range a.endpoints {
		if name := e.client.Name(); !slices.Contains(described, name) {
			described = append(described, name)
			left += count[name]
		}
	}
	isNew := func(name string) int {
		if former != nil && slices.ContainsFunc(former.list, func(old agents.Agent) bool { return old.File == name }) {
			return 0
		}
		return 1
	}
	slices.SortFunc(described, func(a, b string) int { return cmp.Or(isNew(a)-isNew(b), cmp.Compare(a, b)) })
	for _, name := range described {
		if left >= count[name] {
			left -= count[name]
			continue
		}
		a.list = slices.DeleteFunc(a.list, func(one agents.Agent) bool { return one.File == name })
		a.unread = append(a.unread, name)
		a.problems = append(a.problems, agents.Problem{
			Part: agents.Part{Kind: agents.EndpointPart, Name: name},
			Text: fmt.Sprintf("its %d agents are left out: one executor serves at most %d; "+
				"spread the endpoints over several executors (TOO_MANY_AGENTS)", count[name], maxAgents),
		})
	}
}

// keep takes over the former definitions of agents with a mistake, and of unreadable files.
func (a *Agents) keep(former *Agents) {
	for _, old := range former.list {
		i := slices.IndexFunc(a.list, func(a agents.Agent) bool { return a.Name == old.Name })
		lost := i < 0 && slices.Contains(a.unread, old.File)
		if !a.incomplete[old.Name] && !lost {
			continue
		}
		if i < 0 {
			a.list = append(a.list, old)
		} else {
			a.list[i] = old
		}
		for _, s := range old.Servers() {
			if s, ok := s.(*lease); ok && !slices.Contains(a.servers, s) {
				s.retain()
				a.servers = append(a.servers, s)
			}
		}
		for i := range a.problems {
			p := &a.problems[i]
			isAgents := p.Kind == agents.AgentPart && p.Name == old.Name || p.Agent == old.Name
			if isAgents || p.Kind == agents.FilePart && p.Name == old.File {
				p.Text += fmt.Sprintf("\nthe former definition of the agent %q is served", old.Name)
			}
		}
	}
	sortByName(a.list)
}
