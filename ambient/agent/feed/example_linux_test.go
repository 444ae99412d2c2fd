// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/interception"
)

// cluster is what another mesh knows its pods from, and writes annotations by.
type cluster struct {
	changes   chan ambient.Change
	annotated chan string
}

func (c cluster) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-c.changes:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

// Annotate would patch the pod.
func (c cluster) Annotate(_ context.Context, pod interception.Pod, status ambient.Status) error {
	c.annotated <- fmt.Sprintf("%s/%s is %q", pod.Namespace, pod.Name, status)
	return nil
}

// The two sides usually are two processes. The agent takes the client as Feed and as Annotator.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop/web-0 is "Running", and these are all: true
	// shop/web-0 is "enabled"
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	directory, err := os.MkdirTemp("", "feed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	socket := filepath.Join(directory, "feed.sock")

	source := cluster{make(chan ambient.Change, 1), make(chan string, 1)}
	server, err := feed.Listen(ctx, socket, feed.ServerOptions{Source: source, Annotator: source})
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(ctx) }() // until ctx ends
	web := interception.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b"}
	source.changes <- ambient.Change{
		Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{{Pod: web, Phase: "Running"}}, Complete: true,
	}

	client := feed.NewClient(socket, feed.ClientOptions{})
	go client.Run(ctx)
	known := map[string]ambient.Pod{}
	for complete := false; !complete; {
		change, err := client.Next(ctx)
		if err != nil {
			return err
		}
		for _, pod := range change.Pods {
			known[pod.UID] = pod
		}
		complete = change.Complete
	}
	fmt.Printf("%s/%s is %q, and these are all: %t\n", web.Namespace, web.Name, known[web.UID].Phase, len(known) == 1)
	client.Annotate(web, ambient.StatusEnabled)
	fmt.Println(<-source.annotated)
	return nil
}
