package pattern_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/pattern"
)

// budget pays for so many steps.
func budget(steps int) func() bool {
	return func() bool {
		steps -= 256
		return steps > 0
	}
}

func TestPatternsMatchAsTheStandardSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		yes, no string // texts, separated by |
	}{
		{`^[a-z]+$`, `a|abc`, `|A|ab1|ab` + "\n"},
		{`b`, `b|abc`, `|a`},
		{`^(?:a|bc)*d?$`, `|a|abcad|bc`, `b|dd`},
		{`^.{1,2000}$`, `a`, "|a\n|a\u2028"},
		{`^a.c$`, `abc|a😀c`, "ac|a\rc"},
		{`^(?!.*\.\.)[\w./-]+(?<!\.lock)$`, `feature/a.b`, `a..b|a.lock`},
		{`^(?=.*\d)(?=.*[a-z]).{3,}$`, `ab1`, `abc|123|a1`},
		{`^(?=(a+))\1b$`, `aab`, `b`},
		{`(?<=\$)\d+`, `$5`, `5|€5`},
		{`(?<!\$)\b\d+`, `5`, `$5`},
		{`(?<=a(?:bc)?)d`, `ad|abcd`, `d|bcd`},
		{`^(?<year>\d{4})-\k<year>$`, `2026-2026`, `2026-2025`},
		{`^(a|b)\1$`, `aa|bb`, `ab`},
		{`^(?:a?)*b$`, `b|aab`, `a`},
		{`^(?:(?:a*)*)*$`, `|aaaa`, `b`},
		{`^(?:a*?)+c$`, `c|aac`, `b`},
		{`^(|a)+\1b$`, `b|aab`, `ab|c`},
		{`^\u{1F600}\u00e9\x41\cA\0$`, "😀éA\x01\x00", `x`},
		{`^\ud83d\ude00$`, `😀`, `x`},
		{`^[\u{1F600}-\u{1F64F}]$`, `😁`, `a`},
		{`^\p{L}\p{Lu}\P{L}\p{Script=Greek}\p{Letter}\p{Alphabetic}$`, `aB1αxé`, `a`},
		{`^\s$`, "\u00a0|\ufeff|\v|\t|\u2028", `a`},
		{`^\S\d\D\w\W$`, `a1aa-`, `a1aaa|a٣aa-`},
		{`^[^\d\s]+[\D]$`, `ab`, `a1`},
		{`^[\w\-.]+$`, `a-b.c`, `a b`},
		{`^[^]$`, "\n|a", ``},
		{`^[]$`, ``, `a`},
		{`[]`, ``, `|a`},
		{`\bfoo\b`, `a foo b|foo`, `foobar`},
		{`a\Bb`, `ab`, `a b`},
		{`^a\/b\:$`, `a/b:`, `ab`},
		{`^a{,2}{$`, `a{,2}{`, `aa`},
		{`^(?:ab){2,3}?$`, `abab|ababab`, `ab|abababab`},
		{`^$`, ``, `a`},
		{`x*`, `|y`, ``},
		{`^(?:)$`, ``, `a`},
		{`a|^b|c$`, `xa|bx|xc`, `xb|cx`},
	} {
		p, err := pattern.Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, texts := range []struct {
			list string
			want bool
		}{{c.yes, true}, {c.no, false}} {
			if texts.list == "" && (c.yes == "" && texts.want && c.pattern != `^$` && c.pattern != `^(?:)$` || c.no == "" && !texts.want) {
				continue
			}
			for text := range strings.SplitSeq(texts.list, "|") {
				if got, ok := p.Match(text, budget(100_000)); got != texts.want || !ok {
					t.Errorf("%s on %q: got %v, %v, want %v", c.pattern, text, got, ok, texts.want)
				}
			}
		}
	}
}

func TestWhatIsNoPatternIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`(`, `)`, `(?<a`, `(?<1>a)`, `(?<a>x)(?<a>y)`, `[`, `[b-a]`, `*`, `a**`, `\`, `(?i:a)`, `(?#)`, `\2(a)`, `\k<b>(?<a>x)`, `^*`, `(?<=a)*`, `a{2,1}`,
		`\p{Nothing}`, strings.Repeat("(", 200) + strings.Repeat(")", 200), `(?:a{1000}){1000}`, `a{99999999999999999999}`,
	} {
		if p, err := pattern.Compile(text); err == nil {
			t.Errorf("%.40s: got a pattern of %d instructions, want an error", text, p.Size())
		}
	}
	for _, text := range []string{`\A`, `a{`, `}`, `]`, `\_`, `[\d-z]`, `(?=a)*`, `\p`} {
		if _, err := pattern.CompileStrict(text); err == nil {
			t.Errorf("%s: got a pattern of the Unicode mode, want an error", text)
		}
		if _, err := pattern.Compile(text); err != nil {
			t.Errorf("%s: %v, want what Annex B allows", text, err)
		}
	}
}

func TestAHostilePatternEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 30_000)
	for _, c := range []struct {
		pattern, text string
		ends          bool // within the budget
	}{
		{`^(a+)+$`, strings.Repeat("a", 1000) + "b", true},
		{`^(a|aa)+$`, strings.Repeat("a", 1000) + "b", true},
		{`^(a|a)*$`, strings.Repeat("a", 1000) + "b", true},
		{`^(([a-z])+.)+[A-Z]([a-z])+$`, strings.Repeat("a", 1000), true},
		{`(x+x+)+y`, strings.Repeat("x", 1000), true},
		{`^(?:.*a){20}$`, strings.Repeat("a", 500) + "b", true},
		{`^(a+)+\1$`, strings.Repeat("a", 40) + "b", false},
		{`(?=.*b)`, long, true},
		{`(?=(?=.*b)|a)*x`, long, false},
		{`(?:a{100}){100}b`, long + long + long, false},
	} {
		p, err := pattern.Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		const steps = 3_000_000
		spent := 0
		found, ok := p.Match(c.text, func() bool {
			spent += 256
			return spent < steps
		})
		if found || ok != c.ends || spent > steps+256 {
			t.Errorf("%s: got %v, %v after %d steps, want no match and %v", c.pattern, found, ok, spent, c.ends)
		}
	}
}
