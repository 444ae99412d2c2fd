// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"encoding/binary"
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

// settle waits until all is right again, ADDs included. No pod that was enrolled all the time may
// have made a connection uncaptured meanwhile. The others have their witnesses count from there.
func (n *node) settle(after string) {
	n.t.Helper()
	deadline := n.newDeadline()
	n.awaitUntil(deadline, after, n.finishADDs)
	look := n.awaitUntil(deadline, after, n.right)
	took := n.spent(deadline)
	all := time.Since(deadline.begin)
	n.t.Logf("%s: %d pods are right again after %s, of which other programs took %s; the last look took %s", after, len(n.pods),
		all.Round(time.Millisecond), (all - took).Round(time.Millisecond), look.Round(time.Millisecond))
	if took > n.slowest.took {
		n.slowest = recovery{after, took}
	}
	for _, p := range n.pods {
		p.judge()
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

// recovery is how long the node has taken after a fault, the look that shows it included.
type recovery struct {
	after string
	took  time.Duration
}

// finishADDs takes over the answers to ADDs, and returns an error while there are others.
func (n *node) finishADDs() error {
	for n.adding > 0 {
		select {
		case answer := <-n.added:
			n.finishADD(answer)
		default:
			return fmt.Errorf("%d ADDs have not returned; the last failure is: %v", n.adding, n.refused.Load())
		}
	}
	return nil
}

// await waits until something is right.
func (n *node) await(after string, right func() error) {
	n.t.Helper()
	n.awaitUntil(n.newDeadline(), after, right)
}

// awaitUntil waits until something is right, and returns how long the last look took. It looks for
// the last time when the deadline has come.
func (n *node) awaitUntil(deadline deadline, after string, right func() error) time.Duration {
	n.t.Helper()
	for {
		begin, last := time.Now(), n.isOver(deadline)
		err := right()
		if err == nil {
			return time.Since(begin)
		}
		if last {
			n.daemon.explain()
			n.t.Fatalf("%s, and after %s of %s: %v", after, *within, time.Since(deadline.begin).Round(time.Millisecond), err)
		}
		look := time.NewTimer(20 * time.Millisecond) // nothing reports every change of rules
		select {
		case <-look.C:
		case <-n.log.News():
		}
	}
}

// right returns what is not right on the node. It begins with the pod that was not right last.
func (n *node) right() error {
	uids := map[string]bool{}
	members := map[string]string{}
	for i := range n.pods {
		p := n.pods[(n.wrong+i)%len(n.pods)]
		if err := p.right(); err != nil {
			n.wrong = (n.wrong + i) % len(n.pods)
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if p.meshed {
			uids[p.uid] = true
			for _, a := range p.addresses {
				members[a.String()] = p.uid
			}
		}
	}
	return errors.Join(n.records(uids), n.sets(members), n.descriptors(len(uids)), n.others.right())
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
	listens, err := ambienttest.Listening(p.Netns, ambient.IstioNumbers())
	if err == nil && !listens {
		err = errors.New("the proxy does not listen there")
	}
	return err
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
		if plan = record.Plan; !slices.Contains(n.plans.pods, plan.Fingerprint()) {
			return fmt.Errorf("its record has another plan than pods have: %s", plan)
		}
	}
	for _, drift := range interception.Diff(plan, state) {
		if drift.Kind != interception.DriftForeign {
			return fmt.Errorf("the kernel differs from its plan: %s", drift)
		}
	}
	return nil
}

// plans are those that the node has to have.
type plans struct {
	pods []string // the fingerprints of a pod's plan: made in ADD, and while it runs
	host *interception.Plan
}

func newPlans() (plans, error) {
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	pod, err := ambient.PodPlan(ambient.DefaultOverrides(false), ambient.IstioNumbers(), facts, ambientconf.Owner)
	if err != nil {
		return plans{}, err
	}
	host, err := ambient.HostPlan(ambient.IstioNumbers(), facts, ambientconf.Owner)
	return plans{[]string{pod.Fingerprint(), pod.Sparing().Fingerprint()}, host}, err
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
	if drift := interception.Diff(n.plans.host, state); len(drift) > 0 {
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

// spare is how many files more than at the start a program may have open: connections come and go.
// A program that leaks one at each fault soon has more.
const spare = 4

// descriptors returns an error if a program has more files open than it needs. Node-ambient may
// have the namespaces of its pods, twice each (its own and the server's for the proxy), the host's
// and its own.
func (n *node) descriptors(pods int) error {
	for name, idle := range n.files {
		namespaces, others := n.open(name)
		if most := 2*pods + 2; namespaces > most {
			return fmt.Errorf("%s has %d network namespaces open with %d pods, want at most %d", name, namespaces, pods, most)
		}
		if kept := len(n.connections(name)); kept > mostConnections {
			return fmt.Errorf("%s has %d connections to the API server, want at most %d", name, kept, mostConnections)
		}
		if most := idle + spare; others > most {
			return fmt.Errorf("%s has %d files open that are no namespaces, and had %d at the start", name, others, idle)
		}
	}
	return nil
}

// countFiles counts the files that each program has open.
func (n *node) countFiles() {
	n.files = map[string]int{}
	for _, name := range []string{"install-cni", "node-watcher", "node-ambient"} {
		_, n.files[name] = n.open(name)
	}
}

// mostConnections is how many connections client-go keeps after many requests at once, and those of
// the watches of pods and namespaces.
const mostConnections = 25 + 2

// connections returns the sockets by which a program is connected to the API server, as the links
// of its descriptors name them.
func (n *node) connections(name string) map[string]bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", n.daemon.pid(name))) // the program may have ended
	address := n.server.Addr().As4()
	server := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(address[:]), n.server.Port())
	sockets := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		// The third field is the other end, and the tenth the inode of the socket.
		if fields := strings.Fields(line); len(fields) > 9 && fields[2] == server {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
	return sockets
}

// open returns how many network namespaces and how many other files a program has open, without its
// connections to the API server.
func (n *node) open(name string) (namespaces, others int) {
	dir, connections := fmt.Sprintf("/proc/%d/fd", n.daemon.pid(name)), n.connections(name)
	entries, _ := os.ReadDir(dir) // it may have ended
	for _, e := range entries {
		link, _ := os.Readlink(dir + "/" + e.Name()) // it may be closed by now
		if strings.HasPrefix(link, "net:[") || strings.HasSuffix(link, "/ns/net") || strings.HasPrefix(link, n.tree.Roots.Netns[1]) {
			namespaces++
		} else if link != "" && !connections[link] {
			others++
		}
	}
	return namespaces, others
}
