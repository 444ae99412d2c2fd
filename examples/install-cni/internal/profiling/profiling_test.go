// SPDX-License-Identifier: Apache-2.0

package profiling_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/profiling"
)

func ExampleCheckAddress() {
	fmt.Println(profiling.CheckAddress("127.0.0.1:6060"))
	fmt.Println(profiling.CheckAddress(":6060"))
	// Output:
	// <nil>
	// profiles are served on a loopback address only: write 127.0.0.1:PORT or [::1]:PORT
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"127.0.0.1:0": true, "127.8.9.10:6060": true, "[::1]:6060": true, "[::ffff:127.0.0.1]:1": true,
		":6060": false, "0.0.0.0:6060": false, "[::]:6060": false, "10.0.0.1:6060": false, "localhost:6060": false, "127.0.0.1": false, "": false,
	} {
		if err := profiling.CheckAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	profiling.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/debug/pprof/goroutine?debug=1", nil))
	if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "goroutine profile") {
		t.Errorf("got %d %s", recorder.Code, recorder.Body)
	}
}
