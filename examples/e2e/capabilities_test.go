// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// capabilities returns values with which the chart requests all capabilities.
func capabilities() scenario.Values {
	return scenario.Values{
		"tryKernel": true, "repairInPlace": true, "capabilities": []any{"CHOWN", "FOWNER", "DAC_OVERRIDE"},
		"settings": scenario.Values{"excludeNamespaces": []any{"kube-system"}, "repairResync": "1s", "logOutputLevel": "debug"},
	}
}

func (p *permissions) startPatient() {
	p.patient = p.Pod(scenario.Workload{Name: "patient", Injected: true, Node: p.Bridge.Name})
}

// repaired checks that, with all capabilities, a pod gets its rules back. It uses a new pod, since
// a daemon that starts leaves the pods that it finds alone.
func (p *permissions) repaired() {
	for _, o := range p.full.Objects {
		if o.Kind() == "DaemonSet" {
			p.Do("give all back", func(ctx context.Context) error { return p.patch(ctx, o) })
		}
	}
	p.awaitRollout()
	// The daemon finds the pod by its processes, since no record is left.
	p.awaitLog(p.Bridge, "/patient", `finding="suspect: no-record`)
	other := p.Pod(scenario.Workload{Name: "other", Injected: true, Node: p.Bridge.Name})
	p.FlushRules(other)
	p.Await("rules", func(context.Context) (bool, error) { return p.Rules(other) != "", nil })
}

// kernelUnknown: the daemon cannot probe the kernel or look into a pod's network namespace, and
// logs that.
func (p *permissions) kernelUnknown() {
	p.awaitLog(p.Bridge, "operation not permitted (it takes CAP_")
	p.patientStays()
}

// processesUnknown: the daemon cannot see the network namespace of a pod's processes, which is the
// only way to an unrecorded pod.
func (p *permissions) processesUnknown() {
	for _, directory := range []string{"/run/istio-cni/journal", "/var/lib/cni/results"} {
		p.forget(p.Bridge.Path(directory))
	}
	p.patientStays()
}

// forget removes a directory's files that name the patient.
func (p *permissions) forget(directory string) {
	p.t.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "*"))
	found := 0
	for _, name := range names {
		text, problem := os.ReadFile(name)
		if bytes.Contains(text, []byte(p.patient.UID)) {
			problem = errors.Join(problem, os.Remove(name))
			found++
		}
		err = errors.Join(err, problem)
	}
	if err != nil || found == 0 {
		p.t.Fatalf("%d files in %s name the pod: %v", found, directory, err)
	}
}

// patientStays: the patient has no rules, and the daemon cannot see that.
func (p *permissions) patientStays() {
	p.t.Helper()
	p.FlushRules(p.patient)
	p.awaitLog(p.Bridge, "/patient", "unseen=")
	if rules := p.Rules(p.patient); rules != "" {
		p.t.Errorf("it has rules nevertheless:\n%s", rules)
	}
}

// ownerLost: the daemon cannot rewrite a configuration that belongs to another user and keep its
// owner.
func ownerLost(why string) func(*permissions) {
	return func(p *permissions) {
		const somebody = 12345
		p.rewriteNetwork(somebody)
		p.awaitLog(p.Bridge, why)
	}
}

// nothingWritten: a directory of the node belongs to another user.
func (p *permissions) nothingWritten() {
	directory := p.Bridge.Path("/etc/cni/net.d")
	if err := os.Chmod(directory, 0o555); err != nil {
		p.t.Fatal(err)
	}
	p.Cleanup("give the directory back", func(context.Context) error { return os.Chmod(directory, 0o755) })
	p.rewriteNetwork(0)
	p.awaitLog(p.Bridge, "with a security context that may write there")
}

// rewriteNetwork rewrites the network's configuration as the user with this number, without the
// plugin. At the end root rewrites it.
func (p *permissions) rewriteNetwork(user int) {
	p.t.Helper()
	directory := p.Bridge.Path("/etc/cni/net.d")
	unfinished := filepath.Join(directory, ".theirs")
	text := p.Bridge.NetworkConfiguration(cluster.BridgeNetwork)
	p.Cleanup("make the configuration root's", func(context.Context) error { return p.Bridge.InstallNetwork(cluster.BridgeNetwork) })
	p.Do("write the network's configuration", func(context.Context) error {
		if err := os.WriteFile(unfinished, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chown(unfinished, user, user); err != nil {
			return err
		}
		return os.Rename(unfinished, filepath.Join(directory, cluster.FileName))
	})
}
