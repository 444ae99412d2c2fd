// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

var turns = flag.Int("turns", 120, "how often BenchmarkBudget runs each program")

// copyTurns is how many turns use the same copies of the programs.
const copyTurns = 5

// BenchmarkBudget compares what the plugin costs with its budget. In turns it runs a program that
// does nothing and right after it the plugin, each as a process of its own, for each kind of pod; a
// ratio is the median of those within a turn. The kinds take a random order in each turn, as a run
// costs less right after another one of its kind. It prints a table, and fails when a limit in it
// is not kept. How long it runs is said by -turns, and not by -benchtime.
//
// At the other end of one socket is install-cni with its node-watcher, as processes: what they take
// for an ADD is added to what the plugin takes.
//
// Pods are enrolled in ambient mode in turns of their own, after the others. While node-ambient
// listens to nftables, in whichever namespace, the kernel writes a message about every object that
// is added, and the plugin's transaction costs more.
//
// The plugin and the empty program lie on the disk as install-cni copies them there, and the run
// directory is on a tmpfs, as /var/run is. How the page cache holds a copy is a matter of chance,
// and makes up to 3 % of what it costs to start, so both are copied again from time to time. The
// resident set is the larger one of the program's and of its launcher's, which is below 2 MiB.
func BenchmarkBudget(b *testing.B) {
	onTmpfs(b)
	empty, ours := mustBuild(b, "testdata/empty"), plugin(b)
	m := &measurement{
		TB: b, launcher: mustBuild(b, "testdata/launcher"), costs: map[string][]cost{}, ofEmpty: map[string][]cost{},
	}
	cases := budgetCases(b)
	for turn := range *turns {
		if turn%copyTurns == 0 {
			m.empty, m.plugin = installed(b, empty), installed(b, ours)
		}
		for _, i := range mathrand.Perm(len(cases)) {
			m.run(cases[i], turn)
		}
		m.together(cases[0], turn)
		m.apply(turn)
	}
	m.enroller = newEnroller(b) // not earlier: its listeners have the kernel report every change
	compared := cases[slices.IndexFunc(cases, func(c budgetCase) bool { return c.name == byAgent })]
	compared.name = besideEnroller
	for turn := range *turns {
		m.run(compared, turn)
		m.enrol(turn)
	}
	b.ReportMetric(0, "ns/op")                         // of the whole, and of no use
	fmt.Fprintf(os.Stdout, "\n\n%s\n", m.table(cases)) // of a log no more than ten lines would be shown
	m.budget.enforce(b)
}

// budgetCase is what is run, how much of the empty program's CPU time it may take, and how many
// MiB; no matter how much when 0.
type budgetCase struct {
	name     string
	command  string
	node     *node
	agent    *nodeAgent // nil when the agent is part of this process, or the node has none
	settings []string
	limit    float64
	resident float64
}

// The cases that others are compared with.
const (
	captured = "ADD, API server (TLS)"
	byAgent  = "ADD, install-cni's socket"
	// besideEnroller is byAgent while node-ambient runs.
	besideEnroller = byAgent + ", beside node-ambient"
	manyCIDRs      = "ADD with 1000 excluded CIDRs"
	parallelADD    = "16 ADDs at once"
	bySocket       = "un-meshed pod, agent's socket"
	outside        = "un-meshed pod, runtime's annotations"
	onlyVersion    = "VERSION"
	inProcess      = "Apply, in process"
)

func budgetCases(b *testing.B) []budgetCase {
	b.Helper()
	const proxy, other = `"name": "istio-proxy"`, `"name": "proxy"`
	nobody := func(http.ResponseWriter, *http.Request) { b.Error("the API server was asked") }
	annotations := []string{`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}`}
	inside := func(edits ...string) *node {
		n := newNode(b, nobody)
		n.serve(agentOf(b, edits...))
		return n
	}
	ambient := []string{`{"ambient_enabled": true}`}
	withAgent := newNode(b, nobody)
	return []budgetCase{
		{captured, "ADD", newNode(b, pod(b)), nil, nil, 5.5, mostResident},
		{byAgent, "ADD", withAgent, startAgent(b, withAgent), nil, 4.2, mostResident},
		{manyCIDRs, "ADD", newNode(b, pod(b, `"traffic.sidecar.istio.io/includeInboundPorts"`, excludedCIDRs(1000))), nil, nil, 0, 0},
		{"un-meshed pod, API server", "ADD", newNode(b, pod(b, proxy, other)), nil, nil, 4, mostResident},
		{bySocket, "ADD", inside(proxy, other), nil, nil, 3, mostResident},
		{bySocket + withAmbient, "ADD", besideAmbient(b, inside(proxy, other)), nil, ambient, 0, mostResident},
		{outside, "ADD", newNode(b, nobody), nil, annotations, 0, mostResident},
		{outside + withAmbient, "ADD", besideAmbient(b, newNode(b, nobody)), nil, append(annotations, ambient...), 0, mostResident},
		{onlyVersion, "VERSION", newNode(b, nobody), nil, nil, 0, mostResident},
	}
}

// excludedCIDRs is an annotation, followed by the beginning of the next one.
func excludedCIDRs(n int) string {
	cidrs := make([]string, n)
	for i := range cidrs {
		cidrs[i] = fmt.Sprintf("10.%d.%d.0/24", i/100, i%100*2) // none beside another one, so that they stay as many
	}
	return `"traffic.sidecar.istio.io/excludeOutboundIPRanges": "` + strings.Join(cidrs, ",") + `",
      "traffic.sidecar.istio.io/includeInboundPorts"`
}

// measurement collects what the runs of programs cost, by the names of their cases.
type measurement struct {
	testing.TB
	launcher, empty, plugin string
	costs, ofEmpty          map[string][]cost
	applied                 []float64 // milliseconds of each Apply
	enroller                *enroller
	budget                  budget
}

// run runs the empty program, and then what the case says.
func (m *measurement) run(c budgetCase, turn int) {
	m.Helper()
	m.ofEmpty[c.name] = append(m.ofEmpty[c.name], m.launch(m.empty, c, c.node.netns))
	namespace := newNamespace(m, fmt.Sprint(c.name, turn))
	defer namespace.Close()
	var before float64
	if c.agent != nil {
		before = c.agent.cpu()
	}
	took := m.launch(m.plugin, c, namespace)
	if c.agent != nil {
		took.agent = c.agent.cpu() - before
	}
	m.costs[c.name] = append(m.costs[c.name], took)
}

// together has 16 of them at once, and adds up what they cost.
func (m *measurement) together(c budgetCase, turn int) {
	m.Helper()
	m.ofEmpty[parallelADD] = append(m.ofEmpty[parallelADD], m.launch(m.empty, c, c.node.netns))
	costs := make([]cost, 16)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range costs {
		namespace := newNamespace(m, fmt.Sprint(parallelADD, turn, i))
		defer namespace.Close()
		group.Go(func() { costs[i] = m.launch(m.plugin, c, namespace) })
	}
	group.Wait()
	sum := cost{wall: float64(time.Since(begin))}
	for _, c := range costs {
		sum.cpu += c.cpu
		sum.rss = max(sum.rss, c.rss)
	}
	m.costs[parallelADD] = append(m.costs[parallelADD], sum)
}

// onTmpfs lets all temporary directories of the benchmark be on one.
func onTmpfs(b *testing.B) {
	b.Helper()
	dir := filepath.Join(built, "tmpfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			b.Error(err)
		}
		_ = os.Remove(dir)
	})
	b.Setenv("TMPDIR", dir)
}

// installed copies a program to where install-cni would have put it, as install-cni does it: it
// costs more to start a file that the page cache has in small pieces.
func installed(b *testing.B, program string) string {
	b.Helper()
	to := filesystem.Directory{Path: filepath.Join(built, "installed")}
	if err := os.MkdirAll(to.Path, 0o700); err != nil {
		b.Fatal(err)
	}
	name := filepath.Base(program)
	if err := os.Remove(to.In(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	if _, err := to.CopyAs(filesystem.Directory{Path: filepath.Dir(program)}, name, name, filesystem.Options{Mode: 0o700}); err != nil {
		b.Fatal(err)
	}
	return to.In(name)
}

func newNamespace(t testing.TB, name string) *sandbox.Namespace {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), strings.ReplaceAll(name, "/", "-")))
	if err != nil {
		t.Fatal(err)
	}
	return namespace
}

func mustBuild(b testing.TB, folder string) string {
	b.Helper()
	path, err := build("./"+folder, filepath.Base(folder))
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// args are those of a case.
func (c budgetCase) args(namespace *sandbox.Namespace) *skel.CmdArgs {
	args := c.node.add(append(c.settings, `{"plugin_log_level": "info"}`)...)
	args.Netns = namespace.Path()
	args.ContainerID = strings.ToLower(rand.Text()) // of a new container each time
	return args
}
