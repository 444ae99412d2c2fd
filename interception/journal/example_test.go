// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
	"github.com/meshcni/meshcni/interception/journal"
)

// A plugin's ADD records what it applied, and a CHECK compares the kernel with the record.
func Example() {
	run, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(run)
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 4140}, "to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	dataplane := fake.New(fake.Options{}) // a plugin uses package nftables or choice
	netns := dataplane.Netns("cart-0")    // a plugin uses interception.OpenNetns on CNI_NETNS
	ctx := context.Background()

	// ADD
	if err := dataplane.Apply(ctx, netns, plan); err != nil {
		fmt.Println(err)
		return
	}
	j := journal.Journal{Directory: filepath.Join(run, "journal")}
	cart := journal.Attachment{Network: "pods", ContainerID: "0a1b2c", Interface: "eth0"}
	err = j.Write(journal.Record{
		Attachment: cart, Time: time.Now(), Planner: "1.2.3", Namespace: "shop", Name: "cart-0", UID: "1c6b2f1e",
		Netns: "/run/netns/cni-1", NetnsID: netns.ID(), Plan: plan,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// CHECK, after another program flushed the rules
	if err := dataplane.Remove(ctx, netns, "my-mesh"); err != nil {
		fmt.Println(err)
		return
	}
	record, err := j.Read(cart)
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := dataplane.Observe(ctx, netns, record.Plan.Owner)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, drift := range interception.Diff(record.Plan, state) {
		fmt.Println(drift)
	}

	// GC, once no container is left
	forgotten, err := j.Keep("pods", nil)
	fmt.Println(forgotten, err)
	// Output:
	// nat hook output: missing nat.output.output (connections from the pod): want hook output: tcp -> jump output
	// nat/output: missing: want chain output
	// nat/output: missing output.capture (to the proxy): want tcp -> redirect to :4140
	// [pods 0a1b2c eth0] <nil>
}
