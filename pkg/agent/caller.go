package agent

import (
	"fmt"
	"strings"
)

// Limits of what a caller brings to a turn.
const (
	// DefaultMaxCallerTools limits the tools of a turn if CallerTools.Max is 0.
	DefaultMaxCallerTools = 16
	// MaxCallerTools is the largest CallerTools.Max.
	MaxCallerTools = 128
	// MaxCallerInstructions is the largest text of instructions, in bytes.
	MaxCallerInstructions = 16 << 10
	// MaxCallerInput limits the tools and the instructions together, in bytes.
	MaxCallerInput = 64 << 10
)

// CallerTools permits callers to bring tools: see Agent.CallerTools.
type CallerTools struct {
	// Allow has patterns of the permitted names, in which * stands for any characters. At least one;
	// []string{"*"} permits every name.
	Allow []string
	// Max limits the tools of a turn, up to MaxCallerTools; 0 means DefaultMaxCallerTools.
	Max int
}

// maxCallerPatterns limits CallerTools.Allow.
const maxCallerPatterns = 100

// CallerToolProblems returns the problems of the tools that a caller brings.
func CallerToolProblems(tools []Tool) []Problem {
	var p problems
	Agent{Tools: tools}.checkTools(&p)
	return p
}

// checkCaller checks what the agent permits to callers.
func (a Agent) checkCaller(p *problems) {
	if a.Remote != nil && (a.CallerTools != nil || a.CallerInstructions) {
		p.add("callerTools", "an agent with remote takes neither tools nor instructions of callers")
		return
	}
	c := a.CallerTools
	if c == nil {
		return
	}
	p.checkRange("callerTools.max", c.Max, MaxCallerTools)
	if n := len(c.Allow); n == 0 || n > maxCallerPatterns {
		p.add("callerTools.allow", "there are %d patterns; 1 to %d are allowed, and * permits every name", n, maxCallerPatterns)
		return
	}
	for i, pattern := range c.Allow {
		name := strings.ReplaceAll(pattern, "*", "")
		if pattern == "" || len(pattern) > maxToolName || strings.ContainsFunc(name, isInvalidInToolName) {
			p.add(fmt.Sprintf("callerTools.allow[%d]", i), "%.80q must have 1 to %d characters of A-Z a-z 0-9 _ - *", pattern, maxToolName)
		}
	}
}
