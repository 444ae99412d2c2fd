// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/agent"
	"github.com/meshcni/meshcni/interception/podsource"
)

// printer prints what it receives.
type printer struct{ done context.CancelFunc }

func (printer) Result(r podsource.Result) { fmt.Println(r.Command, r.Namespace+"/"+r.Name, r.Captured) }

func (p printer) Request(request, outcome string) {
	fmt.Println(request, outcome)
	p.done()
}

func Example() {
	runDir, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(runDir)
	ctx, done := context.WithCancel(context.Background())
	a := &agent.Agent{RunDir: runDir, Log: slog.New(slog.DiscardHandler), Now: time.Now, Observer: printer{done}}
	err = a.Socket().Run(ctx, func(string) {
		plugin := podsource.Agent{RunDir: runDir}
		go plugin.Report(ctx, []podsource.Result{{Command: "ADD", Namespace: "shop", Name: "web-0", Captured: true}}) //nolint:errcheck // the call ends with the example
	})
	fmt.Println(err)
	// Output:
	// ADD shop/web-0 true
	// results ok
	// <nil>
}
