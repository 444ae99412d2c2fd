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
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

const (
	there    = `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"agent","uid":"1"}}`
	leaving  = `{"kind":"DaemonSet","metadata":{"name":"agent","deletionTimestamp":"2026-11-21T12:00:00Z"}}`
	notFound = `{"kind":"Status","status":"Failure","reason":"NotFound","message":"not found","details":{"name":"agent","kind":"daemonsets"},"code":404}`
)

// newClient has an API server that gives its answers one after the other, and the last again and again.
func newClient(t *testing.T, answers ...func(http.ResponseWriter)) (client daemonset.Client, asked *[]*http.Request) {
	t.Helper()
	asked = new([]*http.Request)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := min(len(*asked), len(answers)-1)
		*asked = append(*asked, r)
		answers[i](w)
	}))
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client = daemonset.Client{
		Server: location, TokenFile: filepath.Join(directory, "token"), CAFile: filepath.Join(directory, "ca.crt"), Pause: time.Nanosecond,
	}
	if err := errors.Join(os.WriteFile(client.TokenFile, []byte("secret\n"), 0o600), os.WriteFile(client.CAFile, certificate, 0o600)); err != nil {
		t.Fatal(err)
	}
	return client, asked
}

func answer(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestDeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []func(http.ResponseWriter)
		deleted bool
		unknown string
		asked   int
	}{
		"there":               {[]func(http.ResponseWriter){answer(200, there)}, false, "", 1},
		"being deleted":       {[]func(http.ResponseWriter){answer(200, leaving)}, true, "", 1},
		"gone":                {[]func(http.ResponseWriter){answer(404, notFound)}, true, "", 1},
		"another's 404":       {[]func(http.ResponseWriter){answer(404, "404 page not found")}, false, "404", 4},
		"404 about another":   {[]func(http.ResponseWriter){answer(404, strings.Replace(notFound, "agent", "x", 1))}, false, "404", 4},
		"another's 200":       {[]func(http.ResponseWriter){answer(200, "welcome")}, false, "something else", 4},
		"another DaemonSet":   {[]func(http.ResponseWriter){answer(200, strings.Replace(there, "agent", "x", 1))}, false, "something else", 4},
		"account gone":        {[]func(http.ResponseWriter){answer(401, `{"kind":"Status"}`)}, true, "", 4},
		"token renewed":       {[]func(http.ResponseWriter){answer(401, ""), answer(200, there)}, false, "", 2},
		"not allowed":         {[]func(http.ResponseWriter){answer(403, `{"kind":"Status"}`)}, false, "may not get it", 4},
		"role gone before it": {[]func(http.ResponseWriter){answer(403, ""), answer(403, ""), answer(401, "")}, true, "", 4},
		"restarting":          {[]func(http.ResponseWriter){answer(503, ""), answer(404, notFound)}, true, "", 2},
		"redirect":            {[]func(http.ResponseWriter){answer(302, "")}, false, "302", 4},
		"endless":             {[]func(http.ResponseWriter){answer(200, strings.Repeat(" ", 5<<20)), answer(404, notFound)}, true, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := newClient(t, test.answers...)
			deleted, err := client.Deleted(t.Context(), "mesh", "agent")
			if deleted != test.deleted || (err != nil) != (test.unknown != "") || (err != nil && (!errors.Is(err, daemonset.ErrUnknown) || !strings.Contains(err.Error(), test.unknown))) {
				t.Errorf("Deleted = %v, %v", deleted, err)
			}
			if len(*asked) != test.asked {
				t.Errorf("asked %d times, want %d", len(*asked), test.asked)
			}
			for _, r := range *asked {
				if r.URL.Path != "/apis/apps/v1/namespaces/mesh/daemonsets/agent" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked %s %s with %q", r.Method, r.URL, r.Header)
				}
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *daemonset.Client){
		"unverified": func(c *daemonset.Client) { _ = os.WriteFile(c.CAFile, []byte("no certificate"), 0o600) },
		"no token":   func(c *daemonset.Client) { _ = os.Remove(c.TokenFile) },
		"nobody":     func(c *daemonset.Client) { c.Server = &url.URL{Scheme: "https", Host: "127.0.0.1:1"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := newClient(t, answer(404, notFound))
			spoil(&client)
			deleted, err := client.Deleted(t.Context(), "mesh", "agent")
			if deleted || !errors.Is(err, daemonset.ErrUnknown) || len(*asked) > 0 || strings.Contains(err.Error(), "secret") {
				t.Errorf("Deleted = %v, %v; asked %d times", deleted, err, len(*asked))
			}
		})
	}
}

func TestTheContextEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	client, _ := newClient(t, func(w http.ResponseWriter) { cancel(); w.WriteHeader(http.StatusServiceUnavailable) })
	client.Pause = time.Hour
	if deleted, err := client.Deleted(ctx, "mesh", "agent"); deleted || !errors.Is(err, daemonset.ErrUnknown) {
		t.Errorf("Deleted = %v, %v", deleted, err)
	}
}
