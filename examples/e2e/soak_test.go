// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak lasts")
	soakSeed = flag.Uint64("soak-seed", 0, "the seed of its faults; 0: any")
)

const (
	// mostFault limits how long a node may take to heal. The kubelet takes longest: it restarts a
	// repeatedly killed container after a delay that doubles each time.
	mostFault = 6 * time.Minute
	// daemonKills is the time between two kills of a daemon.
	daemonKills = 4 * time.Minute
	// revocations is the time between two revocations of all tokens, each of which restarts the
	// kubelets.
	revocations = 3 * time.Minute
	// rotationTakes is the length of a day in which a token is rotated: its life, and the time to
	// set up.
	rotationTakes = 12 * time.Minute
	// shadow is how long the runtime may still use the list from before it healed: it handles the
	// change notification as soon as it can.
	shadow = 5 * time.Second
	// repairResync is the interval at which the daemons check all pods.
	repairResync = 10 * time.Second
	// startersPerNode is the number of concurrent starters of pods on a node.
	startersPerNode = 4
)

type day struct {
	t      *testing.T
	s      *scenario.Scenario
	random *rand.Rand
	seed   uint64
	begin  time.Time
	nodes  []*soaked
	// steady is the node whose daemon and node-watcher are never killed, so that growth shows on
	// it, and a rotation is their own work.
	steady *cluster.Node
	pods   *churn
	wounds []wound

	revoked        time.Time
	awaitsRotation bool
	rotations      []rotation
}

type wound struct {
	name, node    string
	begin, healed time.Time
	took          time.Duration // from the end of the cause until everything was right again
}

// TestSoak runs a day in production. Pods come and go as fast as the machine allows, and one fault
// after the other happens. All pods of the mesh start captured, all others are left alone,
// everything heals, and the nodes end with what they had at the start.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Fatal("it lasts as long as -soak says; run: make e2e-soak")
	}
	d := newDay(t)
	defer d.report()
	d.pass()
	d.expectPods()
	d.expectPlans()
	d.expectNothingLeft()
	d.expectFlat()
	d.expectMemory()
}

// pass runs pods and faults until the day is over, and all remaining pods are ready.
func (d *day) pass() {
	d.t.Helper()
	ctx, end := context.WithCancel(d.t.Context())
	var watching sync.WaitGroup
	defer func() { end(); d.pods.group.Wait(); watching.Wait() }()
	watching.Go(func() { d.watchProcesses(ctx) })
	d.pods.start(ctx)
	for time.Since(d.begin) < *soakFor {
		if d.rotationDue() {
			d.awaitRotations()
		}
		d.wound()
		d.pause(5 * time.Second)
	}
}

// newDay installs the product with all ways of repair.
func newDay(t *testing.T) *day {
	t.Helper()
	s := suite.Begin(t)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	repairing(s, true, scenario.Values{"repairResync": repairResync.String(), "pprofAddress": profiles})
	shortenTokens(s)
	d := &day{
		t: t, s: s, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), steady: s.PointToPoint, awaitsRotation: *soakFor >= rotationTakes,
		pods: &churn{s: s, perNode: startersPerNode, servers: map[*cluster.Node]*corev1.Pod{}, spans: map[string]span{}, live: map[string]*corev1.Pod{}},
	}
	for node, network := range map[*cluster.Node]cluster.Network{s.Bridge: cluster.BridgeNetwork, s.PointToPoint: cluster.PointToPointNetwork} {
		n := &soaked{
			Node: node, network: network, primary: node.NetworkConfiguration(network), daemon: s.Daemon(node), killed: map[string]string{},
			samples: map[string][]sample{},
		}
		n.tokenFile = n.tokenPath()
		d.nodes = append(d.nodes, n)
		d.pods.servers[node] = s.Pod(scenario.Workload{Name: "server-on-" + node.Name, Node: node.Name})
		// The first pod of the mesh makes the plugin create its files.
		s.Delete(s.Pod(scenario.Workload{Name: "first-on-" + node.Name, Node: node.Name, Injected: true}))
		var err error
		if n.plugin, err = os.ReadFile(node.Path(pluginFile)); err != nil {
			t.Fatal(err)
		}
		n.files = n.productFiles()
	}
	slices.SortFunc(d.nodes, func(a, b *soaked) int { return strings.Compare(a.Name, b.Name) })
	d.begin = time.Now()
	return d
}

// choose picks the next fault and its node: all kinds of faults are equally likely, and so are the
// possible ones of a kind.
func (d *day) choose() (fault, *soaked) {
	kinds := []string{"kill", "tamper", "expire", "disconnect"}
	kind := kinds[d.random.IntN(len(kinds))]
	type choice struct {
		fault
		*soaked
	}
	var choices []choice
	for _, f := range faults() {
		for _, n := range d.nodes {
			if strings.HasPrefix(f.name, kind) && (f.possible == nil || f.possible(d, n)) {
				choices = append(choices, choice{f, n})
			}
		}
	}
	chosen := choices[d.random.IntN(len(choices))]
	return chosen.fault, chosen.soaked
}

// wound causes a fault, and waits until it has healed.
func (d *day) wound() {
	d.t.Helper()
	f, n := d.choose()
	w := wound{name: f.name, node: n.Name, begin: time.Now()}
	if err := f.happen(d, n); err != nil {
		d.t.Fatalf("%s on %s: %v", f.name, n.Name, err)
	}
	if f.name == "kill the daemon" {
		n.daemonKilled, n.daemonKills = time.Now(), n.daemonKills+1
	}
	over, why := time.Now(), ""
	defer func() {
		if d.t.Failed() {
			d.t.Logf("%s on %s: %s", f.name, n.Name, why)
		}
	}()
	d.s.AwaitFor(mostFault, n.Name+" to heal: "+f.name, func(ctx context.Context) (bool, error) {
		if why = d.whole(ctx, n); why == "" && f.healed != nil && !f.healed(d, n) {
			why = "what was killed isn't there again"
		}
		return why == "", nil
	})
	w.healed, w.took = time.Now(), time.Since(over)
	d.wounds = append(d.wounds, w)
	d.t.Logf("%s  %s: %s; healed in %v", d.clock(w.begin.Sub(d.begin)), n.Name, f.name, w.took.Round(time.Millisecond))
}

func (d *day) clock(at time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(at.Minutes()), int(at.Seconds())%60)
}

// expectPods checks that each pod became ready, that no pod of the mesh was ready and uncaptured
// unless its node's list lacked the plugin while it started, and that the daemons repaired only
// such pods.
func (d *day) expectPods() {
	d.t.Helper()
	if err := errors.Join(d.pods.failures...); err != nil {
		d.t.Error(err)
	}
	for _, e := range d.pods.escapes {
		if !d.lackedPlugin(e.span) {
			d.t.Errorf("pod %s on %s was ready, and not captured: %s", e.pod, e.node.Name, e.seen)
		}
	}
	d.s.Do("list events", func(ctx context.Context) error {
		events, err := d.s.Cluster.Client.CoreV1().Events(d.s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if !d.lackedPlugin(d.pods.spans[e.InvolvedObject.Name]) {
				d.t.Errorf("%s of pod %s: %s", e.Reason, e.InvolvedObject.Name, e.Message)
			}
		}
		return nil
	})
}

// lackedPlugin reports whether the list of a pod's node lacked the plugin at some time while the
// pod started.
func (d *day) lackedPlugin(s span) bool {
	return slices.ContainsFunc(d.wounds, func(w wound) bool {
		return s.node != nil && w.node == s.node.Name && strings.Contains(w.name, "list") &&
			w.begin.Before(s.made) && s.begin.Before(w.healed.Add(shadow))
	})
}

// expectPlans checks that the kernel holds the plan of each pod of the mesh, that real connections
// are captured, and that other pods have no rules.
func (d *day) expectPlans() {
	d.t.Helper()
	dataplane, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, n := range d.nodes {
		d.expectRecords(n, dataplane)
	}
	for name, pod := range d.pods.live {
		if err := d.pods.expectCapture(pod, d.pods.spans[name]); err != nil {
			d.t.Error(err)
		}
		if rules := d.s.Rules(pod); rules != "" && !d.pods.spans[name].mesh {
			d.t.Errorf("pod %s is outside of the mesh, and has rules:\n%s", name, rules)
		}
	}
}

// expectRecords compares the plans in a node's journal with what the kernel holds.
func (d *day) expectRecords(n *soaked, dataplane interception.Dataplane) {
	d.t.Helper()
	records := journal.Journal{Directory: n.Path(journalDirectory)}
	attachments, err := records.Attachments()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, a := range attachments {
		record, err := records.Read(a)
		if err != nil {
			d.t.Error(err)
			continue
		}
		ns, err := interception.OpenNetns(n.Path("/run/netns/"+filepath.Base(record.Netns)), interception.NetnsOptions{})
		if err != nil {
			d.t.Errorf("pod %s on %s: %v", record.Name, n.Name, err)
			continue
		}
		state, err := dataplane.Observe(d.t.Context(), ns, record.Plan.Owner)
		if err := errors.Join(err, ns.Close()); err != nil {
			d.t.Errorf("pod %s on %s: %v", record.Name, n.Name, err)
		}
		for _, drift := range interception.Diff(record.Plan, state) {
			d.t.Errorf("pod %s on %s: %s", record.Name, n.Name, drift)
		}
	}
}

// expectNothingLeft checks that the nodes have what they had at the start, and what existing pods
// need.
func (d *day) expectNothingLeft() {
	d.t.Helper()
	for _, n := range d.nodes {
		d.s.AwaitNode(n.Node, true)
		var left []string
		err := patiently(func(ctx context.Context) (bool, error) {
			var err error
			left, err = d.left(ctx, n)
			return len(left) == 0, err
		})
		if err != nil {
			d.t.Errorf("%s: %v:\n%s", n.Name, err, strings.Join(left, "\n"))
		}
	}
}

// expectFlat checks that only killed daemons have ended, and that those of the steady node have not
// grown.
func (d *day) expectFlat() {
	d.t.Helper()
	for _, n := range d.nodes {
		now := d.s.Daemon(n.Node)
		if now.UID != n.daemon.UID || int(now.Status.ContainerStatuses[0].RestartCount) != n.daemonKills {
			d.t.Errorf("%s: the daemon was %s and is %s, killed %d times: %+v", n.Name, n.daemon.Name, now.Name, n.daemonKills, now.Status.ContainerStatuses)
		}
		if n.Node != d.steady {
			continue
		}
		for _, program := range watched() {
			samples := n.samples[program]
			if len(samples) == 0 || slices.ContainsFunc(samples, func(s sample) bool { return s.pid != samples[0].pid }) {
				d.t.Errorf("%s on %s isn't the process that it was", program, n.Name)
				continue
			}
			if g := growthOf(samples); !g.flat() {
				d.t.Errorf("%s on %s has grown: %s", program, n.Name, g)
			}
		}
	}
}

// expectMemory checks that the chart's memory limit was enough for each daemon's container, with a
// reserve, and that no container was killed for memory.
func (d *day) expectMemory() {
	d.t.Helper()
	for _, n := range d.nodes {
		if err := n.memory.Enough(); err != nil {
			d.t.Errorf("%s: the daemon's container: %v", n.Name, err)
		}
		for _, status := range d.s.Daemon(n.Node).Status.ContainerStatuses {
			if ended := status.LastTerminationState.Terminated; ended != nil && ended.Reason == "OOMKilled" {
				d.t.Errorf("%s: container %s was killed for want of memory: %+v", n.Name, status.Name, ended)
			}
		}
	}
}
