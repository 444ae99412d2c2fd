// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

const (
	there     = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"agent","uid":"1"}}`
	another   = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"agent","uid":"2"}}`
	leaving   = `{"kind":"DaemonSet","metadata":{"name":"agent","uid":"1","deletionTimestamp":"2026-11-21T12:00:00Z"}}`
	notFound  = `{"kind":"Status","status":"Failure","reason":"NotFound","message":"not found","details":{"name":"agent","kind":"daemonsets"},"code":404}`
	namespace = `{"kind":"Namespace","metadata":{"name":"mesh"}}`
	closing   = `{"kind":"Namespace","metadata":{"name":"mesh","deletionTimestamp":"2026-11-22T12:00:00Z"}}`
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
	asked   []*http.Request // the requests, in the order of the answers
	// Requests for the namespace have answers of their own. The last one is repeated.
	namespaces     []reply
	namespaceAsked int
	clock          time.Time
}

func newFixture(t *testing.T, answers ...reply) *fixture {
	t.Helper()
	f := &fixture{answers: answers, namespaces: []reply{answer(http.StatusOK, namespace)}, clock: time.Unix(1_800_000_000, 0)}
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
		Account: apiserver.Account{
			Server: location, TokenFile: filepath.Join(directory, "token"), CAFile: filepath.Join(directory, "ca.crt"),
		},
		Namespace: "mesh", Name: "agent", Pause: time.Nanosecond, Memory: &daemonset.Memory{}, Now: func() time.Time { return f.clock },
	}
	f.put(t, f.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	f.put(t, f.TokenFile, "secret\n")
	return f
}

// serve gives the next answer. After the last one, ctx ends.
func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/namespaces/mesh" {
		f.namespaces[min(f.namespaceAsked, len(f.namespaces)-1)](w)
		f.namespaceAsked++
		return
	}
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

func (f *fixture) wantDeleted(t *testing.T, evidence string) {
	t.Helper()
	got, err := f.Deleted(f.ctx)
	if err != nil || !got.Deleted() || !strings.Contains(got.What, evidence) || strings.Contains(got.What, "secret") {
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

// want checks for evidence, for ErrUnknown, or for a wanted DaemonSet, possibly with a doubt.
func (f *fixture) want(t *testing.T, evidence, unknown, doubt string) {
	t.Helper()
	switch {
	case evidence != "":
		f.wantDeleted(t, evidence)
	case unknown != "":
		f.wantUnknown(t, unknown)
	default:
		if got, err := f.Deleted(f.ctx); got.Deleted() || got.Doubt != doubt || err != nil {
			t.Errorf("Deleted = %+v, %v", got, err)
		}
	}
}

// look fills the memory with the first answer.
func (f *fixture) look(t *testing.T) {
	t.Helper()
	_ = f.Look(t.Context())
	if len(f.asked) != 1 {
		t.Fatalf("asked %d times", len(f.asked))
	}
}

// TestDeleted has answers after a first one, which the daemon received while it worked.
func TestDeleted(t *testing.T) {
	t.Parallel()
	var (
		saw          = answer(200, there)
		gone         = answer(404, notFound)
		mayNot       = answer(403, forbidden)
		unauthorized = answer(401, `{"kind":"Status","reason":"Unauthorized"}`)
		behind       = func(first, r reply, n int) []reply {
			return append([]reply{first}, slices.Repeat([]reply{r}, n)...)
		}
	)
	for name, test := range map[string]struct {
		answers  []reply
		watched  string // the watch's reports: "there", "there, removed" and so on
		evidence string // empty: it is wanted, or not known
		unknown  string // why it is not known
		asked    int
	}{
		"there":                  {[]reply{saw, saw}, "there", "", "", 2},
		"there, object removed":  {[]reply{saw, saw}, "there removed", "", "", 2},
		"being deleted":          {[]reply{saw, answer(200, leaving)}, "there", "is being deleted, since 2026-11-21T12:00:00Z", "", 2},
		"gone":                   {behind(saw, gone, 5), "there", `404), and had it with UID "1" at 2027-01-15T08:00:00Z`, "", 6},
		"gone for a moment":      {[]reply{saw, gone, gone, gone, gone, answer(200, another)}, "", "", "", 6},
		"exchanged":              {[]reply{saw, answer(200, another)}, "", "", "", 2},
		"never there":            {[]reply{gone, gone}, "", "", "nor did it before", 3},
		"never told about":       {[]reply{mayNot, gone}, "", "", "nor did it before", 3},
		"another's 404":          {[]reply{saw, answer(404, "404 page not found")}, "", "", "404", 3},
		"404 about another":      {[]reply{saw, answer(404, strings.Replace(notFound, "agent", "x", 1))}, "", "", "404", 3},
		"another's 200":          {[]reply{saw, answer(200, "welcome")}, "", "", "something other", 3},
		"another DaemonSet":      {[]reply{saw, answer(200, strings.Replace(there, "agent", "x", 1))}, "", "", "something other", 3},
		"404 with a DaemonSet":   {[]reply{saw, answer(404, there)}, "", "", "something other", 3},
		"all deleted":            {behind(saw, unauthorized, 5), "there removed", "refuses the token (401)", "", 6},
		"all deleted, role gone": {behind(saw, mayNot, 5), "there removed", "may not get it (403)", "", 6},
		"all deleted in turn":    {[]reply{saw, gone, mayNot, mayNot, unauthorized, unauthorized}, "there removed", "refuses the token (401)", "", 6},
		"account anew":           {behind(saw, unauthorized, 7), "there", "", "the ConfigMap that only the end of the installation removes is there", 9},
		"account anew, no watch": {behind(saw, unauthorized, 7), "", "", "no ConfigMap is watched", 9},
		"replaced, no watch":     {append([]reply{saw, gone}, slices.Repeat([]reply{unauthorized}, 7)...), "", "", "no ConfigMap is watched", 10},
		"role taken away":        {behind(saw, mayNot, 7), "there", "", "may not get it (403); the ConfigMap that only", 9},
		"all replaced":           {behind(saw, unauthorized, 7), "there removed there", "", "refuses the token (401); the ConfigMap", 9},
		"never an object":        {behind(saw, unauthorized, 7), "removed", "", "no ConfigMap is watched", 9},
		"401 not for long":       {[]reply{saw, unauthorized, unauthorized}, "there removed", "", "only 2 of 5 answers in a row say so", 4},
		"401 in between":         {[]reply{saw, unauthorized, unauthorized, answer(503, ""), unauthorized}, "there removed", "", "only 1 of 5", 6},
		"restarting":             {append([]reply{saw, answer(503, "")}, slices.Repeat([]reply{gone}, 5)...), "", "404", "", 7},
		"broken":                 {[]reply{saw, answer(500, ""), answer(502, "")}, "", "", "answers 502", 4},
		"redirect":               {[]reply{saw, answer(302, "")}, "", "", "302", 3},
		"endless":                {append([]reply{saw, answer(200, strings.Repeat(" ", 5<<20))}, slices.Repeat([]reply{gone}, 5)...), "", "404", "", 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.answers...)
			f.look(t)
			for _, word := range strings.Fields(test.watched) {
				f.Memory.Hear(word == "there")
			}
			f.want(t, test.evidence, test.unknown, "")
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

// TestNamespace has the namespace of a DaemonSet that exists.
func TestNamespace(t *testing.T) {
	t.Parallel()
	ok := answer(200, namespace)
	for name, test := range map[string]struct {
		namespaces []reply
		evidence   string // empty: it is wanted, or not known
		doubt      string
		unknown    string
	}{
		"there":                {[]reply{ok}, "", "", ""},
		"being deleted":        {[]reply{ok, answer(200, closing)}, "its namespace mesh is being deleted, since 2026-11-22T12:00:00Z", "", ""},
		"no role":              {[]reply{answer(403, forbidden)}, "", `whether its namespace mesh is being deleted is not known: the API server answers 403 "no role"`, ""},
		"role gone":            {[]reply{ok, answer(403, forbidden)}, "", "", "whether its namespace mesh is being deleted is not known"},
		"fails for a moment":   {[]reply{ok, answer(503, ""), answer(200, closing)}, "its namespace mesh is being deleted", "", ""},
		"fails":                {[]reply{ok, answer(503, "")}, "", "", "503"},
		"another's answer":     {[]reply{ok, answer(200, strings.Replace(closing, "mesh", "x", 1))}, "", "", "something other than the Namespace mesh"},
		"something in its way": {[]reply{ok, answer(404, "404 page not found")}, "", "", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, answer(200, there), answer(200, there), answer(200, there))
			f.namespaces = test.namespaces
			f.look(t)
			f.want(t, test.evidence, test.unknown, test.doubt)
		})
	}
}

// TestNamespaceIsAskedForOnce: it is known from then on, until the end.
func TestNamespaceIsAskedForOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, answer(200, there), answer(200, there), answer(200, there))
	f.namespaces = []reply{answer(503, ""), answer(200, namespace)}
	for i, fails := range []bool{true, false, false} {
		if err := f.Look(t.Context()); (err != nil) != fails {
			t.Errorf("look %d: %v", i, err)
		}
	}
	if f.namespaceAsked != 2 {
		t.Errorf("asked %d times for the namespace", f.namespaceAsked)
	}
}

// TestNobodyVerified has answers of a server that is not verified.
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

// TestLoopback has a server on this machine, which counts as verified and receives no token.
func TestLoopback(t *testing.T) {
	t.Parallel()
	gone := answer(404, notFound)
	f := newFixture(t, answer(200, there), gone, gone, gone, gone, gone)
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = location
	f.look(t)
	f.wantDeleted(t, "404")
	if got := f.asked[0].Header.Get("Authorization"); got != "" {
		t.Errorf("Authorization: %q", got)
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer    reply
		namespace reply // nil: it exists
		says      string
		refused   bool
	}{
		"there":           {answer(200, there), nil, "", false},
		"leaving":         {answer(200, leaving), nil, "", false},
		"no role":         {answer(403, forbidden), nil, "may not get the DaemonSet agent", true},
		"none":            {answer(404, notFound), nil, "pod-namespace and agent-name", true},
		"refused":         {answer(401, ""), nil, "401", false},
		"away":            {answer(503, ""), nil, "503", false},
		"namespace":       {answer(200, there), answer(403, forbidden), "may not get the Namespace mesh", true},
		"namespace, away": {answer(200, there), answer(503, ""), "Namespace mesh: the API server answers 503", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.answer)
			if test.namespace != nil {
				f.namespaces = []reply{test.namespace}
			}
			err := f.Look(t.Context())
			if (err == nil) != (test.says == "") || (err != nil && !strings.Contains(err.Error(), test.says)) || errors.Is(err, daemonset.ErrRefused) != test.refused {
				t.Errorf("Look: %v", err)
			}
		})
	}
}
