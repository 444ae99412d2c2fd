// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The limits of an enrolment by the plugin's event, and of what follows.
const (
	mostBeyondParts = 1.0    // ms, in the median, beyond Apply, an acknowledgement and an edit of a set
	mostAtP99       = 10.0   // ms beyond them, at the 99th percentile
	mostOf200       = 1000.0 // ms, until the last of 200 at once
	mostHeal        = 20.0   // ms, from a flush to the rules' return
	mostOf500       = 1000.0 // ms of CPU, to observe and compare 500 pods
	mostOfSlow      = 1.2    // times what a slow proxy needs for its answers, one after the other
)

// BenchmarkEnrol compares an enrolment by the plugin's event, observed acknowledgement included,
// with what it cannot do without: Apply of the same plan, a bare acknowledgement and one edit of a
// set, each measured right after it.
func BenchmarkEnrol(b *testing.B) {
	n := newNode(b)
	n.options.Journal.Directory = filepath.Join(onTmpfs(b, ""), "journal") // as on a node
	a, _ := n.run()
	n.proxy()
	parts := newParts(b, n)
	var beyond, enrolled []float64
	for i := 0; b.Loop(); i++ {
		pod, other := n.bare(i), sandboxtest.NewPod(b)
		took := milliseconds(func() { n.enrol(a, pod) })
		enrolled = append(enrolled, took)
		beyond = append(beyond, took-milliseconds(func() { parts.do(other, i) }))
	}
	slices.Sort(enrolled)
	slices.Sort(beyond)
	median, p99 := beyond[len(beyond)/2], beyond[len(beyond)*99/100]
	b.ReportMetric(enrolled[len(enrolled)/2], "ms/enrolment")
	b.ReportMetric(median, "ms-beyond-parts")
	b.ReportMetric(p99, "ms-beyond-parts-p99")
	if len(beyond) >= 100 && (median > mostBeyondParts || p99 > mostAtP99) {
		b.Errorf("NOT MET: %.2f ms beyond its parts in the median and %.2f ms at p99, and the limits are %.0f and %.0f",
			median, p99, mostBeyondParts, mostAtP99)
	}
}

// BenchmarkEnrolTogether enrols 200 pods at once.
func BenchmarkEnrolTogether(b *testing.B) {
	n := newNode(b)
	n.options.Journal.Directory = filepath.Join(onTmpfs(b, ""), "journal") // as on a node
	a, _ := n.run()
	n.proxy()
	var took []float64
	for i := 0; b.Loop(); i++ {
		pods := make([]barePod, 200)
		for k := range pods {
			pods[k] = n.bare(i*len(pods) + k)
		}
		took = append(took, milliseconds(func() {
			var group sync.WaitGroup
			for _, pod := range pods {
				group.Go(func() { n.enrol(a, pod) })
			}
			group.Wait()
		}))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms/200-pods")
	if took[len(took)/2] > mostOf200 {
		b.Errorf("NOT MET: 200 pods at once take %.0f ms, and the limit is %.0f", took[len(took)/2], mostOf200)
	}
}

// BenchmarkSlowProxy enrols pods at once whose proxy needs 50 ms for each. The protocol has one
// request at a time, so the proxy is never to wait for the agent.
func BenchmarkSlowProxy(b *testing.B) {
	n := newNode(b)
	a, _ := n.run()
	const pods, answer = 20, 50.0 // ms
	n.standIn(ambienttest.ProxyOptions{Faults: ambienttest.Faults{LateAck: answer * time.Millisecond}})
	n.enrol(a, n.bare(0)) // with it the snapshot is complete
	var took []float64
	for i := 0; b.Loop(); i++ {
		all := make([]barePod, pods)
		for k := range all {
			all[k] = n.bare(i*pods + k + 1)
		}
		took = append(took, milliseconds(func() {
			var group sync.WaitGroup
			for _, pod := range all {
				group.Go(func() { n.enrol(a, pod) })
			}
			group.Wait()
		}))
	}
	slices.Sort(took)
	times := took[len(took)/2] / (pods * answer)
	b.ReportMetric(times, "times-the-proxy")
	if times > mostOfSlow {
		b.Errorf("NOT MET: %d pods take %.2f times what their proxy needs, and the limit is %.1f", pods, times, mostOfSlow)
	}
}

// The agent looks at once at ten changes, its own among them, and then at two a second.
const (
	heals        = 15
	betweenHeals = 3 * time.Second / 2
)

// BenchmarkHeal removes the rules of a pod, and waits until they are there again. It does so no
// more often than the agent looks at once at what another program does all the time.
func BenchmarkHeal(b *testing.B) {
	n := newNode(b)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer namespace.Close()
	plan := n.recorded("a").Plan
	var took []float64
	for range heals {
		took = append(took, milliseconds(func() {
			n.flush(namespace)
			n.await(func() bool { return !differs(plan, n.state(pod)) }, func() string { return describe(a) })
		}))
		time.Sleep(betweenHeals) //nolint:forbidigo // the agent's pace is about real time, and no event tells when it is over
	}
	slices.Sort(took)
	median := took[len(took)/2]
	b.ReportMetric(median, "ms/heal")
	if median > mostHeal {
		b.Errorf("NOT MET: rules return after %.1f ms, and the limit is %.0f", median, mostHeal)
	}
}

// BenchmarkObserve observes 500 pods, and compares each with its plan, as a round does.
func BenchmarkObserve(b *testing.B) {
	n := newNode(b)
	plan, err := ambient.PodPlan(n.options.Defaults, n.options.Numbers, interception.Facts{IPv6: true, LoopbackIPv6: true}, owner)
	if err != nil {
		b.Fatal(err)
	}
	pods := make([]*sandboxtest.Pod, 500)
	for i := range pods {
		pods[i] = sandboxtest.NewPod(b)
		if err := n.dataplane.Apply(b.Context(), pods[i].Netns, plan); err != nil {
			b.Fatal(err)
		}
	}
	var took []float64
	for range 9 { // not one or two, as it would be by -benchtime
		begin := ownCPU(b)
		for _, pod := range pods {
			state, err := n.dataplane.Observe(b.Context(), pod.Netns, owner)
			if err != nil || differs(plan, state) {
				b.Fatal(err, state)
			}
		}
		took = append(took, float64(ownCPU(b)-begin)/float64(time.Millisecond))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	b.ReportMetric(median, "CPU-ms/500-pods")
	if median > mostOf500 {
		b.Errorf("NOT MET: 500 pods take %.0f ms of CPU, and the limit is %.0f", median, mostOf500)
	}
}

// ownCPU returns the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func milliseconds(do func()) float64 {
	begin := time.Now()
	do()
	return float64(time.Since(begin)) / float64(time.Millisecond)
}

// barePod is a pod without an application, of which the feed has told.
type barePod struct {
	podnetns.Pod
	file *os.File
}

// bare makes the namespace of the pod with a number.
func (n *node) bare(number int) barePod {
	n.t.Helper()
	namespace := sandboxtest.NewPod(n.t).Namespace
	address := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
	err := namespace.SetUp("lo")
	if err == nil {
		err = namespace.AddAddress(n.t.Context(), "lo", netip.PrefixFrom(address, address.BitLen()))
	}
	if err != nil {
		n.t.Fatal(err)
	}
	uid := address.String()
	object := object(uid)
	object.Addresses = nil // the API server does not know it yet
	n.feed <- told(object)
	file, err := os.Open(namespace.Path())
	if err != nil {
		n.t.Fatal(err)
	}
	return barePod{podnetns.Pod{Namespace: "shop", Name: object.Name, UID: uid, IPs: []netip.Addr{address}}, file}
}

func (n *node) enrol(a *Agent, pod barePod) {
	if decision, err := a.Enrol(n.t.Context(), pod.Pod, pod.file); err != nil || !decision.Capture {
		n.t.Errorf("%+v, %v", decision, err)
	}
}

// parts are what an enrolment consists of, done without an agent.
type parts struct {
	*node
	server *zds.Server
	host   *interception.Netns
	pods   *interception.Plan
}

// newParts makes a second node, whose proxy is told of pods directly.
func newParts(b *testing.B, of *node) *parts {
	b.Helper()
	p := &parts{node: newNode(b)}
	var err error
	if p.server, err = zds.Listen(b.Context(), p.options.Socket, zds.Options{}); err != nil {
		b.Fatal(err)
	}
	go p.server.Serve(b.Context())
	p.proxy()
	p.host = p.options.Host
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	hosts, err := ambient.HostPlan(of.options.Numbers, facts, owner)
	if err == nil {
		err = p.dataplane.Apply(b.Context(), p.host, hosts)
	}
	if err == nil {
		p.pods, err = ambient.PodPlan(of.options.Defaults, of.options.Numbers, facts, owner)
	}
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// do enrols a pod step by step.
func (p *parts) do(pod *sandboxtest.Pod, number int) {
	address := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
	uid := address.String()
	err := p.dataplane.Apply(p.t.Context(), pod.Netns, p.pods)
	if err == nil {
		err = p.server.Set(zds.Workload{UID: uid, Name: "pod", Namespace: "shop"}, pod.Netns)
	}
	if err == nil {
		err = p.server.Await(p.t.Context(), uid)
	}
	if err == nil {
		edit := interception.SetEdit{Add: map[netip.Addr]string{address: uid}}
		err = p.options.Sets.UpdateSet(p.t.Context(), p.host, owner, ambient.ProbeSet(interception.IPv4), edit)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
