// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/internal/sandbox"
)

// BenchmarkADD runs, in turns, a program that does nothing, and ADDs, each as a process of its own: of a pod that is captured and of one
// that is left alone, known to a TLS server on this machine or to a node agent by its socket; and of one that the runtime's annotations
// keep out. It reports medians, and medians of the ratios within a turn. For figures to quote: -benchtime 50x.
//
// The resident set is the larger one of the program's and of the launcher's, about 2 MiB.
func BenchmarkADD(b *testing.B) {
	cases := benchmarkCases(b)
	costs := make([][]cost, len(cases))
	launcher, empty, program := mustBuild(b, "testdata/launcher"), mustBuild(b, "testdata/empty"), plugin(b)
	var ofEmpty []cost
	for turn := 0; b.Loop(); turn++ {
		ofEmpty = append(ofEmpty, launch(b, launcher, empty, cases[0].node.add()))
		for i, c := range cases {
			namespace := newNamespace(b, turn*len(cases)+i)
			args := c.node.add(append(c.settings, `{"plugin_log_level": "info"}`)...)
			args.Netns = namespace.Path()
			costs[i] = append(costs[i], launch(b, launcher, program, args))
			if err := namespace.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of a whole turn, and of no use
	for i, c := range cases {
		report(b, c.name, costs[i], ofEmpty)
	}
	b.ReportMetric(mebibytes(b, program), "size-MiB")
	b.ReportMetric(mebibytes(b, program)/mebibytes(b, empty), "size/empty")
}

type benchmarkCase struct {
	name     string
	node     *node
	settings []string
}

func benchmarkCases(b *testing.B) []benchmarkCase {
	b.Helper()
	const proxy, other = `"name": "istio-proxy"`, `"name": "proxy"`
	nobody := func(http.ResponseWriter, *http.Request) { b.Error("the API server was asked") }
	cases := []benchmarkCase{
		{"ADD", newNode(b, pod(b)), nil},
		{"unmeshed", newNode(b, pod(b, proxy, other)), nil},
		{"ADD-agent", newNode(b, nobody), nil},
		{"unmeshed-agent", newNode(b, nobody), nil},
		{"unmeshed-annotations", newNode(b, nobody), []string{`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}`}},
	}
	cases[2].node.serve(agentOf(b))
	cases[3].node.serve(agentOf(b, proxy, other))
	return cases
}

// cost is what one run of a program took.
type cost struct{ wall, cpu, rss float64 }

// launch runs an ADD of the program under the launcher.
func launch(b *testing.B, launcher, program string, args *skel.CmdArgs) cost {
	b.Helper()
	cmd := exec.Command(launcher)
	cmd.Env = append(environment("ADD", args), "PROGRAM="+program)
	cmd.Stdin = stdin(b, args.StdinData)
	output, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatal(err, string(output))
	}
	var c cost
	var status int
	if _, err := fmt.Sscan(string(output), &c.wall, &c.cpu, &c.rss, &status); err != nil || status != 0 {
		b.Fatalf("got %q, %v", output, err)
	}
	return c
}

// stdin is a file, so that nobody has to feed the program while it runs.
func stdin(b *testing.B, data []byte) *os.File {
	b.Helper()
	file, err := os.CreateTemp(b.TempDir(), "stdin")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	if _, err := file.Write(data); err != nil {
		b.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		b.Fatal(err)
	}
	return file
}

func report(b *testing.B, name string, costs, ofEmpty []cost) {
	b.Helper()
	for _, part := range []struct {
		name, unit string
		of         func(cost) float64
		scale      float64
	}{
		{"wall", "ms", func(c cost) float64 { return c.wall }, 1e6},
		{"cpu", "ms", func(c cost) float64 { return c.cpu }, 1e6},
		{"rss", "MiB", func(c cost) float64 { return c.rss }, 1 << 10},
	} {
		var values, ratios []float64
		for i, c := range costs {
			values = append(values, part.of(c)/part.scale)
			ratios = append(ratios, part.of(c)/part.of(ofEmpty[i]))
		}
		b.ReportMetric(median(values), fmt.Sprintf("%s-%s-%s", name, part.name, part.unit))
		b.ReportMetric(median(ratios), fmt.Sprintf("%s-%s/empty", name, part.name))
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func newNamespace(b *testing.B, turn int) *sandbox.Namespace {
	b.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(b.TempDir(), fmt.Sprint(turn)))
	if err != nil {
		b.Fatal(err)
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

func mebibytes(b *testing.B, path string) float64 {
	b.Helper()
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size()) / (1 << 20)
}
