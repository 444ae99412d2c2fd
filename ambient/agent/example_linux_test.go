// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// cluster is where another mesh's agent knows its pods from, for example an informer.
type cluster struct{ changes chan ambient.Change }

func (c cluster) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-c.changes:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

// Annotate would patch the pod.
func (cluster) Annotate(pod interception.Pod, status ambient.Status) {
	fmt.Printf("%s/%s is %q\n", pod.Namespace, pod.Name, status)
}

// The agent of a node runs as root, in the host's network and process namespaces.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, cluster{make(chan ambient.Change)}); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pods cluster) error {
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		return err
	}
	finder, err := podnetns.NewFinder(podnetns.Roots{})
	if err != nil {
		return err
	}
	host, err := interception.HostNetns(interception.NetnsOptions{})
	if err != nil {
		return err
	}
	defer host.Close()
	a, err := agent.New(ctx, agent.Options{
		Socket: "/var/run/ztunnel/ztunnel.sock", Dataplane: dataplane, Finder: finder, Feed: pods, Annotator: pods,
		Journal: journal.Journal{Directory: "/var/run/my-mesh/ambient"}, Owner: "my-ambient",
		Policy: ambient.IstioPolicy(), Vocabulary: ambient.Istio(), Defaults: ambient.DefaultOverrides(true),
		Numbers: ambient.IstioNumbers(), Host: host, Sets: dataplane,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
