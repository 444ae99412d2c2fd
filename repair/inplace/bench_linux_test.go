// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

// BenchmarkObserve looks at one pod of a node with 1,000 processes and 100 records of other pods.
func BenchmarkObserve(b *testing.B) {
	n, p := fakenode.New(b), pod()
	ns := n.Namespace("cni-1", address)
	n.Record(uid, ns, "/var/run/netns/cni-1", planned(b, p))
	n.Result(container, "/var/run/netns/cni-1", uid)
	n.Process(ns.Path(), fakenode.Cgroup(uid, "cri-containerd"))
	for i := range 1000 {
		n.Process("/proc/1/ns/net", fakenode.Cgroup(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i/5), "cri-containerd"))
	}
	for i := range 100 {
		name := fmt.Sprintf("web-%d", i)
		record := journal.Record{
			Attachment: journal.Attachment{Network: "pods", ContainerID: name, Interface: "eth0"}, Time: time.Now().UTC(), Planner: "v1",
			Namespace: "shop", Name: name, UID: otherUID, NetnsID: n.ID(ns.Path()), Plan: planned(b, p),
		}
		if err := n.Journal().Write(record); err != nil {
			b.Fatal(err)
		}
	}
	r := newBench(b, n, choice.NFTables)
	for b.Loop() {
		if seen, err := r.Observe(b.Context(), p); err != nil || seen.State == nil {
			b.Fatal(err)
		}
	}
}
