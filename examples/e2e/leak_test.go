// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/meshcni/meshcni/interception/journal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

const journalDirectory = "/run/istio-cni/journal"

// soaked is a node and its recorded state.
type soaked struct {
	*cluster.Node
	network cluster.Network
	primary string // the list as its agent writes it
	plugin  []byte // the binary
	daemon  *corev1.Pod
	// tokenFile is the file in which the kubelet puts the daemon's token.
	tokenFile string
	// files are the files in the product's directories at the start.
	files []string
	// killed are the processes that were killed last, by program.
	killed       map[string]string
	daemonKilled time.Time
	daemonKills  int
	samples      map[string][]sample // by program
	memory       cluster.Memory      // the daemon's containers' highest values
}

// sample is a process's resource use at one moment.
type sample struct {
	pid string
	// memory is the anonymous resident memory in KiB, which the process allocated. Pages of its
	// file come and go with the machine's free memory.
	memory      int
	descriptors int
	heap        int // live heap after a collection, in KiB; 0 if not measured
}

// watched returns the programs that must not grow.
func watched() []string { return []string{"install-cni", "node-watcher"} }

// processes returns those of a program on the node.
func (n *soaked) processes(program string) []string {
	names, _ := filepath.Glob(n.Path("/proc") + "/[0-9]*/comm")
	var pids []string
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == program {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// pid returns the only process of a program on the node; empty if none runs.
func (n *soaked) pid(program string) string {
	if pids := n.processes(program); len(pids) == 1 {
		return pids[0]
	}
	return ""
}

// measure samples a process of the node; it returns false if the process does not run.
func (n *soaked) measure(program string) (sample, bool) {
	now := sample{pid: n.pid(program)}
	status, err := os.ReadFile(n.Path("/proc/" + now.pid + "/status"))
	if err != nil || now.pid == "" {
		return now, false
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "RssAnon:"); found {
			now.memory, err = strconv.Atoi(strings.Fields(value)[0])
		}
	}
	open, failure := os.ReadDir(n.Path("/proc/" + now.pid + "/fd"))
	now.descriptors = len(open)
	return now, err == nil && failure == nil
}

// measureContainer records the highest values of the daemon's container so far.
func (n *soaked) measureContainer() {
	for _, pid := range n.processes("install-cni") {
		if now, err := n.Memory(pid); err == nil { // it may just have ended
			n.memory = n.memory.Most(now)
		}
	}
}

// watchProcesses samples the processes of all nodes until the context ends.
func (d *day) watchProcesses(ctx context.Context) {
	const heaps = 20 // number of samples for each one of the heap, which costs a collection
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for turn := 0; ctx.Err() == nil; turn++ {
		for _, n := range d.nodes {
			for _, program := range watched() {
				now, there := n.measure(program)
				if !there {
					continue
				}
				if program == "install-cni" && turn%heaps == 0 {
					now.heap, _ = n.heap(ctx, now.pid) // it may just be starting
				}
				n.samples[program] = append(n.samples[program], now)
			}
			n.measureContainer()
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// profiles is the address of a daemon's profiles, in its own network namespace.
const profiles = "127.0.0.1:6060"

// heap makes a daemon collect garbage, and returns its heap after that, in KiB.
func (n *soaked) heap(ctx context.Context, pid string) (int, error) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		var connection net.Conn
		err := ns.WithNetNSPath(n.Path("/proc/"+pid+"/ns/net"), func(ns.NetNS) (err error) {
			connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return connection, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profiles+"/debug/pprof/heap?gc=1&debug=1", http.NoBody)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "# HeapAlloc = "); found {
			bytes, err := strconv.Atoi(value)
			return bytes / 1024, err
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("the profile doesn't say how large the heap is"))
}

// growth compares the first quarter of samples, after a warm-up of one tenth, with the last
// quarter.
type growth struct{ first, last means }

type means struct{ memory, descriptors, heap float64 }

func growthOf(samples []sample) growth {
	samples = samples[len(samples)/10:]
	return growth{meansOf(samples[:(len(samples)+3)/4]), meansOf(samples[len(samples)*3/4:])}
}

func meansOf(samples []sample) means {
	var sum means
	heaps := 0
	for _, s := range samples {
		sum.memory += float64(s.memory)
		sum.descriptors += float64(s.descriptors)
		sum.heap += float64(s.heap)
		if s.heap > 0 {
			heaps++
		}
	}
	count := float64(max(1, len(samples)))
	return means{sum.memory / count, sum.descriptors / count, sum.heap / float64(max(1, heaps))}
}

// flat reports whether nothing has grown. The live heap shows a leak best: half a KiB for each pod
// would exceed the bound with the pods of twenty minutes. Resident memory also varies with
// allocations between two collections, stacks and free fragments, by less than a MiB in a process
// of some MiB. Descriptors vary with the connected plugins and probes.
func (g growth) flat() bool {
	const heap, memory, descriptors = 256, 1024, 2
	return g.last.heap <= g.first.heap+heap && g.last.memory <= g.first.memory*1.1+memory &&
		g.last.descriptors <= g.first.descriptors+descriptors
}

func (g growth) String() string {
	text := fmt.Sprintf("RssAnon %.2f MiB -> %.2f MiB, descriptors %.1f -> %.1f",
		g.first.memory/1024, g.last.memory/1024, g.first.descriptors, g.last.descriptors)
	if g.first.heap > 0 {
		text += fmt.Sprintf(", living heap %.0f KiB -> %.0f KiB", g.first.heap, g.last.heap)
	}
	return text
}

// productFiles returns the names of all files in the directories that the product writes to, except
// the journal's.
func (n *soaked) productFiles() []string {
	var names []string
	for _, directory := range []string{"/run/istio-cni", "/opt/cni/bin", "/etc/cni/net.d"} {
		entries, _ := os.ReadDir(n.Path(directory))
		for _, entry := range entries {
			names = append(names, filepath.Join(directory, entry.Name()))
		}
	}
	return names
}

// samePlugin reports whether the plugin is the one that was installed.
func (n *soaked) samePlugin() bool {
	info, err := os.Stat(n.Path(pluginFile))
	if err != nil || info.Size() != int64(len(n.plugin)) || info.Mode().Perm() != 0o755 {
		return false
	}
	program, err := os.ReadFile(n.Path(pluginFile))
	return err == nil && bytes.Equal(program, n.plugin)
}

// left returns what a node has and should not have, or lacks, after all activity has ended.
func (d *day) left(ctx context.Context, n *soaked) ([]string, error) {
	pods, err := d.s.Cluster.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, pod := range pods.Items {
		if d.pods.spans[pod.Name].mesh && pod.Namespace == d.s.Namespace {
			wanted = append(wanted, string(pod.UID))
		}
	}
	recorded, findings, err := n.recorded()
	if err != nil {
		return nil, err
	}
	findings = append(findings, compared("record of pod", recorded, wanted)...)
	findings = append(findings, compared("file", n.productFiles(), n.files)...)
	if running := n.processes("istio-cni"); len(running) > 0 {
		findings = append(findings, fmt.Sprintf("processes of the plugin: %v", running))
	}
	namespaces, err := os.ReadDir(n.Path("/run/netns"))
	if err != nil {
		return nil, err
	}
	if len(namespaces) != len(pods.Items) {
		findings = append(findings, fmt.Sprintf("%d network namespaces, and %d pods", len(namespaces), len(pods.Items)))
	}
	return findings, nil
}

// recorded returns the UIDs of the pods in the node's journal, and its other content.
func (n *soaked) recorded() (uids, findings []string, err error) {
	files, err := os.ReadDir(n.Path(journalDirectory))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		attachment, is := journal.AttachmentOf(file.Name())
		if !is {
			findings = append(findings, "in the journal: "+file.Name())
			continue
		}
		record, err := journal.Journal{Directory: n.Path(journalDirectory)}.Read(attachment)
		if err != nil {
			return nil, nil, err
		}
		uids = append(uids, record.UID)
	}
	return uids, findings, nil
}

// compared describes surplus and missing items.
func compared(what string, there, wanted []string) []string {
	var findings []string
	for _, name := range there {
		if !slices.Contains(wanted, name) {
			findings = append(findings, what+" too much: "+name)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(there, name) {
			findings = append(findings, what+" missing: "+name)
		}
	}
	return findings
}
