// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
)

func Example() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	location, err := url.Parse(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := apiserver.Account{Server: location}.Send(context.Background(), http.MethodGet, []string{"api", "v1", "nodes", "a"}, "application/json", "")
	fmt.Println(answer.Status, err)
	// Output: 404 <nil>
}
