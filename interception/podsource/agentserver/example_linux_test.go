// SPDX-License-Identifier: Apache-2.0

package agentserver_test

import (
	"context"
	"fmt"
	"os"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// cache is an agent's view of the cluster.
type cache map[string]interception.Pod

func (c cache) Pod(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	pod, found := c[ref.String()]
	if !found {
		return interception.Pod{}, podsource.ErrNotFound
	}
	return pod, nil
}

func ExampleServer() {
	runDir, err := os.MkdirTemp("", "run")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(runDir)

	// The agent.
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := agentserver.Listen(ctx, runDir)
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() {
		server := agentserver.Server{Pods: cache{"shop/web-0": {Namespace: "shop", Name: "web-0", UID: "7f0b"}}}
		ended <- server.Serve(ctx, listener)
	}()

	// The plugin.
	agent := podsource.Agent{RunDir: runDir}
	pod, err := agent.Pod(ctx, podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"})
	fmt.Println(pod.Namespace, pod.Name, err)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// shop web-0 <nil>
	// <nil>
}
