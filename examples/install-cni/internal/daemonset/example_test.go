// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

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
	fmt.Println(daemonset.Client{Server: location}.Deleted(context.Background(), "istio-system", "agent"))
	// Output: true <nil>
}
