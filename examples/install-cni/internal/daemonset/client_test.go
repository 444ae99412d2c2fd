// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

const (
	there     = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"agent","uid":"1"}}`
	another   = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"agent","uid":"2"}}`
	leaving   = `{"kind":"DaemonSet","metadata":{"name":"agent","uid":"1","deletionTimestamp":"2026-11-21T12:00:00Z"}}`
	notFound  = `{"kind":"Status","status":"Failure","reason":"NotFound","message":"not found","details":{"name":"agent","kind":"daemonsets"},"code":404}`
	forbidden = `{"kind":"Status","reason":"Forbidden","message":"no role"}`
)

// reply is an answer of the API server.
type reply func(http.ResponseWriter)

func answer(status int, body string) reply {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// fixture is a client with an API server that gives its answers one after the other.
type fixture struct {
	daemonset.Client
	ctx     context.Context // ends with the last answer
	end     context.CancelFunc
	answers []reply
	asked   []*http.Request
	clock   time.Time
}

func newFixture(t *testing.T, answers ...reply) *fixture {
	t.Helper()
	f := &fixture{answers: answers, clock: time.Unix(1_800_000_000, 0)}
	f.ctx, f.end = context.WithCancel(t.Context())
	t.Cleanup(f.end)
	server := httptest.NewTLSServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	f.Client = daemonset.Client{
		Namespace: "mesh", Name: "agent", Server: location, Pause: time.Nanosecond, Memory: &daemonset.Memory{}, Now: func() time.Time { return f.clock },
		TokenFile: filepath.Join(directory, "token"), CAFile: filepath.Join(directory, "ca.crt"),
	}
	f.put(t, f.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	f.put(t, f.TokenFile, "secret\n")
	return f
}

// serve gives the next answer. When there are no more, time is over.
func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	f.asked = append(f.asked, r)
	if len(f.asked) > len(f.answers) {
		f.end()
		return
	}
	f.answers[len(f.asked)-1](w)
}

func (*fixture) put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) wantDeleted(t *testing.T, evidence string, indirect bool) {
	t.Helper()
	got, err := f.Deleted(f.ctx)
	if err != nil || !got.Deleted() || !strings.Contains(got.What, evidence) || got.Indirect != indirect || strings.Contains(got.What, "secret") {
		t.Errorf("Deleted = %+v, %v; want evidence with %q", got, err, evidence)
	}
}

func (f *fixture) wantUnknown(t *testing.T, why string) {
	t.Helper()
	got, err := f.Deleted(f.ctx)
	if got.Deleted() || !errors.Is(err, daemonset.ErrUnknown) || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Deleted = %+v, %v; want an error with %q", got, err, why)
	}
}

// look has the memory filled by the first answer.
func (f *fixture) look(t *testing.T) {
	t.Helper()
	_ = f.Look(t.Context())
	if len(f.asked) != 1 {
		t.Fatalf("asked %d times", len(f.asked))
	}
}

// TestDeleted is about answers behind a first one, which the daemon got while it worked.
func TestDeleted(t *testing.T) {
	t.Parallel()
	unauthorized := answer(401, `{"kind":"Status","reason":"Unauthorized"}`)
	saw := answer(200, there)
	for name, test := range map[string]struct {
		answers  []reply
		evidence string // empty: it is wanted, or not known
		unknown  string // why it isn't known
		asked    int
	}{
		"there":                 {[]reply{saw, saw}, "", "", 2},
		"being deleted":         {[]reply{saw, answer(200, leaving)}, "is being deleted, since 2026-11-21T12:00:00Z", "", 2},
		"gone":                  {[]reply{saw, answer(404, notFound)}, `404), and had it with UID "1" at 2027-01-15T08:00:00Z`, "", 2},
		"exchanged":             {[]reply{saw, answer(200, another)}, "", "", 2},
		"never there":           {[]reply{answer(404, notFound), answer(404, notFound)}, "", "had none before", 3},
		"never told about":      {[]reply{answer(403, forbidden), answer(404, notFound)}, "", "had none before", 3},
		"another's 404":         {[]reply{saw, answer(404, "404 page not found")}, "", "404", 3},
		"404 about another":     {[]reply{saw, answer(404, strings.Replace(notFound, "agent", "x", 1))}, "", "404", 3},
		"another's 200":         {[]reply{saw, answer(200, "welcome")}, "", "something else", 3},
		"another DaemonSet":     {[]reply{saw, answer(200, strings.Replace(there, "agent", "x", 1))}, "", "something else", 3},
		"404 with a DaemonSet":  {[]reply{saw, answer(404, there)}, "", "something else", 3},
		"account gone":          {[]reply{saw, unauthorized, unauthorized, unauthorized}, "knows the service account no more (401, 3 times)", "", 4},
		"account gone, no role": {[]reply{answer(403, forbidden), unauthorized, unauthorized, unauthorized}, "took the same token at 2027", "", 4},
		"401 not for long":      {[]reply{saw, unauthorized, unauthorized}, "", "only time to ask 2 times", 4},
		"token renewed":         {[]reply{saw, unauthorized, unauthorized, saw}, "", "", 4},
		"401 in between":        {[]reply{saw, unauthorized, unauthorized, answer(503, ""), unauthorized}, "", "only time to ask 1 times", 6},
		"always 401":            {[]reply{unauthorized, unauthorized, unauthorized, unauthorized, unauthorized}, "", "may have refused it all the time", 6},
		"not allowed":           {[]reply{saw, answer(403, forbidden)}, "", "may not get it", 3},
		"role gone before it":   {[]reply{saw, answer(403, forbidden), unauthorized, unauthorized, unauthorized}, "knows the service account no more", "", 5},
		"restarting":            {[]reply{saw, answer(503, ""), answer(404, notFound)}, "404", "", 3},
		"broken":                {[]reply{saw, answer(500, ""), answer(502, "")}, "", "answers 502", 4},
		"redirect":              {[]reply{saw, answer(302, "")}, "", "302", 3},
		"endless":               {[]reply{saw, answer(200, strings.Repeat(" ", 5<<20)), answer(404, notFound)}, "404", "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.answers...)
			f.look(t)
			switch {
			case test.evidence != "":
				f.wantDeleted(t, test.evidence, strings.Contains(test.evidence, "token") || strings.Contains(test.evidence, "account"))
			case test.unknown != "":
				f.wantUnknown(t, test.unknown)
			default:
				if evidence, err := f.Deleted(f.ctx); evidence.Deleted() || err != nil {
					t.Errorf("Deleted = %+v, %v", evidence, err)
				}
			}
			if len(f.asked) != test.asked {
				t.Errorf("asked %d times, want %d", len(f.asked), test.asked)
			}
			for _, r := range f.asked {
				if r.URL.Path != "/apis/apps/v1/namespaces/mesh/daemonsets/agent" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked %s %s with %q", r.Method, r.URL, r.Header)
				}
			}
		})
	}
}

// jwt is a token that ends at a time.
func jwt(exp time.Time) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"secret","exp":%d}`, exp.Unix())) + ".c2VjcmV0"
}

// TestRefusedToken is about 401, which is evidence only of a token that was good a short while ago.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		token string                         // that was taken
		then  func(t *testing.T, f *fixture) // before it is refused
		says  string                         // empty: it is evidence
	}{
		"good":            {"secret", func(*testing.T, *fixture) {}, ""},
		"good, and a JWT": {jwt(time.Unix(1_800_000_000+3600, 0)), func(*testing.T, *fixture) {}, ""},
		"a while ago":     {"secret", func(_ *testing.T, f *fixture) { f.clock = f.clock.Add(29 * time.Minute) }, ""},
		"long ago":        {"secret", func(_ *testing.T, f *fixture) { f.clock = f.clock.Add(31 * time.Minute) }, "is not known to have taken it within 30m0s"},
		"expired":         {jwt(time.Unix(1_800_000_000+60, 0)), func(_ *testing.T, f *fixture) { f.clock = f.clock.Add(time.Minute) }, "has expired at 2027-01-15T08:01:00Z"},
		"exchanged":       {"secret", func(t *testing.T, f *fixture) { t.Helper(); f.put(t, f.TokenFile, "secret-2") }, "is not known to have taken it"},
		"not there":       {"secret", func(t *testing.T, f *fixture) { t.Helper(); f.put(t, f.TokenFile, "") }, "is empty"},
		"taken away":      {"secret", func(_ *testing.T, f *fixture) { _ = os.Remove(f.TokenFile) }, "no such file"},
		"not remembered":  {"secret", func(_ *testing.T, f *fixture) { f.Memory = nil }, "is not known to have taken it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := answer(401, "")
			f := newFixture(t, answer(200, there), refused, refused, refused)
			f.put(t, f.TokenFile, test.token)
			f.look(t)
			test.then(t, f)
			if test.says == "" {
				f.wantDeleted(t, "took the same token at 2027-01-15T08:00:00Z", true)
				return
			}
			if _, err := os.ReadFile(f.TokenFile); err != nil || strings.Contains(test.says, "empty") { // then nobody is asked, and time ends by itself
				f.end()
			}
			f.wantUnknown(t, test.says)
		})
	}
}

// TestNobodyVerified is about answers of a server that may be anybody.
func TestNobodyVerified(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(f *fixture)
		says  string
	}{
		"insecure":      {func(f *fixture) { f.Insecure = true }, "isn't verified (skip-tls-verify)"},
		"plain http":    {func(f *fixture) { f.Server = &url.URL{Scheme: "http", Host: "10.96.0.1:80"} }, "plain http"},
		"a name":        {func(f *fixture) { f.Server = &url.URL{Scheme: "http", Host: "kubernetes.default.svc"} }, "plain http"},
		"a false CA":    {func(f *fixture) { _ = os.WriteFile(f.CAFile, []byte("no certificate"), 0o600); f.end() }, "no certificate in PEM form"},
		"another's CA":  {func(f *fixture) { f.Server.Host = strings.Replace(f.Server.Host, "127.0.0.1", "localhost", 1); f.end() }, "localhost"},
		"without token": {func(f *fixture) { _ = os.Remove(f.TokenFile); f.end() }, "token of the service account"},
		"nobody":        {func(f *fixture) { f.Server = &url.URL{Scheme: "https", Host: "127.0.0.1:1"}; f.end() }, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, answer(404, notFound), answer(404, notFound))
			test.spoil(f)
			f.wantUnknown(t, test.says)
			if err := f.Look(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("Look: %v", err)
			}
			if len(f.asked) > 0 {
				t.Errorf("asked %d times", len(f.asked))
			}
		})
	}
}

// TestLoopback has a stand-in on this machine, which is verified by being here and is shown no token.
func TestLoopback(t *testing.T) {
	t.Parallel()
	f := newFixture(t, answer(200, there), answer(401, ""), answer(401, ""), answer(401, ""), answer(404, notFound))
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = location
	f.look(t)
	f.wantDeleted(t, "404", false)
	if got := f.asked[0].Header.Get("Authorization"); got != "" {
		t.Errorf("Authorization: %q", got)
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer  reply
		says    string
		refused bool
	}{
		"there":   {answer(200, there), "", false},
		"leaving": {answer(200, leaving), "", false},
		"no role": {answer(403, forbidden), "may not get it", true},
		"none":    {answer(404, notFound), "pod-namespace and agent-name", true},
		"refused": {answer(401, ""), "401", false},
		"away":    {answer(503, ""), "503", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.answer)
			err := f.Look(t.Context())
			if (err == nil) != (test.says == "") || (err != nil && !strings.Contains(err.Error(), test.says)) || errors.Is(err, daemonset.ErrRefused) != test.refused {
				t.Errorf("Look: %v", err)
			}
		})
	}
}
