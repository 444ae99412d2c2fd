// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
)

func TestNamespaceLabels(t *testing.T) {
	t.Parallel()
	server := apiServer(t, func(w http.ResponseWriter, r *http.Request, call int) {
		if r.URL.Path != "/api/v1/namespaces/shop" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("got request %s %s with %v", r.Method, r.URL, r.Header)
		}
		if call == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer(http.StatusOK, `{"kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}`)(w, r, call)
	})
	labels, err := sourceFor(t, server).NamespaceLabels(t.Context(), "shop")
	if diff := cmp.Diff(map[string]string{"a": "b"}, labels); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
}

func TestNamespaceLabelsFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status   int
		body     string
		want     error
		text     string
		attempts int
	}{
		"missing":        {http.StatusNotFound, statusObject("not found"), podsource.ErrNoNamespace, "knows no such namespace", 4},
		"forbidden":      {http.StatusForbidden, statusObject("no"), podsource.ErrForbidden, "the verb get on namespaces", 1},
		"unauthorized":   {http.StatusUnauthorized, "", podsource.ErrUnauthorized, "namespace shop: API server", 4},
		"overloaded":     {http.StatusTooManyRequests, "", podsource.ErrServer, "status 429", 10},
		"another one":    {http.StatusOK, `{"kind": "Namespace", "metadata": {"name": "bank"}}`, podsource.ErrAnswer, `it is "Namespace" "bank"`, 1},
		"another kind":   {http.StatusOK, `{"kind": "Pod", "metadata": {"name": "shop"}}`, podsource.ErrAnswer, `it is "Pod" "shop"`, 1},
		"no JSON":        {http.StatusOK, "hello", podsource.ErrAnswer, "it is no namespace", 1},
		"the credential": {http.StatusOK, `{"kind": "` + token + `"}`, podsource.ErrAnswer, "(credential)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sourceFor(t, apiServer(t, answer(test.status, test.body))).NamespaceLabels(t.Context(), "shop")
			failure := wantFailure(t, err, test.want, test.text)
			if failure.Namespace != "shop" || max(failure.Attempts, 1) != test.attempts {
				t.Errorf("got %+v", failure)
			}
		})
	}
	_, err := (podsource.APIServer{}).NamespaceLabels(t.Context(), "../x")
	wantFailure(t, err, podsource.ErrRef, "../x")
}
