// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/meshcni/meshcni/ambient"
)

// The limits of BenchmarkCapture: how many times the median time a connection, a packet or a
// megabyte may take.
const (
	mostManyMembers = 1.05 // with 10,000 pods of the mesh, of that with 10
	// Of a pod outside the mesh, of that on a node without the mesh's rules. To a node without any
	// rules this cannot be met while tracking and policy routing alone take more (docs/operations.md).
	mostOutside = 1.03
)

// setSizes are how many pods of the mesh a node's rules know.
var setSizes = []int{10, 1000, 10000}

// The forms that are compared.
const (
	noRules = "no rules"
	tracked = "connection tracking alone"
	// translated is what each node with kube-proxy or a bridge network has in any case.
	translated = "tracking and translation alone"
	// routed is a node with policy routing, and needed is one with all that capture on the node uses;
	// neither captures anything.
	routed    = "a policy rule alone"
	needed    = "tracking, translation and a policy rule"
	notMeshed = "not meshed, node-level"
	inPod     = "in-pod, REDIRECT"
	overVeth  = "node-level, veth"
	overVXLAN = "node-level, VXLAN"
)

// BenchmarkCapture compares what capture costs a connection, a packet and a stream of a pod between
// two nodes: in the pod's namespace and on the node, with few and many pods of the mesh. It takes
// all ways in turns, every other time in the opposite order, and a ratio is the median of those
// within a turn. A way's nodes are a few per cent faster or slower than others with the same rules,
// so all nodes are made anew several times. It prints a table, and fails when a limit is not kept.
// How long it runs is said by captureNodes and captureTurns, and not by -benchtime.
func BenchmarkCapture(b *testing.B) {
	c := &comparison{times: map[string]map[string][]float64{}}
	for range captureNodes {
		b.Run("nodes", c.turns)
	}
	c.TB = b
	show(c.table())
	c.enforce()
}

// turns makes the nodes of all ways, and takes each way captureTurns times.
func (c *comparison) turns(b *testing.B) {
	backend := hosts(b)["nftables"]
	c.TB, c.ways = b, nil
	for _, size := range setSizes {
		c.add(redirected(b, backend, size))
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			c.add(captured(b, backend, way, size)...)
		}
	}
	c.add(unruled(b), trackedOnly(b, backend), translatedOnly(b, backend), routedOnly(b, backend), neededOnly(b, backend))
	order := slices.Clone(c.ways)
	for range captureTurns {
		for _, way := range order {
			c.measure(way)
		}
		slices.Reverse(order)
	}
	b.ReportMetric(0, "ns/op") // of the whole, and of no use
}

// baselines are the ways that others are compared with.
func baselines() []string { return []string{noRules, tracked, translated, needed} }

// Nodes are made so often, and each way is then taken so often.
const (
	captureNodes = 5
	captureTurns = 24
)

// comparison holds the times of all ways, by the names of the way and of the quantity.
type comparison struct {
	testing.TB
	ways  []journey
	times map[string]map[string][]float64
}

func (c *comparison) add(ways ...journey) { c.ways = append(c.ways, ways...) }

// quantities are what is measured of each way, in microseconds each.
func quantities() []string {
	return []string{"connection", "packet and answer", "MiB of 1 stream", "MiB of 16 streams"}
}

func (c *comparison) measure(way journey) {
	c.Helper()
	times := c.times[way.name]
	if times == nil {
		times = map[string][]float64{}
		c.times[way.name] = times
	}
	for i, measured := range []func() (float64, error){way.connections, way.packets, way.stream, way.streams} {
		took, err := measured()
		if err != nil {
			c.Fatalf("%s: %v", way.name, err)
		}
		quantity := quantities()[i]
		times[quantity] = append(times[quantity], took)
	}
}

// ratio is the median of the ratios of two ways, turn by turn.
func (c *comparison) ratio(of, to, quantity string) float64 {
	ratios := slices.Clone(c.times[of][quantity])
	for i := range ratios {
		ratios[i] /= c.times[to][quantity][i]
	}
	return middle(ratios)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func sized(form string, size int) string { return fmt.Sprintf("%s, %d pods", form, size) }

func (c *comparison) table() string {
	rows := [][]string{append([]string{fmt.Sprintf("medians of %d, microseconds of a", captureNodes*captureTurns)}, quantities()...)}
	for _, way := range c.ways {
		row := []string{way.name}
		for _, quantity := range quantities() {
			median := middle(slices.Clone(c.times[way.name][quantity]))
			var ratios []string
			for _, other := range baselines() {
				ratios = append(ratios, fmt.Sprintf("%.2f", c.ratio(way.name, other, quantity)))
			}
			row = append(row, fmt.Sprintf("%.1f (%s)", median, strings.Join(ratios, " ")))
		}
		rows = append(rows, row)
	}
	return aligned(rows) + "(each bracket has the ratios to: " + strings.Join(baselines(), "; ") + ")\n"
}

// aligned returns rows of a table in columns.
func aligned(rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		_, _ = fmt.Fprintf(w, "%s\t\n", strings.Join(row, "\t")) // into a string
	}
	_ = w.Flush() // likewise
	return text.String()
}

// show prints a table: of a benchmark's log no more than ten lines would be shown.
func show(table string) { _, _ = fmt.Fprintf(os.Stdout, "\n\n%s", table) } // the reader notices

// enforce fails the benchmark for each limit that is not kept.
func (c *comparison) enforce() {
	c.Helper()
	most := setSizes[len(setSizes)-1]
	for _, quantity := range quantities() {
		for _, form := range []string{inPod, overVeth, overVXLAN, notMeshed} {
			c.limit(sized(form, most), sized(form, setSizes[0]), quantity, mostManyMembers)
		}
		for _, other := range baselines() {
			c.limit(sized(notMeshed, most), other, quantity, mostOutside)
		}
	}
}

func (c *comparison) limit(of, to, quantity string, most float64) {
	c.Helper()
	if got := c.ratio(of, to, quantity); got > most {
		c.Errorf("NOT MET: a %s takes %.3f times as long by %q as by %q, and the limit is %.2f", quantity, got, of, to, most)
	}
}
