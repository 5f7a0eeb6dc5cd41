package endpoint_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

var (
	kills      = flag.Int("endpoint.kills", 40, "how often an app or an executor is killed or the network is cut, in all languages together")
	killWindow = flag.Duration("endpoint.window", 20*time.Second, "how long that may take; 0 for as long as it takes")
	killSeed   = flag.Uint64("endpoint.seed", 0, "where they are killed; 0 takes a seed from the clock")
)

// fewestKills is the least number of kills of one language, regardless of time.
const fewestKills = 6

// crashed is a system whose app and executors die, and whose network breaks.
type crashed struct {
	*world
	app       *harness.Process
	executors []*harness.Process
	network   *cutter
}

// startCrashed starts a system with an app of the language behind a proxy, and executors of their own.
func startCrashed(t *testing.T, app appOf, executors int, env ...string) *crashed {
	t.Helper()
	c := &crashed{world: newWorld(t)}
	c.join(harness.Serve(t, []string{"state", "stream", "gateway"},
		"HOLDFAST_STATE_SILENT_AFTER=1500ms", "HOLDFAST_STATE_SWEEP_EVERY=200ms"))
	c.app = app(t, c.outside, newSecret)
	c.network = startCutter(t, c.app.Address)
	for i := range executors {
		name, path, args := fmt.Sprintf("executor-%d", i), harness.Binary(t, "holdfast"), []string{"serve", "--services", "executor"}
		p := c.served.Join(name, path, args, append([]string{
			c.modelEnv(t), "HOLDFAST_EXECUTOR_LISTEN=" + harness.FreeAddress(t),
			"HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=250ms", "HOLDFAST_EXECUTOR_MAX_LOSSES=1000000",
			"HOLDFAST_EXECUTOR_ENDPOINTS=" + c.network.URL + endpointPath, "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS=" + newSecret,
		}, env...)...)
		p.Start()
		c.executors = append(c.executors, p)
	}
	c.served.WaitAgent(t, "methodical")
	return c
}

// ledgered is a call of a session with an effect in the ledger.
type ledgered struct{ tool, label string }

// crashScript is a conversation with calls of every rule for repetitions, and what they do in the ledger.
func crashScript() (turns []turn, all []ledgered) {
	step := 0
	one := func(tool string) call {
		label := fmt.Sprintf("%s %d", tool, len(all)+1)
		all = append(all, ledgered{tool, label})
		return using(
			tool, emit("begun", label), pay(label), emitID("bar", label, 1), usage("calls", tool, 1),
			set(fmt.Sprintf("key%d", len(all)), label), give(label),
		)
	}
	reply := func(calls ...call) {
		step++
		turns = append(turns, turn{calls: calls})
	}
	reply(one("act"), one("act_safe"), one("act_read"))
	reply(one("act_read"), one("act_read"))
	reply(one("act"))
	reply(one("act_safe"), one("act_safe"))
	return append(turns, say("All is done.")), all
}

// TestTheOutsideWorldSeesEachEffectAsItsToolDeclares kills the app, kills executors and breaks the network while sessions
// converse, and then compares every call with the ledger.
func TestTheOutsideWorldSeesEachEffectAsItsToolDeclares(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tormented := &torment{T: t, crashed: startCrashed(t, app, 3), want: (*kills + len(endpointApps) - 1) / len(endpointApps)}
			tormented.run()
		})
	}
}

// torment is one execution of the test for one language.
type torment struct {
	*testing.T
	*crashed
	want int // kills

	random *rand.Rand // of the goroutine that kills
	over   atomic.Bool
	mu     sync.Mutex
	done   []string // sessions
	counts map[string]int
}

// converse plays one session to its end.
func (l *torment) converse(ctx context.Context, session string, turns []turn) error {
	l.model.Write(session, turns)
	request := &agentv1.StartRequest{SessionId: session, AgentType: "puppet", Message: "[" + session + "]", RequestKey: session}
	answer, err := l.client.Ask(ctx, request)
	switch {
	case err != nil:
		return err
	case answer.Text != "All is done.":
		return fmt.Errorf("the answer is %q", answer.Text)
	}
	return nil
}

// run torments the system, and checks what is left.
func (l *torment) run() {
	seed := cmp.Or(*killSeed, uint64(time.Now().UnixNano()))
	l.Logf("the seed is %d: -endpoint.seed=%[1]d", seed)
	l.random = rand.New(rand.NewPCG(seed, 1))
	l.counts = map[string]int{}
	l.lag.Store(int64(30 * time.Millisecond))
	turns, all := crashScript()
	ctx, cancel := context.WithTimeout(l.Context(), max(*killWindow, time.Duration(l.want)*20*time.Second)+2*patience)
	defer cancel()
	var talking sync.WaitGroup
	for i := range 8 {
		talking.Go(func() {
			for n := 0; !l.over.Load(); n++ {
				session := fmt.Sprintf("torment-%d-%d", i, n)
				if err := l.converse(ctx, session, turns); err != nil {
					l.Errorf("session %s: %v", session, err)
					return
				}
				l.mu.Lock()
				l.done = append(l.done, session)
				l.mu.Unlock()
			}
		})
	}
	begin := time.Now()
	for n := 0; n < l.want && (*killWindow == 0 || time.Since(begin) < *killWindow || n < fewestKills); n++ {
		l.kill()
	}
	l.over.Store(true)
	talking.Wait()
	l.report(all)
}

// kill does one of the three after the next effect, maybe a moment later.
func (l *torment) kill() {
	posts := l.count()
	passes := 1 + l.random.IntN(3)
	l.await(l.T, "an effect", func() bool { return l.count() >= posts+passes })
	select {
	case <-time.After(time.Duration(l.random.IntN(20)) * time.Millisecond):
	case <-l.Context().Done():
	}
	switch l.random.IntN(3) {
	case 0:
		l.counts["app"]++
		l.app.Restart()
	case 1:
		l.counts["executor"]++
		l.executors[l.random.IntN(len(l.executors))].Restart()
	default:
		l.counts["network"]++
		l.network.CutAll()
	}
}

// count returns the number of effects so far.
func (o *outside) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.posts)
}

// report compares every call with the ledger, and prints totals.
func (l *torment) report(all []ledgered) {
	var calls, uncertain, without, again, wrong int
	for _, session := range l.done {
		p := &talk{TB: l.T, world: l.world, ctx: l.Context(), session: session}
		outcomes := p.outcomes()
		if len(outcomes) != len(all) {
			l.Errorf("session %s has %d results, want %d:\n%s", session, len(outcomes), len(all), p.transcript())
			continue
		}
		for i, c := range all {
			calls++
			posts := l.Posts(session + "/" + c.label)
			again += max(len(posts)-1, 0)
			if unknown(outcomes[i]) {
				uncertain++
				if len(posts) == 0 {
					without++
				}
			}
			if unknown(outcomes[i]) && repeatable(c.tool) && p.took(outcomes[i].id) >= cutPatience {
				continue // it was cut again and again for so long
			}
			if problem := judge(c.tool, outcomes[i], posts); problem != "" {
				wrong++
				l.Errorf("session %s, %s: %s; the result is %+v and the ledger has %v", session, c.label, problem, outcomes[i], posts)
			}
		}
	}
	l.Logf("%d kills (%v), %d sessions, %d calls: %d reported as unknown (%d of them had no effect), "+
		"%d posts again under the same key, %d wrong", total(l.counts), l.counts, len(l.done), calls, uncertain, without, again, wrong)
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// cutPatience is how long the executor repeats a call whose answers are cut.
const cutPatience = time.Minute

// took returns the time from the begin of a call to its end.
func (p *talk) took(callID string) time.Duration {
	p.Helper()
	var begin, end int64
	for _, f := range p.frames() {
		c := f.GetChunk().GetChunk()
		if c.GetToolStart().GetToolCallId() == callID {
			begin = c.GetTimestamp()
		}
		if c.GetToolEnd().GetToolCallId() == callID {
			end = c.GetTimestamp()
		}
	}
	return time.Duration(end-begin) * time.Millisecond
}

// outcome is the end of a call as clients see it.
type outcome struct {
	id      string
	success bool
	result  string
	failure string
}

// unknown reports whether a failed result says that the effect is unknown.
func unknown(o outcome) bool { return strings.Contains(o.failure, "not known") }

// outcomes returns the ends of the calls of the session, in the order of the calls.
func (p *talk) outcomes() []outcome {
	p.Helper()
	var ids []string
	ends := map[string]outcome{}
	for m, err := range p.client.Messages(p.ctx, p.session) {
		if err != nil {
			p.Fatalf("list the messages of %s: %v", p.session, err)
		}
		for _, part := range m.GetParts() {
			if c := part.GetToolCall(); c != nil {
				ids = append(ids, c.GetToolCallId())
			}
			if r := part.GetToolResult(); r != nil {
				ends[r.GetToolCallId()] = outcome{r.GetToolCallId(), r.GetSuccess(), r.GetResult(), r.GetError()}
			}
		}
	}
	var list []outcome
	for _, id := range ids {
		if end, ok := ends[id]; ok {
			list = append(list, end)
		}
	}
	return list
}

// repeatable reports whether calls of the tool may run again.
func repeatable(tool string) bool { return tool == "act_safe" || tool == "act_read" }

// judge compares the end of a call with the ledger, and describes a contradiction; "" for none.
func judge(tool string, o outcome, posts []post) string {
	keys := map[string]bool{}
	for _, p := range posts {
		keys[p.Key] = true
	}
	switch {
	case keys[""]:
		return "it came without a key"
	case tool != "act_read" && len(keys) > 1: // a step of read-only calls may be planned again
		return "it came under several keys"
	case !repeatable(tool) && len(posts) > 1:
		return "it was done again, and must not"
	case o.success && len(posts) == 0:
		return "the conversation says that it was done, and it was not"
	case repeatable(tool) && !o.success:
		return "it may run again, and has no result"
	case !o.success && !unknown(o):
		return "it failed for another reason"
	}
	return ""
}

// TestACallIsCutAtEveryPoint breaks the network at each point of a call, for each rule for repetitions.
func TestACallIsCutAtEveryPoint(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCrashed(t, app, 1)
			for _, at := range points() {
				for _, tool := range []string{"act", "act_safe", "act_read"} {
					t.Run(at.name+"/"+tool, func(t *testing.T) {
						t.Parallel()
						c.cutAt(t, at, tool)
					})
				}
			}
		})
	}
}

// cutAt plays a session whose only call is cut at the point.
func (c *crashed) cutAt(t *testing.T, at point, tool string) {
	session := strings.ReplaceAll(at.name+"-"+tool, " ", "_")
	label := "paid in " + session
	c.network.Plan(sessionLabel(session, label), at)
	paying := using(tool, emit("first", 1), pay(label), emit("second", 2), emit("third", 3), usage("calls", tool, 1), give("paid"))
	c.model.Write(session, []turn{calls(paying), say("All is done.")})
	p := &talk{TB: t, world: c.world, ctx: t.Context(), session: session, agent: "puppet"}
	p.send(&agentv1.StartRequest{}, "")
	p.wait()
	if n := c.network.Cuts(sessionLabel(session, label)); n != 1 {
		t.Fatalf("the call was cut %d times, want once\n%s", n, p.transcript())
	}
	outcomes := p.outcomes()
	if len(outcomes) != 1 {
		t.Fatalf("there are %d results, want 1\n%s", len(outcomes), p.transcript())
	}
	posts := c.Posts(session + "/" + label)
	if problem := judge(tool, outcomes[0], posts); problem != "" {
		t.Errorf("%s; the result is %+v and the ledger has %v", problem, outcomes[0], posts)
	}
	if tool == "act" && outcomes[0].success != at.known {
		t.Errorf("the result is %+v, want a success: %v", outcomes[0], at.known)
	}
	if at.sent != all && tool == "act" && len(posts) != 0 {
		t.Errorf("the ledger has %v, but the app has not received the request", posts)
	}
	if lines := at.lines; tool == "act" && lines >= 2 && len(posts) != 1 {
		t.Errorf("the ledger has %v, want the effect of a call that had sent %d lines", posts, lines)
	}
	if tool == "act_safe" && !at.known && at.lines >= 2 && len(posts) != 2 {
		t.Errorf("the ledger has %v, want two under one key", posts)
	}
	p.checkOnce("first", "second", "third")
}

// sessionLabel is the text of an effect in a request.
func sessionLabel(session, label string) string { return session + "/" + label }

// checkOnce checks that no event is in the conversation twice.
func (p *talk) checkOnce(names ...string) {
	p.Helper()
	counts := map[string]int{}
	for _, f := range p.frames() {
		counts[f.GetChunk().GetChunk().GetCustom().GetEventName()]++
	}
	for _, name := range names {
		if counts[name] > 2 { // an event may be sent again with its call
			p.Errorf("the event %s is there %d times", name, counts[name])
		}
	}
}

// TestAnAppThatIsDownDelaysItsRuns kills the app before a call, and starts it again later: nothing is lost and nothing fails.
func TestAnAppThatIsDownDelaysItsRuns(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDirect(t, app)
			c.app.Kill()
			turns, all := crashScript()
			l := &torment{T: t, crashed: c, counts: map[string]int{}, done: []string{"down"}}
			asking := make(chan error, 1)
			go func() { asking <- l.converse(t.Context(), "down", turns) }() // received below
			harness.WaitFor(t, patience, "the first call of the model", func() (bool, string) { return len(c.model.Asked("down")) > 0, "" })
			harness.WaitFor(t, patience, "a call that waits", func() (bool, string) {
				return strings.Contains(c.served.Log(), "a call waits for its endpoint"), "no such line in the log"
			})
			c.app.Start()
			if err := <-asking; err != nil {
				t.Fatal(err)
			}
			p := &talk{TB: t, world: c.world, ctx: t.Context(), session: "down"}
			for i, o := range p.outcomes() {
				if posts := c.Posts("down/" + all[i].label); !o.success || len(posts) != 1 {
					t.Errorf("%s: the result is %+v and the ledger has %v, want a success with one effect", all[i].label, o, posts)
				}
			}
		})
	}
}

// TestAFrozenAppIsNoDeadApp freezes the app within calls: one continues when it thaws, another has run out of time by then.
func TestAFrozenAppIsNoDeadApp(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDirect(t, app)
			patient := c.begin(t, scenario{name: "patient", agent: "puppet", model: []turn{calls(act(wait("frozen"), pay("patient"))), say("ok")}})
			hurry := using("act_quick", wait("frozen"), pay("quick"))
			quick := c.begin(t, scenario{name: "quick", agent: "puppet", model: []turn{calls(hurry), say("ok")}})
			arrive("frozen")(patient)
			arrive("frozen")(quick)
			c.app.Freeze()
			quick.wait()
			c.Open(patient.session + "/frozen")
			c.app.Thaw()
			patient.wait()
			if got, want := patient.transcript(), "act: \"done\"\nsays \"ok\"\ncompleted \"ok\"\neffect patient"; got != want {
				t.Errorf("the patient call: got\n%s\nwant\n%s", indent(got), indent(want))
			}
			want := "act_quick fails: the tool did not end within 3s; it is not known whether it took effect\nsays \"ok\"\ncompleted \"ok\""
			if got := quick.transcript(); got != want {
				t.Errorf("the quick call: got\n%s\nwant\n%s", indent(got), indent(want))
			}
		})
	}
}

// startDirect starts a system whose executor calls the app without a proxy.
func startDirect(t *testing.T, app appOf) *crashed {
	t.Helper()
	c := &crashed{world: newWorld(t)}
	c.app = app(t, c.outside, newSecret)
	c.serveEndpoint(t, "http://"+c.app.Address+endpointPath)
	c.served.WaitAgent(t, "methodical")
	return c
}
