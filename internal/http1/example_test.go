// SPDX-License-Identifier: Apache-2.0

package http1_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/meshcni/meshcni/internal/http1"
)

func ExampleClient_Do() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}))
	defer server.Close()

	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		panic(err)
	}
	client := http1.Client{MaxHeader: 8 << 10, MaxBody: 1 << 20}
	answer, err := client.Do(context.Background(), connection, http1.Request{Method: http1.MethodGet, Target: "/healthz", Host: "localhost"})
	fmt.Println(answer.Status, string(answer.Body), err)
	// Output: 200 GET /healthz <nil>
}
