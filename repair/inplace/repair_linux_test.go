// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

const uid, otherUID, container, address = fakenode.UID, fakenode.OtherUID, fakenode.Container, fakenode.Address

// pod returns a running pod with a sidecar.
func pod() repair.Pod {
	return repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-0", UID: uid, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers: []interception.Container{{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}},
		},
		ResourceVersion: "7", NodeName: "node-1", Phase: repair.PhaseRunning,
		IPs:      []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")},
		Statuses: []repair.ContainerStatus{{Name: "app", ContainerID: container}},
	}
}

func istio() sidecar.Mesh { return sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"} }

func plan(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
	planned, err := istio().Plan(pod, facts)
	return planned.Plan, err
}

func planned(t testing.TB, p repair.Pod) *interception.Plan {
	t.Helper()
	plan, err := plan(p.Pod, interception.Facts{IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// bench is a repairer on a node, and its warnings.
type bench struct {
	*inplace.Repairer
	node       *fakenode.Node
	candidates []choice.Candidate
	warnings   []string
}

// newBench prefers the dataplane of that name.
func newBench(t testing.TB, n *fakenode.Node, preferred string) *bench {
	t.Helper()
	candidates, err := standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Flavour: iptables.NFT})
	if err != nil {
		t.Fatal(err)
	}
	if preferred == choice.IPTables {
		slices.Reverse(candidates)
	}
	b := &bench{node: n, candidates: candidates}
	b.Repairer = newRepairer(t, b)
	return b
}

func newRepairer(t testing.TB, b *bench) *inplace.Repairer {
	t.Helper()
	r, err := inplace.NewRepairer(inplace.Options{
		Finder: b.node.Finder(), Dataplanes: b.candidates, Planner: "v2",
		Mesh: istio(), Owner: istio().Owner, Plan: plan,
		OnWarning: func(_ repair.Target, err error) { b.warnings = append(b.warnings, err.Error()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) diagnose(t *testing.T, p repair.Pod) repair.Finding {
	t.Helper()
	seen, err := b.Observe(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return repair.Diagnose(p, repair.Criteria{
		Mesh: istio(), Planner: "v1", Observed: seen,
	})
}

func (b *bench) expect(t *testing.T, p repair.Pod, verdict repair.Verdict, reason repair.Reason) repair.Finding {
	t.Helper()
	f := b.diagnose(t, p)
	if f.Verdict != verdict || f.Reason != reason {
		t.Fatalf("got %s; want %s, %s", f, verdict, reason)
	}
	return f
}

// living is a pod with connections, known to the node by a process.
type living struct {
	*bench
	*dataplanetest.Pod
	connections []*dataplanetest.Connection
}

func newLiving(t *testing.T, preferred string) *living {
	t.Helper()
	l := newStray(t, preferred)
	l.node.Process(l.Path(), fakenode.Cgroup(uid, "cri-containerd"))
	return l
}

// newStray returns a pod with connections that only its address leads to.
func newStray(t *testing.T, preferred string) *living {
	t.Helper()
	o := dataplanetest.PodOptions{Ports: []uint16{80, 8080}, ProxyPorts: []uint16{15001, 15006}}
	// iptables accepts only users that exist.
	if preferred == choice.IPTables {
		o.ProxyUID, o.ProxyGID = 1337, 1337
	}
	network := dataplanetest.NewPod(t, o)
	n := fakenode.New(t)
	n.Roots.Netns[0] = filepath.Dir(network.Path())
	return &living{bench: newBench(t, n, preferred), Pod: network}
}

// probe is a new connection, and the port where it arrives if it is captured.
type probe struct {
	dataplanetest.Probe
	captured uint16
}

// probes returns one for each direction and family, the inbound ones first.
func probes() []probe {
	var all []probe
	for _, p := range []struct {
		from     dataplanetest.Place
		to       string
		captured uint16
	}{
		{dataplanetest.Elsewhere, "10.244.1.10:8080", 15006},
		{dataplanetest.Elsewhere, "[fd00:10:244:1::a]:8080", 15006},
		{dataplanetest.InPod, "198.51.100.7:443", 15001},
		{dataplanetest.InPod, "[2001:db8:7::7]:443", 15001},
	} {
		all = append(all, probe{dataplanetest.Probe{From: p.from, Dst: netip.MustParseAddrPort(p.to)}, p.captured})
	}
	return all
}

// connect opens new connections, and keeps them.
func (l *living) connect(t *testing.T, captured bool, all []probe) {
	t.Helper()
	for _, p := range all {
		c, err := l.Connect(t.Context(), p.Probe)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		want := p.Dst.Port()
		if captured {
			want = p.captured
		}
		if c.Observation.Port != want {
			t.Errorf("%s came to port %d, want %d", p.Probe, c.Observation.Port, want)
		}
		l.connections = append(l.connections, c)
	}
}

// speak sends and receives on both sides of all connections.
func (l *living) speak(t *testing.T) {
	t.Helper()
	for i, c := range l.connections {
		for _, side := range []dataplanetest.Side{dataplanetest.Side(i % 2), dataplanetest.Side(1 - i%2)} {
			if verdict, err := c.Say(t.Context(), side); err != nil || verdict != dataplanetest.Accepted {
				t.Errorf("%s, %s: the %s isn't heard any more: %s, %v", c.Probe, c.Observation, side, verdict, err)
			}
		}
	}
}

// breakRules removes the pod's rules, and the captured connections with them.
func (l *living) breakRules(t *testing.T) {
	t.Helper()
	ns, err := interception.OpenNetns(l.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	for _, c := range l.candidates {
		if err := c.Dataplane.Remove(t.Context(), ns, "istio-cni"); err != nil {
			t.Fatal(err)
		}
	}
	l.connections = nil
}

// halve removes the rules that capture the pod's own connections.
func (l *living) halve(t *testing.T, p repair.Pod) {
	t.Helper()
	p.Annotations = maps.Clone(p.Annotations)
	p.Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = ""
	if err := l.Apply(t.Context(), l.candidates[0].Dataplane, planned(t, p).Sparing()); err != nil {
		t.Fatal(err)
	}
}

// TestRepair repairs a pod that was created before the plugin was installed, again when its rules
// are gone, and again when half of them are, with both dataplanes and in both modes: what escaped
// is captured, and every live connection goes on.
func TestRepair(t *testing.T) {
	t.Parallel()
	for _, dataplane := range []string{choice.NFTables, choice.IPTables} {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(dataplane+" "+mode, func(t *testing.T) {
				t.Parallel()
				l, p := newLiving(t, dataplane), pod()
				p.Annotations["sidecar.istio.io/interceptionMode"] = mode
				l.node.Result(container, "/var/run/netns/pod", uid)
				in, out := probes()[:2], probes()[2:]
				l.connect(t, false, probes())
				l.heal(t, p, repair.ReasonNoRules)
				l.connect(t, true, probes())
				l.speak(t)
				l.breakRules(t)
				l.connect(t, false, probes())
				l.heal(t, p, repair.ReasonDrift)
				l.connect(t, true, probes())
				l.halve(t, p)
				l.connect(t, true, in)
				l.connect(t, false, out)
				l.heal(t, p, repair.ReasonDrift)
				l.connect(t, true, probes())
				l.speak(t)
			})
		}
	}
}

// heal repairs what is broken, while all connections go on, and checks the record.
func (l *living) heal(t *testing.T, p repair.Pod, broken repair.Reason) {
	t.Helper()
	f := l.expect(t, p, repair.Broken, broken)
	if err := l.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	l.awaitAddresses(t, f.Plan)
	l.speak(t)
	l.expect(t, p, repair.Healthy, repair.ReasonAsRecorded)
	record, err := l.node.Finder().Record(podnetns.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
	if err != nil || !record.Plan.IsSparing() || record.Planner != "v2" || record.UID != uid {
		t.Errorf("recorded %+v, %v", record, err)
	}
	if len(l.warnings) > 0 {
		t.Errorf("warned of %v", l.warnings)
	}
}

// awaitAddresses waits until the addresses that a plan gives the pod are usable.
func (l *living) awaitAddresses(t *testing.T, plan *interception.Plan) {
	t.Helper()
	if err := l.Apply(t.Context(), nothing{}, plan); err != nil {
		t.Fatal(err)
	}
}

// nothing is a dataplane that applies nothing.
type nothing struct{ interception.Dataplane }

func (nothing) Apply(context.Context, *interception.Netns, *interception.Plan) error { return nil }

// TestWidened: the record decides, so a user who edits the pod cannot make root widen its
// exclusions.
func TestWidened(t *testing.T) {
	t.Parallel()
	l, p := newLiving(t, choice.NFTables), pod()
	l.node.Record(uid, nil, "", planned(t, p))
	p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "8080"
	p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "443"
	f := l.expect(t, p, repair.Broken, repair.ReasonDrift)
	if !f.Has(repair.EvidenceAnnotations) {
		t.Errorf("the widened annotations are no evidence: %s", f)
	}
	seen, err := l.Observe(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Repair(t.Context(), p, seen.Today); !errors.Is(err, inplace.ErrChanged) {
		t.Errorf("the plan of today: got %v", err)
	}
	l.connect(t, false, probes())
	if err := l.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	l.connect(t, true, probes())
	l.expect(t, p, repair.Changed, repair.ReasonAnnotationsChanged)
	delete(p.Annotations, "sidecar.istio.io/status")
	l.expect(t, p, repair.Changed, repair.ReasonAnnotationsChanged)
}

// TestRepairRefuses: a refusal changes nothing.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	l, p := newLiving(t, choice.NFTables), pod()
	widened := pod()
	widened.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "8080"
	changed := func(plan *interception.Plan) {
		t.Helper()
		if err := l.Repair(t.Context(), p, plan); !errors.Is(err, inplace.ErrChanged) {
			t.Errorf("got %v", err)
		}
	}
	changed(planned(t, widened))
	again := pod()
	again.UID = otherUID
	var refusal *podnetns.RefusalError
	if err := l.Repair(t.Context(), again, planned(t, p)); !errors.As(err, &refusal) || refusal.Obstacle != podnetns.ObstacleUnproven {
		t.Errorf("got %v", err)
	}
	l.connect(t, false, probes())
	if err := l.Apply(t.Context(), l.candidates[0].Dataplane, planned(t, widened)); err != nil {
		t.Fatal(err)
	}
	l.expect(t, p, repair.Suspect, repair.ReasonNoRecord)
	changed(planned(t, p))
}

// TestObserveAsksNoProcesses looks at a pod that a record leads to, but does not repair it while
// another pod's process is inside.
func TestObserveAsksNoProcesses(t *testing.T) {
	t.Parallel()
	n, p := fakenode.New(t), pod()
	ns := n.Namespace("cni-1", address)
	n.Record(uid, ns, "/var/run/netns/cni-1", planned(t, p))
	n.Process(ns.Path(), fakenode.Cgroup(otherUID, "cri-containerd"))
	b := newBench(t, n, choice.NFTables)
	f := b.expect(t, p, repair.Broken, repair.ReasonDrift)
	var refusal *podnetns.RefusalError
	if err := b.Repair(t.Context(), p, f.Plan); !errors.As(err, &refusal) || refusal.Obstacle != podnetns.ObstacleShared {
		t.Errorf("got %v", err)
	}
}

// TestNotLookedFor: of a pod outside the mesh nothing is observed; of one that is not found, still
// its record.
func TestNotLookedFor(t *testing.T) {
	t.Parallel()
	n, p := fakenode.New(t), pod()
	b := newBench(t, n, choice.NFTables)
	delete(p.Annotations, "sidecar.istio.io/status")
	if seen, err := b.Observe(t.Context(), p); err != nil || seen.Record != nil || seen.State != nil {
		t.Errorf("not in the mesh: got %+v, %v", seen, err)
	}
	n.Record(uid, nil, "", nil)
	var refusal *podnetns.RefusalError
	if seen, err := b.Observe(t.Context(), p); !errors.As(err, &refusal) || seen.Record == nil || seen.State != nil || seen.Unrecorded {
		t.Errorf("recorded and gone: got %+v, %v", seen, err)
	}
	n.Record(otherUID, nil, "", nil)
	if seen, err := b.Observe(t.Context(), p); err != nil || seen.Record == nil || seen.Record.UID != otherUID || !seen.Unrecorded {
		t.Errorf("recorded of another: got %+v, %v", seen, err)
	}
}

// TestDamagedRecord: a pod whose record cannot be read does not count as one without a record.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	l, p := newLiving(t, choice.NFTables), pod()
	f := l.expect(t, p, repair.Broken, repair.ReasonNoRules)
	l.node.Record(uid, nil, "", planned(t, p))
	if err := os.WriteFile(filepath.Join(l.node.Roots.Journal, "pods@"+container+"@eth0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if seen, err := l.Observe(t.Context(), p); err == nil || !strings.Contains(err.Error(), "may be that of pod shop/cart-0") || seen.Unrecorded {
		t.Errorf("observed %+v: %v", seen, err)
	}
	if err := l.Repair(t.Context(), p, f.Plan); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("repaired: %v", err)
	}
}

// TestNotRecorded repairs only once, even if the repair cannot be recorded. The rules then stay,
// whatever the pod asks for later.
func TestNotRecorded(t *testing.T) {
	t.Parallel()
	l, p := newLiving(t, choice.NFTables), pod()
	f := l.expect(t, p, repair.Broken, repair.ReasonNoRules)
	if err := l.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	if len(l.warnings) != 1 || !strings.HasPrefix(l.warnings[0], inplace.ErrNotRecorded.Error()) {
		t.Errorf("warned of %v", l.warnings)
	}
	l.expect(t, p, repair.Healthy, repair.ReasonAsToday)
	widened := p
	widened.Annotations = maps.Clone(p.Annotations)
	widened.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "8080"
	l.expect(t, widened, repair.Suspect, repair.ReasonNoRecord)
	if err := l.Repair(t.Context(), widened, planned(t, widened)); !errors.Is(err, inplace.ErrChanged) {
		t.Errorf("widened since: got %v", err)
	}
	l.node.Record(uid, nil, "", planned(t, p))
	l.expect(t, p, repair.Healthy, repair.ReasonAsRecorded)
	if err := l.Repair(t.Context(), p, f.Plan); err != nil {
		t.Error(err)
	}
}

// TestForgets: a record is removed again if the runtime has unmounted its namespace meanwhile.
func TestForgets(t *testing.T) {
	t.Parallel()
	n, p := fakenode.New(t), pod()
	ns := n.Namespace("cni-1", address)
	n.Record(uid, ns, "/var/run/netns/cni-1", planned(t, p))
	b := newBench(t, n, choice.NFTables)
	f := b.expect(t, p, repair.Broken, repair.ReasonDrift)
	b.candidates[0].Dataplane = unmounting{b.candidates[0].Dataplane, func() { _ = ns.Close() }}
	b.Repairer = newRepairer(t, b)
	if err := b.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	if all, err := n.Journal().Attachments(); err != nil || len(all) > 0 {
		t.Errorf("recorded: %v, %v", all, err)
	}
}

// unmounting unmounts the namespace once its rules are applied.
type unmounting struct {
	interception.Dataplane
	unmount func()
}

func (u unmounting) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	defer u.unmount()
	return u.Dataplane.Apply(ctx, ns, p)
}

// TestUserNamespace repairs a pod with a user namespace of its own, which owns its network
// namespace.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	n, p := fakenode.New(t), pod()
	ns, err := sandbox.NewNamespaceOfUsers(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	if err := ns.AddAddress(t.Context(), "lo", netip.MustParsePrefix(address)); err != nil {
		t.Fatal(err)
	}
	n.Process(ns.Path(), fakenode.Cgroup(uid, "crio"))
	n.Result(container, "/proc/4711/ns/net", uid) // by process id, which is not followed
	b := newBench(t, n, choice.NFTables)
	f := b.expect(t, p, repair.Broken, repair.ReasonNoRules)
	if err := b.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	b.expect(t, p, repair.Healthy, repair.ReasonAsRecorded)
}

// TestOptions refuses incomplete options.
func TestOptions(t *testing.T) {
	t.Parallel()
	bad := istio()
	bad.Dialect.Membership.ProxyContainer = ""
	for want, o := range map[string]inplace.Options{
		"no Mesh or no Plan is given": {Plan: plan},
		"no Plan is given":            {Mesh: istio()},
		"mesh: invalid dialect":       {Mesh: bad, Plan: plan},
		"owner of the mesh's rules: ": {Mesh: istio(), Plan: plan},
	} {
		_, err := inplace.NewRepairer(o)
		for _, missing := range []string{"no Finder is given", want} {
			if !strings.Contains(fmt.Sprint(err), missing) {
				t.Errorf("got %v, want: %s", err, missing)
			}
		}
	}
}
