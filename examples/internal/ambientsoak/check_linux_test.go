// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

// settle waits until all is right again, and then has the witnesses count from there.
func (n *node) settle(after string) {
	n.t.Helper()
	begin := time.Now()
	n.await(after, n.right)
	n.t.Logf("%s: %d pods are right again after %s", after, len(n.pods), time.Since(begin).Round(time.Millisecond))
	for _, p := range n.pods {
		if p.meshed && p.witnessed == "" {
			p.witnessed = p.leaks()
		}
	}
	for range min(3, len(n.pods)) {
		p := n.pods[n.random.IntN(len(n.pods))]
		n.await(after, func() error { return visit(n.t.Context(), p.namespace, n.worldAddresses()[n.random.IntN(2)]) })
		n.await(after, func() error { return visit(n.t.Context(), n.world, p.addresses[n.random.IntN(2)]) })
	}
}

// await waits until something is right.
func (n *node) await(after string, right func() error) {
	n.t.Helper()
	deadline := time.After(*within)
	for {
		err := right()
		if err == nil {
			return
		}
		look := time.NewTimer(20 * time.Millisecond) // nothing reports every change of rules
		select {
		case <-look.C:
		case <-n.log.News():
		case <-deadline:
			n.t.Fatalf("%s, and after %s: %v", after, *within, err)
		}
	}
}

// right returns what is not right on the node.
func (n *node) right() error {
	uids := map[string]bool{}
	members := map[string]string{}
	for _, p := range n.pods {
		if err := p.right(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if p.meshed {
			uids[p.uid] = true
			for _, a := range p.addresses {
				members[a.String()] = p.uid
			}
		}
	}
	return errors.Join(n.records(uids), n.sets(members), n.namespaces(len(uids)))
}

// right returns what is not right about the pod.
func (p *pod) right() error {
	n := p.node
	object, found := n.cluster.Pod(podNamespace, p.name)
	want := map[bool]string{true: string(ambient.StatusEnabled)}[p.meshed]
	if got := object.Annotations[statusKey]; !found || got != want {
		return fmt.Errorf("it has the status %q, want %q", got, want)
	}
	if err := p.rules(); err != nil {
		return err
	}
	if n.proxy.Serves(p.uid) != p.meshed {
		return fmt.Errorf("the proxy serves it: %t", !p.meshed)
	}
	if !p.meshed {
		return nil
	}
	witness, err := ambienttest.NewWitness(p.Netns, ambient.IstioNumbers())
	if err != nil {
		return err
	}
	defer witness.Close()
	if listens, err := witness.Listening(); err != nil || !listens {
		return fmt.Errorf("the proxy listens there: %t, %w", listens, err)
	}
	return nil
}

// rules returns an error if the kernel does not hold the pod's plan, or something else.
func (p *pod) rules() error {
	n := p.node
	state, err := n.dataplane.Observe(n.t.Context(), p.Netns, ambientconf.Owner)
	if err != nil {
		return err
	}
	var plan *interception.Plan
	if p.meshed {
		record, err := n.journal().Read(journal.Attachment{Network: "ambient", ContainerID: p.uid, Interface: "pod"})
		if err != nil {
			return err
		}
		plan = record.Plan
		facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
		full, err := ambient.PodPlan(ambient.DefaultOverrides(false), ambient.IstioNumbers(), facts, ambientconf.Owner)
		if err != nil || plan.Fingerprint() != full.Fingerprint() && plan.Fingerprint() != full.Sparing().Fingerprint() {
			return fmt.Errorf("its record has another plan than pods have: %s, %w", plan, err)
		}
	}
	for _, drift := range interception.Diff(plan, state) {
		if drift.Kind != interception.DriftForeign {
			return fmt.Errorf("the kernel differs from its plan: %s", drift)
		}
	}
	return nil
}

func (n *node) journal() journal.Journal {
	return journal.Journal{Directory: filepath.Join(n.path("run"), "ambient")}
}

// records returns an error unless there is a record of each of these pods and of no other.
func (n *node) records(uids map[string]bool) error {
	attachments, err := n.journal().Attachments()
	if err != nil {
		return err
	}
	for _, a := range attachments {
		if !uids[a.ContainerID] {
			return fmt.Errorf("there is a record of %s", a)
		}
	}
	if len(attachments) != len(uids) {
		return fmt.Errorf("there are %d records of %d pods", len(attachments), len(uids))
	}
	return nil
}

// sets returns an error unless the host has its plan, and in its sets these addresses with the UIDs
// of their pods.
func (n *node) sets(want map[string]string) error {
	state, err := n.dataplane.Observe(n.t.Context(), n.hostNetns, ambientconf.Owner)
	if err != nil {
		return err
	}
	plan, err := ambient.HostPlan(ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, ambientconf.Owner)
	if err != nil {
		return err
	}
	if drift := interception.Diff(plan, state); len(drift) > 0 {
		return fmt.Errorf("the host differs from its plan: %s", drift[0])
	}
	var wrong []string
	found := 0
	for _, members := range state.Owners {
		for address, uid := range members {
			found++
			if want[fmt.Sprint(address)] != uid {
				wrong = append(wrong, fmt.Sprintf("%v of %s", address, uid))
			}
		}
	}
	if slices.Sort(wrong); len(wrong) > 0 || found != len(want) {
		return fmt.Errorf("the host's sets have %d members, want %d; wrong are %q", found, len(want), wrong)
	}
	return nil
}

// namespaces returns an error if node-ambient holds more namespaces open than those of its pods,
// twice each (its own and the server's for the proxy), the host's and its own.
func (n *node) namespaces(pods int) error {
	open := 0
	for _, link := range n.links() {
		if strings.HasPrefix(link, "net:[") || strings.HasSuffix(link, "/ns/net") || strings.HasPrefix(link, n.tree.Roots.Netns[1]) {
			open++
		}
	}
	if most := 2*pods + 2; open > most {
		return fmt.Errorf("node-ambient has %d network namespaces open with %d pods, want at most %d", open, pods, most)
	}
	return nil
}

// descriptors returns how many files node-ambient has open.
func (n *node) descriptors() int { return len(n.links()) }

func (n *node) links() (links []string) {
	dir := fmt.Sprintf("/proc/%d/fd", n.daemon.pid("node-ambient"))
	entries, _ := os.ReadDir(dir) // it may have ended
	for _, e := range entries {
		link, _ := os.Readlink(dir + "/" + e.Name()) // it may be closed by now
		links = append(links, link)
	}
	return links
}
