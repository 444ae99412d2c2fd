// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	meshnft "github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// cost is what one run of a program took: nanoseconds, and KiB. Agent is the CPU time of the node
// agent's processes for it.
type cost struct{ wall, cpu, rss, agent float64 }

func (c cost) wallTime() float64 { return c.wall }
func (c cost) cpuTime() float64  { return c.cpu }
func (c cost) resident() float64 { return c.rss }

// everywhere is the CPU time of all processes on the node.
func (c cost) everywhere() float64 { return c.cpu + c.agent }

// launch runs a program under the launcher.
func (m *measurement) launch(program string, c budgetCase, namespace *sandbox.Namespace) cost {
	m.Helper()
	return m.launchArgs(program, c.command, c.args(namespace))
}

// launchArgs runs a command of a program under the launcher.
func (m *measurement) launchArgs(program, command string, args *skel.CmdArgs) cost {
	m.Helper()
	cmd := exec.Command(m.launcher)
	cmd.Env = append(environment(command, args), "PROGRAM="+program)
	input, err := stdin(args.StdinData)
	if err != nil {
		m.Error(err)
		return cost{}
	}
	defer input.Close()
	cmd.Stdin = input
	output, err := cmd.CombinedOutput()
	var got cost
	var status int
	if err == nil {
		_, err = fmt.Sscan(string(output), &got.wall, &got.cpu, &got.rss, &status)
	}
	if err != nil || status != 0 {
		m.Errorf("%s %s: got %q, %v", program, command, output, err)
	}
	return got
}

// stdin is a file without a name, so that no process has to feed the program while it runs.
func stdin(data []byte) (*os.File, error) {
	file, err := os.CreateTemp("", "stdin")
	if err != nil {
		return nil, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write(data)
	}
	if err == nil {
		_, err = file.Seek(0, 0)
	}
	return file, err
}

// apply applies the plan of the captured pod to a fresh namespace, in this process.
func (m *measurement) apply(turn int) {
	m.Helper()
	namespace := newNamespace(m, fmt.Sprint(inProcess, turn))
	defer namespace.Close()
	ns, err := interception.OpenNetns(namespace.Path(), interception.NetnsOptions{})
	if err != nil {
		m.Fatal(err)
	}
	defer ns.Close()
	plan := defaultPlan(m, ns)
	dataplane, err := meshnft.New(meshnft.Options{Foreign: true})
	if err != nil {
		m.Fatal(err)
	}
	begin := time.Now()
	err = dataplane.Apply(m.Context(), ns, plan)
	m.applied = append(m.applied, float64(time.Since(begin))/float64(time.Millisecond))
	if err != nil {
		m.Fatal(err)
	}
}

// defaultPlan is that of the pod which the API server answers with.
func defaultPlan(t testing.TB, ns *interception.Netns) *interception.Plan {
	t.Helper()
	pod, err := podsource.ParsePod([]byte(injected(t)))
	if err != nil {
		t.Fatal(err)
	}
	redirect, _, err := sidecar.Istio().Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := netfacts.Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := sidecar.Plan(redirect, facts, pluginName)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// medianOf is the median of a part of the costs.
func medianOf(costs []cost, part func(cost) float64) float64 {
	values := make([]float64, len(costs))
	for i, c := range costs {
		values[i] = part(c)
	}
	return median(values)
}

// ratio is the median of the ratios of a part of the costs, turn by turn.
func ratio(costs, to []cost, part func(cost) float64) float64 {
	ratios := make([]float64, len(costs))
	for i, c := range costs {
		ratios[i] = part(c) / part(to[i])
	}
	return median(ratios)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
