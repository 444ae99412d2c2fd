// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(200, leaving)(w) }))
	defer server.Close()
	location, err := url.Parse(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	account := apiserver.Account{Server: location}
	client := daemonset.Client{Account: account, Namespace: "istio-system", Name: "agent", Memory: &daemonset.Memory{}}
	evidence, err := client.Deleted(context.Background())
	fmt.Println(evidence.What, err)
	// Output: it is being deleted, since 2026-11-21T12:00:00Z <nil>
}
