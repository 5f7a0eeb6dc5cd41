package webhook

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The example of the specification, which its reference libraries test too.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTime      = 1614265330
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func secret(t *testing.T, text string) Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// other returns another secret for each number.
func other(t *testing.T, number int) Secret {
	t.Helper()
	return secret(t, "whsec_"+base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%032d", number)))
}

func TestTheExampleOfTheSpecificationIsSigned(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	Sign(header, exampleID, time.Unix(exampleTime, 0), []byte(exampleBody), secret(t, exampleSecret))
	if got := header.Get("webhook-signature"); got != exampleSignature {
		t.Errorf("signature = %q, want %q", got, exampleSignature)
	}
	if header.Get("webhook-id") != exampleID || header.Get("webhook-timestamp") != strconv.Itoa(exampleTime) {
		t.Errorf("headers = %v", header)
	}
}

func TestARequestIsVerified(t *testing.T) {
	t.Parallel()
	now := time.Unix(exampleTime, 0)
	for name, test := range map[string]struct {
		change func(header http.Header, v *Verifier)
		body   string
		now    time.Time
		want   string // reason; empty for success
	}{
		"as it was sent":     {},
		"just in time":       {now: now.Add(Tolerance)},
		"just not too early": {now: now.Add(-Tolerance)},
		"too late":           {now: now.Add(Tolerance + time.Second), want: "TIMESTAMP_INVALID"},
		"too early":          {now: now.Add(-Tolerance - time.Second), want: "TIMESTAMP_INVALID"},
		"another body":       {body: `{"test": 1}`, want: "SIGNATURE_INVALID"},
		"another id":         {change: func(h http.Header, _ *Verifier) { h.Set(IDHeader, "msg_2") }, want: "SIGNATURE_INVALID"},
		"a long id":          {change: func(h http.Header, _ *Verifier) { h.Set(IDHeader, strings.Repeat("x", 65)) }, want: "SIGNATURE_INVALID"},
		"another time":       {change: func(h http.Header, _ *Verifier) { h.Set(TimestampHeader, "1614265331") }, want: "SIGNATURE_INVALID"},
		"no time":            {change: func(h http.Header, _ *Verifier) { h.Set(TimestampHeader, "soon") }, want: "TIMESTAMP_INVALID"},
		"no id":              {change: func(h http.Header, _ *Verifier) { h.Del(IDHeader) }, want: "SIGNATURE_MISSING"},
		"no timestamp":       {change: func(h http.Header, _ *Verifier) { h.Del(TimestampHeader) }, want: "SIGNATURE_MISSING"},
		"no signature":       {change: func(h http.Header, _ *Verifier) { h.Del(SignatureHeader) }, want: "SIGNATURE_MISSING"},
		"another version":    {change: func(h http.Header, _ *Verifier) { h.Set(SignatureHeader, "v2"+exampleSignature[2:]) }, want: "SIGNATURE_INVALID"},
		"one of several":     {change: func(h http.Header, _ *Verifier) { h.Set(SignatureHeader, "v1,AAAA v1a,BBBB "+exampleSignature) }},
		"a rotated secret":   {change: func(_ http.Header, v *Verifier) { v.Secrets = []Secret{other(t, 1), v.Secrets[0]} }},
		"an unknown secret":  {change: func(_ http.Header, v *Verifier) { v.Secrets = []Secret{other(t, 1)} }, want: "SIGNATURE_INVALID"},
		"a verifier without": {change: func(_ http.Header, v *Verifier) { v.Secrets = nil }, want: "SECRET_MISSING"},
		"too many signatures": {change: func(h http.Header, _ *Verifier) {
			h.Set(SignatureHeader, strings.Repeat("v1,AAAA ", 32)+exampleSignature)
		}, want: "SIGNATURE_INVALID"},
		"an unsigned timestamp": {change: func(h http.Header, _ *Verifier) { h.Set(TimestampHeader, "-1614265330") }, want: "TIMESTAMP_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			Sign(header, exampleID, now, []byte(exampleBody), secret(t, exampleSecret))
			v := Verifier{Secrets: []Secret{secret(t, exampleSecret)}}
			if test.change != nil {
				test.change(header, &v)
			}
			if test.body == "" {
				test.body = exampleBody
			}
			if test.now.IsZero() {
				test.now = now
			}
			if got := fault.ReasonOf(v.Verify(header, []byte(test.body), test.now)); got != test.want {
				t.Errorf("Verify = %q, want %q", got, test.want)
			}
		})
	}
}

func TestASenderSignsWithAllOfItsSecrets(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	now := time.Unix(exampleTime, 0)
	Sign(header, exampleID, now, nil, other(t, 1), other(t, 2))
	for i, want := range map[int]string{1: "", 2: "", 3: "SIGNATURE_INVALID"} {
		v := Verifier{Secrets: []Secret{other(t, i)}}
		if got := fault.ReasonOf(v.Verify(header, nil, now)); got != want {
			t.Errorf("secret %d: Verify = %q, want %q", i, got, want)
		}
	}
	unsigned := http.Header{}
	Sign(unsigned, exampleID, now, nil)
	if len(unsigned) != 0 {
		t.Errorf("a sender without secrets has set %v", unsigned)
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	encoded := func(bytes int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, bytes)) }
	for text, valid := range map[string]bool{
		exampleSecret: true, encoded(24): true, encoded(64): true, " " + encoded(32) + "\n": true,
		encoded(23): false, encoded(65): false, "whsec_": false, "": false, "whsec_!": false, exampleSecret[6:]: false,
	} {
		_, err := ParseSecret(text)
		if (err == nil) != valid || err != nil && fault.ReasonOf(err) != "SECRET_INVALID" {
			t.Errorf("ParseSecret(%q) = %v, want valid: %v", text, err, valid)
		}
	}
	shown := fmt.Sprintf("%v %+v %#v %s", secret(t, exampleSecret), secret(t, exampleSecret), secret(t, exampleSecret), secret(t, exampleSecret))
	if strings.Contains(shown, "MfKQ") || strings.Contains(shown, "1\xf2\x90") {
		t.Errorf("a secret is shown: %q", shown)
	}
}

func TestARequestCountsOnce(t *testing.T) {
	t.Parallel()
	var m Memory
	now := time.Unix(exampleTime, 0)
	if !m.add("a", now) || m.add("a", now.Add(remembered-time.Second)) {
		t.Error("an id counts other than once")
	}
	if !m.add("a", now.Add(remembered)) {
		t.Error("an id is remembered for too long")
	}
	for i := range maxSeen - 1 {
		m.add(strconv.Itoa(i), now)
	}
	if m.add("0", now) {
		t.Error("one of the newest ids is forgotten")
	}
	m.add("more", now)
	m.add("and more", now)
	if len(m.ring) != maxSeen || len(m.at) > maxSeen {
		t.Errorf("%d ids in a memory of %d", len(m.at), maxSeen)
	}
}

func TestARepeatedRequestIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Unix(exampleTime, 0)
	header := http.Header{}
	Sign(header, exampleID, now, []byte(exampleBody), secret(t, exampleSecret))
	v := Verifier{Secrets: []Secret{secret(t, exampleSecret)}, Seen: &Memory{}}
	if err := v.Verify(header, []byte("forged"), now); fault.ReasonOf(err) != "SIGNATURE_INVALID" {
		t.Errorf("a forged request: %v", err)
	}
	if err := v.Verify(header, []byte(exampleBody), now); err != nil {
		t.Errorf("a forged request has used up the id: %v", err)
	}
	if err := v.Verify(header, []byte(exampleBody), now); fault.ReasonOf(err) != "REPLAYED" {
		t.Errorf("a repeated request: %v", err)
	}
}
