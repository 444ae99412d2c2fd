// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		want   error
	}{
		"no such pod":  {http.StatusNotFound, nil},
		"unauthorized": {http.StatusUnauthorized, podsource.ErrUnauthorized},
		"forbidden":    {http.StatusForbidden, podsource.ErrForbidden},
		"failing":      {http.StatusInternalServerError, podsource.ErrServer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			server := apiServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				calls++
				if r.URL.Path != "/api/v1/namespaces/mesh/pods/meshcni-probe" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(test.status)
			})
			err := sourceFor(t, server).Probe(t.Context(), "mesh")
			if test.want == nil && err != nil || test.want != nil && !errors.Is(err, test.want) || calls != 1 {
				t.Errorf("got %v, asked %d times", err, calls)
			}
		})
	}
	if err := (podsource.APIServer{Kubeconfig: "/missing"}).Probe(t.Context(), "mesh"); !errors.Is(err, podsource.ErrKubeconfig) {
		t.Errorf("got %v", err)
	}
	if err := (podsource.APIServer{}).Probe(t.Context(), "../x"); !errors.Is(err, podsource.ErrRef) {
		t.Errorf("got %v", err)
	}
}

// Another mesh's plugin has its own name in the API server's log, and no way to write a second line
// of the header.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "meshcni", "linkmesh-cni/1.2": "linkmesh-cni/1.2", "a\r\nX: b": ""} {
		seen := make(chan string, 1)
		source := sourceFor(t, apiServer(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			seen <- r.UserAgent()
			w.WriteHeader(http.StatusNotFound)
		}))
		source.UserAgent = given
		err := source.Probe(t.Context(), "mesh")
		close(seen)
		if got := <-seen; got != want || (err == nil) != (want != "") {
			t.Errorf("%q: the server saw %q: %v", given, got, err)
		}
	}
}
